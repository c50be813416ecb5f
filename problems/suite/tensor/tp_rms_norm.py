"""RMSNorm over a hidden axis that is sharded over the ranks.

Legend: M tokens, N hidden features of one rank, W ranks, q a rank, eps the variance epsilon.

    var[i] = sum over q, j of x_q[i, j]² / (W N), in float32
    out[i, j] = w[j] * (x[i, j] / sqrt(var[i] + eps))                                x, out (M, N), w (N)
    x = the rank's local_hidden_states, w its local_weight
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import all_reduce_cost, element_size
from problems.suite.shapes import jitter

EPSILON = 1e-5


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Normal features times 1/4 to 4 for each row and rank, so that the variance over all ranks is not the own one.

    "small_rows": a quarter of the tokens is zero, a quarter so small that epsilon decides.
    """
    W, M, N = case.world_size, case["M"], case["N"]
    scale = {"large": 1e3, "small": 1e-3}.get(case.draw, 1.0)
    tokens = torch.ones(M, 1)
    if case.draw == "small_rows":
        tokens[::4], tokens[1::4] = 0.0, 1e-3
    ranks: list[Args] = []
    for r in range(W):
        x = rng.normal(r, (M, N)) * 2.0 ** rng.integers(r, -2, 2, (M, 1)) * tokens * scale
        weight = 1.0 + 0.5 * rng.normal(r, (N,))
        ranks.append(
            {
                "local_hidden_states": x.to(case.dtype),
                "local_weight": weight.to(case.dtype),
                "variance_epsilon": 0.1 if case.draw == "epsilon" else EPSILON,
            }
        )
    return ranks


def solution(local_hidden_states: torch.Tensor, local_weight: torch.Tensor, variance_epsilon: float) -> torch.Tensor:
    x = local_hidden_states.to(torch.float32)
    squares = x.pow(2).sum(dim=-1, keepdim=True)  # (M, 1)
    dist.all_reduce(squares, op=dist.ReduceOp.SUM)
    variance = squares / (x.shape[-1] * dist.get_world_size())
    normalised = (x * torch.rsqrt(variance + variance_epsilon)).to(local_hidden_states.dtype)
    return local_weight * normalised


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    hidden = torch.cat([wide(a["local_hidden_states"]) for a in args], dim=1)
    scale = (hidden.square().mean(dim=1, keepdim=True) + args[0]["variance_epsilon"]).sqrt()
    normalised = (hidden / scale).chunk(len(args), dim=1)
    # Row by row: where the own share of a row is large, it hides what the other ranks add to its variance.
    leaves = (
        Leaf(own * wide(a["local_weight"]), case.dtype, Close(axis=0)) for own, a in zip(normalised, args, strict=True)
    )
    return [Expected(leaf) for leaf in leaves]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """4 M N flops (square, add, two products); features, weight and result once; an all-reduce of M fp32 numbers."""
    m, n, e = case["M"], case["N"], element_size(case.dtype)
    return all_reduce_cost(case.world_size, 4.0 * m, flops={"fp32": 4.0 * m * n}, hbm=float((2 * m * n + n) * e))


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=18,
    slug="tp_rms_norm",
    title="RMSNorm over a hidden axis sharded over the ranks",
    type="tensor",
    also=("collective",),
    domain="llm_inference",
    stage="forward",
    origin="RMSNorm as in Hugging Face LlamaRMSNorm, its square sum reduced over tensor-parallel ranks",
    difficulty=2,
    statement=(
        "The hidden axis is split over the ranks: `local_hidden_states` (M, N) holds the rank's N of W·N features of M "
        "tokens, `local_weight` (N) their weights. For every token the mean square over all W·N features is formed in "
        "float32; the result on a rank is its features divided by the root of that mean plus `variance_epsilon`, times "
        "its weights, (M, N) in the dtype of the features."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 256, "N": 512},
    check_sizes={"M": 24, "N": 40},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so no row is a multiple of 16 bytes",
    linear=("local_weight",),
    draws={
        "small_rows": "structured: tokens that are zero, and tokens so small that epsilon decides",
        "epsilon": "structured: an epsilon of 0.1",
        "small": "stress: features scaled by 1e-3",
        "large": "stress: features scaled by 1e3, whose squares overflow in half precision",
    },
    communication="all_reduce SUM of the square sums, (M, 1) in float32, over the world group",
    hazards=(
        "The mean square is over the features of all ranks, not the own ones.",
        "The exchange is tiny, so its latency counts; rows can be held on chip across it.",
        "bf16 is rounded after the norm and after the weight; one rounding at the end is welcome.",
    ),
    permutable=True,
    tolerances=calibrated(bf16=1.25e-2, fp16=2.5e-3),
)
