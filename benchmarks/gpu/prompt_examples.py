"""Runs the worked examples of the prompts on ranks that share one GPU, and compares them with their definition.

    python -m benchmarks.gpu.prompt_examples [--ranks 2]

Each example that needs a GPU is started by torchrun on its own, so that one that hangs or crashes is told from the
others. Several ranks on one device need TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES, and no multicast.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "problems" / "prompts" / "examples"
EXAMPLES = ("centre_cuda", "centre_triton", "distances_pytorch", "distances_cuda", "distances_triton")
LIMIT = 180.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    with ThreadPoolExecutor(len(EXAMPLES)) as pool:
        outcomes = list(pool.map(lambda name: launch(name, options.ranks), EXAMPLES))
    for name, outcome in zip(EXAMPLES, outcomes, strict=True):
        print(f"{name:<20}{outcome}")
    return 0 if all(outcome.startswith("agrees") for outcome in outcomes) else 1


def launch(name: str, ranks: int) -> str:
    """Outcome of one example in one line; "agrees", or the end of what it printed."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [str(ROOT), str(ROOT / "evaluator" / "runner"), os.environ.get("PYTHONPATH", "")]
        ),
        "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "TORCH_CUDA_ARCH_LIST": "9.0",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += [str(Path(__file__)), "--example", name]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False)
    except subprocess.TimeoutExpired:
        return f"no end within {LIMIT:.0f} s"
    lines = [line for line in done.stdout.splitlines() if line.startswith("agrees")]
    return lines[0] if done.returncode == 0 and lines else (done.stdout + done.stderr)[-1_500:].replace("\n", " / ")


def run(name: str) -> None:
    """One rank of one example, under torchrun: several shapes, twice each so that workspaces are used again."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(0)
    dist.init_process_group("cpu:gloo,cuda:gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    if rank == 0:  # the other ranks load the build of the first
        spec.loader.exec_module(module)
    dist.barrier()
    if rank != 0:
        spec.loader.exec_module(module)
    worst = 0.0
    for trial, shape in enumerate([(256, 128), (256, 128), (129, 65), (1024, 512)]):
        generator = torch.Generator().manual_seed(1_000 * trial + rank)
        one, two = (torch.randn(shape, generator=generator).bfloat16() for _ in range(2))
        everybody = [torch.empty_like(one) for _ in range(world)]
        shared = one if name.startswith("centre") else two
        dist.all_gather(everybody, shared)
        if name.startswith("centre"):
            mean = torch.stack([x.float() for x in everybody]).mean(0)
            expected = (one.float() - mean).clamp(-1, 1) + two.float()
        else:
            keys = torch.cat([k.float() for k in everybody])
            expected = torch.cdist(one.float(), keys).square()
        got = module.solution(one.cuda(), two.cuda()).cpu().float()
        scale = expected.square().mean().sqrt()
        worst = max(worst, float((got - expected).abs().max() / scale))
    if worst > 0.05:
        raise SystemExit(f"rank {rank}: largest error {worst:.3g} of rms(expected)")
    dist.barrier()
    if rank == 0:
        print(f"agrees on {world} ranks, largest error {worst:.2e} of rms(expected)")
    dist.destroy_process_group()


if __name__ == "__main__":
    if "--example" in sys.argv:
        run(sys.argv[-1])
    else:
        sys.exit(main())
