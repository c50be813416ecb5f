"""GEMM, then all-reduce of the product: the row-parallel linear layer.

Legend: M rows, N columns, K inner dimension of one rank, W ranks, q a rank.

    out = sum over q of A_q @ B_q                                    A_q (M, K), B_q (K, N), out (M, N)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import all_reduce_cost, dtype_name, element_size
from problems.suite.draws import scaled_normal
from problems.suite.shapes import jitter

K = 512


def inputs(case: Case, rng: Rng) -> list[Args]:
    """A standard normal, B scaled so that outputs have a standard deviation of 0.5 at every world size."""
    if case.draw == "exact":
        return [_exact(case, rng, rank) for rank in range(case.world_size)]
    ranks: list[Args] = []
    for rank in range(case.world_size):
        a = scaled_normal(rng, rank, (case["M"], K), case.draw)
        b = rng.normal(rank, (K, case["N"]), std=0.5 / (K * case.world_size) ** 0.5)
        ranks.append({"A_local": a.to(case.dtype), "B_local": b.to(case.dtype)})
    return ranks


def _exact(case: Case, rng: Rng, rank: int) -> Args:
    """Entries in {-1, 0, 1}, at most 32 / W non-zeros per row of A: every partial sum is an integer below 256."""
    a = torch.zeros(case["M"], K)
    picks = rng.integers(rank, 0, K - 1, (case["M"], max(1, 32 // case.world_size)))
    a.scatter_(1, picks, 2.0 * rng.integers(rank, 0, 1, picks.shape).float() - 1.0)
    b = rng.integers(rank, -1, 1, (K, case["N"])).float()
    return {"A_local": a.to(case.dtype), "B_local": b.to(case.dtype)}


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    C = torch.matmul(A_local, B_local)  # (M, N), this rank's partial product
    dist.all_reduce(C, op=dist.ReduceOp.SUM)
    return C


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    total = torch.stack([wide(a["A_local"]) @ wide(a["B_local"]) for a in args]).sum(0)
    rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()
    return [Expected(Leaf(total, case.dtype, rule)) for _ in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 M N K flops; operands and result once; an all-reduce of M N elements."""
    m, n, e = case["M"], case["N"], element_size(case.dtype)
    return all_reduce_cost(
        case.world_size,
        m * n * e,
        flops={dtype_name(case.dtype): 2.0 * m * n * K},
        hbm=float((m * K + K * n + m * n) * e),
    )


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("N",))


PROBLEM = Problem(
    id=13,
    slug="gemm_allreduce",
    title="GEMM, then all-reduce of the product",
    type="tensor",
    also=("collective",),
    domain="llm_training",
    stage="forward",
    origin="row-parallel linear layer",
    difficulty=2,
    statement=(
        "Every rank multiplies its own `A_local` (M, K) by its own `B_local` (K, N), K = 512 on each rank. The result "
        "on every rank is the sum of the products over all ranks of the world group, in the dtype of the inputs."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 256, "N": 256},
    check_sizes={"M": 16, "N": 24},
    hidden_sizes=hidden_sizes,
    hidden_property="N is odd, so no row is a multiple of 16 bytes",
    linear=("A_local",),
    draws={
        "exact": "stress: small integers, every partial sum is exact: compared bit for bit",
        "small": "stress: A scaled by 1e-3",
        "large": "stress: A scaled by 1e3",
        "mixed": "stress: rows of A with amplitudes from 1e-2 to 1e2",
    },
    communication="all_reduce SUM of (M, N) over the world group",
    hazards=(
        "bf16 partial products rounded before the sum lose precision; fp32 accumulation is welcome.",
        "Inputs must keep their values.",
    ),
    permutable=True,
    tolerances=calibrated(bf16=1.27e-2, fp16=2e-3),
)
