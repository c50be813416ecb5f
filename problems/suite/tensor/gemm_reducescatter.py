"""GEMM on shards of the inner dimension, then reduce-scatter of the product.

Legend: M rows, N columns, W ranks, q a rank, r the own rank, K_l = 512 // W inner dimension of one rank, M_l = M/W.

    out_r = rows r M_l to (r+1) M_l - 1 of the sum over q of A_q @ B_q        A_q (M, K_l), B_q (K_l, N), out (M_l, N)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.draws import scaled_normal
from problems.suite.families.sharded_gemm import signs, sparse_signs
from problems.suite.shapes import jitter

K = 512


def inputs(case: Case, rng: Rng) -> list[Args]:
    """A standard normal, B scaled so that outputs have a standard deviation of 0.5."""
    W, M, N = case.world_size, case["M"], case["N"]
    inner = K // W
    ranks: list[Args] = []
    for r in range(W):
        if case.draw == "exact":
            a, b = sparse_signs(rng, r, (M, inner), nonzeros=max(1, 32 // W)), signs(rng, r, (inner, N))
        else:
            a, b = scaled_normal(rng, r, (M, inner), case.draw), rng.normal(r, (inner, N), std=0.5 * K**-0.5)
        ranks.append({"A_local": a.to(case.dtype), "B_local": b.to(case.dtype)})
    return ranks


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    partial = torch.matmul(A_local, B_local)  # (M, N), this rank's share of the sum
    out = partial.new_empty((partial.shape[0] // dist.get_world_size(), partial.shape[1]))
    dist.reduce_scatter_tensor(out, partial, op=dist.ReduceOp.SUM)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()
    total = torch.cat([wide(a["A_local"]) for a in args], dim=1) @ torch.cat([wide(a["B_local"]) for a in args])
    return [Expected(Leaf(rows, case.dtype, rule)) for rows in total.chunk(len(args))]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 M N K_l flops; operands and own rows once; the cheaper of two exchanges.

    Either the products are reduce-scattered, (W-1) M_l N elements, or the operands travel: A_q's rows of slice p to
    every p and all of B_q to everyone, (W-1) (M_l K_l + K_l N) elements, for the same flops.

    ``one_way``: in-switch reduction lowers what the first receives to M_l N, multicast what the second sends to
    (W-1) M_l K_l + K_l N. So a mixture, part of K by the one and the rest by the other, may carry least.
    """
    W, n, e = case.world_size, case["N"], element_size(case.dtype)
    m, inner = case["M"] // W, K // W
    reduced = (W - 1.0) * m * n * e
    operands = (W - 1.0) * (m * inner + inner * n) * e
    wire = min(reduced, operands)
    multicast = ((W - 1.0) * m * inner + inner * n) * e
    one_way = min(wire, _least_of_mixtures((reduced, float(m * n * e)), (multicast, operands))) if W > 1 else 0.0
    hbm = float((W * m * inner + inner * n + m * n) * e)
    return [RankCost({dtype_name(case.dtype): 2.0 * W * m * n * inner}, hbm, wire, wire, one_way)] * W


def _least_of_mixtures(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Least of max(sent, received) over all mixtures of two ways, each given by its (sent, received) bytes."""
    share = (first[0] - first[1]) / (first[0] - first[1] + second[1] - second[0]) if first[0] > first[1] else 0.0
    share = min(1.0, max(0.0, share))
    mixed = max((1 - share) * a + share * b for a, b in zip(first, second, strict=True))
    return min(max(first), max(second), mixed)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("N",), multiple={"M": 24})


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if sizes["M"] % world_size == 0:
        return ""
    return f"The world size must divide the rows: {sizes['M']} mod {world_size} is not 0."


PROBLEM = Problem(
    id=16,
    slug="gemm_reducescatter",
    title="GEMM on shards of the inner dimension, then reduce-scatter",
    type="tensor",
    also=("sequence", "collective"),
    domain="llm_training",
    stage="forward",
    origin="row-parallel linear layer with sequence-parallel output",
    difficulty=2,
    statement=(
        "The inner dimension of a product is split over the ranks: `A_local` (M, K_l) holds the rank's columns of A, "
        "`B_local` (K_l, N) its rows of B, K_l = 512 // W. The result on rank r is (M/W, N) in the dtype of the "
        "inputs: rows r·M/W to (r+1)·M/W - 1 of the sum of the ranks' products. The order of summation is free."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 256, "N": 192},
    check_sizes={"M": 32, "N": 40},
    hidden_sizes=hidden_sizes,
    hidden_property="N is odd and M is no power of two, so a rank's rows are no multiple of a tile",
    linear=("A_local",),
    draws={
        "exact": "stress: small integers, every partial sum is exact: compared bit for bit",
        "small": "stress: A scaled by 1e-3",
        "large": "stress: A scaled by 1e3",
        "mixed": "stress: rows of A with amplitudes from 1e-2 to 1e2",
    },
    world_size_rule=world_size_rule,
    communication="reduce_scatter SUM along rows, (M, N) -> (M/W, N), over the world group",
    hazards=(
        "bf16 partial products rounded before the sum lose precision; fp32 accumulation is welcome.",
        "Exchanging operands instead of products sends less at the public shape and sums over all of K at once.",
    ),
    tolerances=calibrated(bf16=1.2e-2, fp16=2e-3),
)
