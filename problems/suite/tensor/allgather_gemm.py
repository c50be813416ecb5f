"""All-gather of column-sharded activations, then GEMM.

Legend: M rows, N columns, K inner dimension, W ranks, q a rank; A_q has K/W columns.

    out = [A_0, A_1, ...] @ B                                              A_q (M, K/W), own B (K, N), out (M, N)
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from problems.suite.base import Problem
from problems.suite.families.gathered_gemm import DRAWS, cost, hidden_sizes, inputs, oracle, world_size_rule


def solution(A_local: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    blocks = [torch.empty_like(A_local) for _ in range(dist.get_world_size())]
    dist.all_gather(blocks, A_local.contiguous())
    return torch.matmul(torch.cat(blocks, dim=1), B)  # (M, K) @ (K, N)


PROBLEM = Problem(
    id=12,
    slug="allgather_gemm",
    title="All-gather of column-sharded activations, then GEMM",
    type="tensor",
    also=("collective",),
    domain="llm_training",
    stage="forward",
    origin="column-sharded activations gathered before a linear layer",
    difficulty=2,
    statement=(
        "A matrix A (M, K), K = 512, is split by columns: `A_local` (M, K/W) holds columns r·K/W to (r+1)·K/W - 1 on "
        "rank r. Every rank has a matrix `B` (K, N) of its own; the ranks' B differ. The result on every rank is "
        "A @ B with its own B, (M, N) in the dtype of the inputs, accumulated in float32."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 192, "N": 128},
    check_sizes={"M": 24, "N": 40},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so no row of the result is a multiple of 16 bytes",
    linear=("A_local",),
    draws=DRAWS,
    world_size_rule=world_size_rule,
    communication="all_gather of (M, K/W), concatenated to (M, K) in rank order, over the world group",
    hazards=(
        "B differs from rank to rank: splitting the product over the ranks is wrong.",
        "Blocks arrive one below the other and belong side by side.",
        "Products on TF32 units or split sums in bf16 miss the tolerance.",
    ),
)
