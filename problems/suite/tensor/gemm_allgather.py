"""GEMM on column shards, then all-gather of the product.

Legend: M rows, N columns, K inner dimension, W ranks, q a rank; B_q has N_l = N // W columns.

    out = [A_0 @ B_0, A_1 @ B_1, ...]                            A_q (M, K), B_q (K, N_l), out (M, W N_l)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem, RankCost, Rng, wide
from problems.suite.costs import all_gather_cost, dtype_name, element_size
from problems.suite.draws import scaled_normal
from problems.suite.families.sharded_gemm import signs, sparse_signs
from problems.suite.shapes import jitter

K = 512


def inputs(case: Case, rng: Rng) -> list[Args]:
    """A standard normal, B scaled so that outputs have standard deviation 1; both different on every rank."""
    W, M = case.world_size, case["M"]
    columns = case["N"] // W
    ranks: list[Args] = []
    for r in range(W):
        if case.draw == "exact":
            a, b = sparse_signs(rng, r, (M, K), nonzeros=32), signs(rng, r, (K, columns))
        else:
            a, b = scaled_normal(rng, r, (M, K), case.draw), rng.normal(r, (K, columns), std=K**-0.5)
        ranks.append({"A": a.to(case.dtype), "B": b.to(case.dtype)})
    return ranks


def solution(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    C = torch.matmul(A, B)  # (M, N // W)
    blocks = [torch.empty_like(C) for _ in range(dist.get_world_size())]
    dist.all_gather(blocks, C)
    return torch.cat(blocks, dim=1)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()
    out = torch.cat([wide(a["A"]) @ wide(a["B"]) for a in args], dim=1)
    return [Expected(Leaf(out, case.dtype, rule)) for _ in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 M N_l K flops; own operands and the whole result once; an all-gather of M W N_l elements."""
    W, m, n, e = case.world_size, case["M"], case["N"] // case.world_size, element_size(case.dtype)
    hbm = float((m * K + K * n + m * W * n) * e)
    return all_gather_cost(W, m * W * n * e, flops={dtype_name(case.dtype): 2.0 * m * n * K}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if sizes["N"] >= world_size:
        return ""
    return f"Every rank needs a column: N = {sizes['N']} is less than {world_size}."


PROBLEM = Problem(
    id=14,
    slug="gemm_allgather",
    title="GEMM on column shards, then all-gather of the product",
    type="tensor",
    also=("collective",),
    domain="llm_training",
    stage="forward",
    origin="column-parallel linear layer with gathered output",
    difficulty=2,
    statement=(
        "Every rank multiplies its own `A` (M, K) by its own `B` (K, N_l), K = 512, N_l = N // W, accumulated in "
        "float32. The result on every rank is (M, W·N_l) in the dtype of the inputs: the ranks' products side by side "
        "in rank order. The ranks' A differ, so columns q·N_l to (q+1)·N_l - 1 need the A of rank q."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 192, "N": 256},
    check_sizes={"M": 24, "N": 40},
    hidden_sizes=hidden_sizes,
    hidden_property="M is odd and N was odd before its remainder by the world size was dropped",
    linear=("A",),
    draws={
        "exact": "stress: small integers, every partial sum is exact: compared bit for bit",
        "small": "stress: A scaled by 1e-3",
        "large": "stress: A scaled by 1e3",
        "mixed": "stress: rows of A with amplitudes from 1e-2 to 1e2",
    },
    world_size_rule=world_size_rule,
    communication="all_gather of (M, N/W), concatenated along columns in rank order, over the world group",
    hazards=(
        "A differs from rank to rank: gathering B and multiplying it by the own A is wrong.",
        "Blocks arrive one below the other and belong side by side.",
        "Products on TF32 units miss the tolerance.",
    ),
)
