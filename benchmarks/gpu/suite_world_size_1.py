"""Runs every reference of the suite on one GPU: world size 1 over NCCL, bf16, public shapes.

    python -m benchmarks.gpu.suite_world_size_1 --json FILE [--seconds 500]

For each problem: does its reference run unchanged on CUDA tensors, does its result agree with the float64 oracle, and
how long does a call take (median of CUDA events over up to 30 calls after a warm-up, new inputs are not drawn: this is
a check that the suite works on a GPU, not a measurement for a board). Needs torch alone; stops starting new problems
after ``--seconds``. ``benchmarks.gpu.suite_table`` makes docs/suite_on_gpu.md of the JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Group, Problem, Rng
from problems.suite.battery import Trial, verdict
from problems.suite.ranks import RankResult
from problems.suite.registry import entries, get

SEED = 20_261_201
CALLS, BUDGET = 30, 2.0  # calls and seconds of one problem's timing
DEVICE = torch.device("cuda", 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--ids", type=int, nargs="*")
    options = parser.parse_args()
    torch.cuda.set_device(DEVICE)
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group(
            "nccl", init_method=f"file://{folder}/rendezvous", rank=0, world_size=1, device_id=DEVICE
        )
        rows, deadline = [], time.monotonic() + options.seconds
        for entry in entries():
            if options.ids and entry.id not in options.ids:
                continue
            row = {"id": entry.id, "slug": entry.slug, **examine(get(entry.id), deadline)}
            rows.append(row)
            print(
                row["id"],
                row["slug"],
                row["outcome"],
                row.get("milliseconds", ""),
                row.get("why", "")[:200],
                flush=True,
            )
        versions = {
            "gpu": torch.cuda.get_device_name(0),
            "torch": torch.__version__,
            "python": platform.python_version(),
        }
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
        options.json.write_text(json.dumps({"versions": versions, "dtype": "bf16", "rows": rows}, indent=1) + "\n")
        dist.destroy_process_group()


def examine(problem: Problem, deadline: float) -> dict[str, Any]:
    """Outcome of one problem: "agrees", "differs", "fails", "does not fit" or "not reached", with the reason."""
    if time.monotonic() > deadline:
        return {"outcome": "not reached", "why": "the time of this run was spent"}
    case = problem.public_case(world_size=1, dtype=torch.bfloat16, device="cuda")
    if sentence := problem.world_size_rule(1, case.sizes):
        return {"outcome": "does not fit", "why": sentence}
    if torch.bfloat16 not in problem.run_dtypes:
        case = Case("public", 1, problem.run_dtypes[0], case.sizes)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try:
        args = problem.inputs(case, Rng(SEED, 1))
        expected = problem.oracle(case, args)
        output, after = call(problem, args[0])
        trial = Trial(problem, case, args, expected)
        ratio = verdict(trial, [RankResult(output=to_cpu(output), args=to_cpu(after))])
        row: dict[str, Any] = {"outcome": "agrees" if ratio <= 1 else "differs", "error_of_tolerance": round(ratio, 3)}
        row["milliseconds"] = round(timed(problem, args[0]) * 1e3, 4)
        row["peak_MiB"] = round(torch.cuda.max_memory_allocated() / 2**20)
    except Exception as error:
        row = {
            "outcome": "fails",
            "why": f"{type(error).__name__}: {error}"[:500],
            "where": traceback.format_exc()[-800:],
        }
    return row


def call(problem: Problem, args: Args) -> tuple[Any, Args]:
    moved = {name: to_gpu(value) for name, value in args.items()}
    output = problem.solution(**moved)
    torch.cuda.synchronize()
    return output, {name: args[name] if isinstance(args[name], Group) else value for name, value in moved.items()}


def timed(problem: Problem, args: Args) -> float:
    """Median seconds of a call, each with its own copy of the inputs because some problems change them."""
    times: list[float] = []
    started = time.monotonic()
    while len(times) < CALLS and (len(times) < 3 or time.monotonic() - started < BUDGET):
        moved = {name: to_gpu(value) for name, value in args.items()}
        begin, end = [torch.cuda.Event(enable_timing=True) for _ in range(2)]  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        begin.record()
        problem.solution(**moved)
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times[1:])


def to_gpu(value: Any) -> Any:
    match value:
        case torch.Tensor():
            return value.to(DEVICE)
        case torch.nn.Linear():
            linear = torch.nn.Linear(value.in_features, value.out_features, bias=value.bias is not None)
            linear.load_state_dict(value.state_dict())
            return linear.to(DEVICE, value.weight.dtype)
        case Group():
            return dist.group.WORLD
        case list() | tuple():
            return type(value)(to_gpu(item) for item in value)
        case _:
            return value


def to_cpu(value: Any) -> Any:
    match value:
        case torch.Tensor():
            return value.detach().cpu()
        case torch.nn.Linear():
            return value.cpu()
        case list() | tuple():
            return type(value)(to_cpu(item) for item in value)
        case dict():
            return {key: to_cpu(item) for key, item in value.items()}
        case _:
            return value


if __name__ == "__main__":
    main()
