"""LayerNorm weight and bias gradients, summed over data-parallel ranks.

Legend: B rows of one rank, H hidden features, W ranks, q a rank.

    d_gamma[h] = sum over q, b of dY_q[b, h] * X_hat_q[b, h]
    d_beta[h]  = sum over q, b of dY_q[b, h]                               X_hat, dY (B, H), d_gamma, d_beta (H)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import all_reduce_cost, element_size
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """X_hat standard normal; dY normal times 1/2 to 3/2 for each column, scaled so that both sums are of order one.

    "exact": both from {-1, 0, 1}, with at most 256 rows of all ranks in which dY is not zero.
    """
    W, shape = case.world_size, (case["B"], case["H"])
    column = 0.5 + rng.uniform(None, (1, case["H"]))
    scale = {"small": 1e-3, "large": 1e3}.get(case.draw, 1.0)
    ranks: list[Args] = []
    for r in range(W):
        if case.draw == "exact":
            x_hat, dy = (rng.integers(r, -1, 1, shape).float() for _ in range(2))
            dy = dy * (rng.uniform(r, shape[:1]).argsort() < 256 // W)[:, None]
        else:
            x_hat = rng.normal(r, shape)
            dy = rng.normal(r, shape, std=0.5 * (W * shape[0]) ** -0.5) * column * scale
        if case.draw == "mixed":
            x_hat = x_hat * 10.0 ** rng.integers(r, -2, 2, (shape[0], 1))
        ranks.append({"X_hat": x_hat.to(case.dtype), "dY": dy.to(case.dtype)})
    return ranks


def solution(X_hat: torch.Tensor, dY: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    d_beta = dY.sum(dim=0)
    dist.all_reduce(d_beta, op=dist.ReduceOp.SUM)
    d_gamma = (dY * X_hat).sum(dim=0)
    dist.all_reduce(d_gamma, op=dist.ReduceOp.SUM)
    return d_gamma, d_beta


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()
    dy = torch.cat([wide(a["dY"]) for a in args])
    x_hat = torch.cat([wide(a["X_hat"]) for a in args])
    gradients = torch.einsum("bh,bh->h", dy, x_hat), dy.sum(dim=0)
    return [Expected(tuple(Leaf(gradient, case.dtype, rule) for gradient in gradients)) for _ in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """3 B H flops (product and two additions); inputs and both gradients once; an all-reduce of 2 H elements."""
    rows, hidden, e = case["B"], case["H"], element_size(case.dtype)
    hbm = float((2 * rows * hidden + 2 * hidden) * e)
    return all_reduce_cost(case.world_size, 2.0 * hidden * e, flops={"fp32": 3.0 * rows * hidden}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("B", "H"))


PROBLEM = Problem(
    id=9,
    slug="layernorm_backward",
    title="LayerNorm weight and bias gradients, summed over data-parallel ranks",
    type="data",
    also=("collective",),
    domain="llm_training",
    stage="backward",
    origin="backward of LayerNorm's affine part under data parallelism",
    difficulty=2,
    statement=(
        "Every rank holds normalised activations `X_hat` (B, H) and output gradients `dY` (B, H) of its own rows. The "
        "result on every rank is the pair (d_gamma, d_beta), in this order, each (H) in the dtype of the inputs: the "
        "sums over all rows of all ranks of dY·X_hat and of dY. Column sums accumulate in float32."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 1024, "H": 1024},
    cpu_sizes={"B": 256, "H": 512},
    check_sizes={"B": 48, "H": 600},
    hidden_sizes=hidden_sizes,
    hidden_property="B and H are odd, so no row is a multiple of 16 bytes",
    linear=("dY",),
    draws={
        "exact": "stress: entries from {-1, 0, 1}, every partial sum is exact: compared bit for bit",
        "small": "stress: dY scaled by 1e-3",
        "large": "stress: dY scaled by 1e3",
        "mixed": "stress: rows of X_hat with amplitudes from 1e-2 to 1e2",
    },
    communication="all_reduce SUM of d_beta, (H,)\nall_reduce SUM of d_gamma, (H,), over the world group",
    hazards=(
        "The gradients come back as (d_gamma, d_beta).",
        "One all-reduce of 2 H elements is enough; it is bound by latency.",
        "bf16 sums rounded on every rank lose precision; fp32 accumulation is welcome.",
    ),
    # Most gradients of that scale are subnormal in fp16.
    skip_draw=lambda case: case.draw == "small" and case.dtype == torch.float16,
    permutable=True,
    tolerances=calibrated(bf16=1.34e-2, fp16=2e-3),
)
