"""All-gather of transposed activations, then GEMM in transposed form.

Legend: M rows, N columns, K inner dimension, W ranks, q a rank; A_q has K/W columns.

    out = (B^T @ [A_0, A_1, ...]^T)^T = [A_0, A_1, ...] @ B                A_q (M, K/W), own B (K, N), out (M, N)
"""

from __future__ import annotations

import torch
import torch.distributed as dist

from problems.suite.base import Problem
from problems.suite.families.gathered_gemm import DRAWS, cost, hidden_sizes, inputs, oracle, world_size_rule


def solution(A_local: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    At_local = A_local.t().contiguous()  # (K/W, M)
    At = At_local.new_empty((dist.get_world_size() * At_local.shape[0], At_local.shape[1]))
    dist.all_gather_into_tensor(At, At_local)  # (K, M), the blocks one below the other
    return torch.matmul(B.t(), At).t()  # a view with strides (1, M)


PROBLEM = Problem(
    id=11,
    slug="allgather_gemm_AT",
    title="All-gather of transposed activations, then GEMM in transposed form",
    type="tensor",
    also=("collective",),
    domain="llm_training",
    stage="forward",
    origin="column-sharded activations gathered before a linear layer, in transposed layout",
    difficulty=2,
    statement=(
        "A matrix A (M, K), K = 512, is split by columns: `A_local` (M, K/W) holds columns r·K/W to (r+1)·K/W - 1 on "
        "rank r. Every rank has a matrix `B` (K, N) of its own; the ranks' B differ. The result on every rank is "
        "A @ B with its own B, (M, N) in the dtype of the inputs, accumulated in float32. The reference gathers the "
        "transposed blocks, multiplies in transposed form and returns a transposed view; any strides will do."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 192, "N": 128},
    check_sizes={"M": 24, "N": 40},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so no row of the gathered matrix is a multiple of 16 bytes",
    linear=("A_local",),
    draws=DRAWS,
    world_size_rule=world_size_rule,
    communication="all_gather of (K/W, M), stacked to (K, M) in rank order, over the world group",
    hazards=(
        "B differs from rank to rank: splitting the product over the ranks is wrong.",
        "Products on TF32 units or split sums in bf16 miss the tolerance.",
    ),
)
