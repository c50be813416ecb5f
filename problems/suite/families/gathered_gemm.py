"""All-gather of column-sharded activations followed by a GEMM with the own matrix: problems 11 and 12.

Legend: M rows, N columns, K inner dimension, W ranks, q a rank; A_q has K/W columns, B_r is the own matrix.

    out_r = [A_0, A_1, ...] @ B_r                                          A_q (M, K/W), B_r (K, N), out (M, N)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, RankCost, Rng, wide
from problems.suite.costs import all_gather_cost, dtype_name, element_size
from problems.suite.draws import scaled_normal
from problems.suite.families.sharded_gemm import signs, sparse_signs
from problems.suite.shapes import jitter

K = 512
DRAWS = {
    "same_b": "structured: B is the same on all ranks",
    "exact": "stress: small integers, every partial sum is exact: compared bit for bit",
    "small": "stress: A scaled by 1e-3",
    "large": "stress: A scaled by 1e3",
    "mixed": "stress: rows of A with amplitudes from 1e-2 to 1e2",
}


def inputs(case: Case, rng: Rng) -> list[Args]:
    """A standard normal, B scaled so that outputs have standard deviation 1; both different on every rank.

    "same_b": the replicated B that one would expect.
    """
    W, M, N = case.world_size, case["M"], case["N"]
    shared = rng.normal(None, (K, N), std=K**-0.5) if case.draw == "same_b" else None
    ranks: list[Args] = []
    for r in range(W):
        if case.draw == "exact":
            a = sparse_signs(rng, r, (M, K // W), nonzeros=max(1, 32 // W))
            b = signs(rng, r, (K, N))
        else:
            a = scaled_normal(rng, r, (M, K // W), case.draw)
            b = rng.normal(r, (K, N), std=K**-0.5) if shared is None else shared.clone()
        ranks.append({"A_local": a.to(case.dtype), "B": b.to(case.dtype)})
    return ranks


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()
    A = torch.cat([wide(a["A_local"]) for a in args], dim=1)
    return [Expected(Leaf(A @ wide(a["B"]), case.dtype, rule)) for a in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 M N K flops; own block of A, B and result once; an all-gather of M K elements.

    Every rank needs all of A, because every rank multiplies it by another B.
    """
    W, m, n, e = case.world_size, case["M"], case["N"], element_size(case.dtype)
    hbm = float((m * (K // W) + K * n + m * n) * e)
    return all_gather_cost(W, m * K * e, flops={dtype_name(case.dtype): 2.0 * m * n * K}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if K % world_size == 0:
        return ""
    return f"The world size must divide the inner dimension: {K} mod {world_size} is not 0."
