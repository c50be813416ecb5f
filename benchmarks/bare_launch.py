"""What an evaluation is compared with: the least that runs a file on W ranks. Started by torchrun.

Joins gloo, imports the file, calls its ``solution`` once on inputs of the problem's public CPU shape, and ends. Nothing
is checked, isolated or timed.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from problems.suite.base import Rng
from problems.suite.registry import get


def main() -> None:
    path, problem = Path(sys.argv[1]), get(sys.argv[2])
    dist.init_process_group("gloo")
    spec = importlib.util.spec_from_file_location("submission", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} cannot be imported.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    world_size = dist.get_world_size()
    case = problem.public_case(world_size=world_size, dtype=torch.float32, device="cpu")
    arguments = problem.inputs(case, Rng(1, world_size))[dist.get_rank()]
    module.solution(**arguments)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
