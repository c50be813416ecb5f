"""Gradient reduce-scatter with an fp8 (E4M3) round trip and a delayed scale on every rank.

Legend: P elements of a shard, W ranks, q and r ranks, x_q (W P,) gradients, h_q (16,) history of largest magnitudes.

    h'_q = h_q[1], ..., h_q[15], bf16(max |x_q|)                               (16,), bf16
    scale_q = max(largest of h'_q, 1e-12) / 448                                float32
    out_r[i] = 1/W * sum over q of fp8(x_q[r P + i] / scale_q) * scale_q       out_r (P,)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng, calibrated
from problems.suite.costs import element_size, reduce_scatter_cost
from problems.suite.families.fp8_scaling import DELAYED_DRAWS, delayed, fp8_round_trip, true_history, true_round_trip
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    ranks: list[Args] = []
    for r in range(case.world_size):
        gradients, history = delayed(case, rng, r, case.world_size * case["P"])
        ranks.append({"flat_grads": gradients, "amax_history": history})
    return ranks


@torch.no_grad()
def solution(flat_grads: Tensor, amax_history: Tensor) -> tuple[Tensor, Tensor]:
    W = dist.get_world_size()
    restored, updated_hist = fp8_round_trip(flat_grads, amax_history)
    out_shard = restored.new_empty(restored.numel() // W)
    dist.reduce_scatter_tensor(out_shard, restored, op=dist.ReduceOp.SUM)
    return out_shard / W, updated_hist


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    W = len(args)
    mean = torch.stack([true_round_trip(a["flat_grads"], a["amax_history"]) for a in args]).mean(dim=0)
    return [
        Expected(
            (Leaf(own, case.dtype), Leaf(true_history(a["flat_grads"], a["amax_history"]), torch.bfloat16, Exact()))
        )
        for own, a in zip(mean.view(W, -1), args, strict=True)
    ]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """Per gradient: magnitude, maximum, division, rounding, product, rounding, addition; each byte once.

    Link: codes of one byte per element go to the rank that adds them, with one bf16 number that gives the scale.
    """
    W, n, e = case.world_size, args[0]["flat_grads"].numel(), element_size(case.dtype)
    P = n // W
    return reduce_scatter_cost(W, W * (P + 2), flops={"fp32": 7.0 * n}, hbm=float(n * e + P * e + 64))


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("P",))


PROBLEM = Problem(
    id=52,
    slug="fp8_reduce_scatter_grads",
    title="Gradient reduce-scatter with per-rank fp8 (e4m3) round trip and delayed amax history",
    type="sharded_data",
    also=("collective", "data"),
    domain="llm_training",
    stage="communication",
    origin="fp8 gradient communication in the style of Transformer Engine's delayed scaling",
    difficulty=2,
    statement=(
        "Every rank holds gradients `flat_grads` (W·P,) in the run dtype and `amax_history` (16,) in bf16, oldest "
        "entry first; histories differ from rank to rank. The new history drops the oldest entry and appends the "
        "largest magnitude of the gradients, rounded to bf16. The rank's scale is the largest entry of the new "
        "history (at least 1e-12), as float32, divided by 448. Every element is divided by the scale in float32, "
        "rounded to float8 E4M3 (nearest, ties to even) and multiplied by the scale. The result on rank r is the "
        "tuple of the mean over the ranks of the restored elements r·P to (r+1)·P - 1, (P,) in the run dtype, and the "
        "rank's own new history, (16,) in bf16, exact. The inputs keep their values. The reference rounds restored "
        "values to the run dtype and adds them in a reduce-scatter; sending codes and adding in float32 is welcome."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"P": 1 << 20},
    cpu_sizes={"P": 1 << 14},
    check_sizes={"P": 1200},
    hidden_sizes=hidden_sizes,
    hidden_property="P is odd, so no shard is a multiple of 16 bytes",
    draws=DELAYED_DRAWS,
    local_outputs=("output.1",),
    communication="reduce_scatter SUM of the restored gradients, (W P,) -> (P,), in the run dtype",
    hazards=(
        "The scale depends on the history too: on some ranks the largest entry is an old one, and the oldest must go.",
        "Scales differ from rank to rank, so codes cannot be added.",
        "One code further is 6 to 12 percent of an element: leaving out the round trip is well beyond the tolerance.",
        "The history stays bf16 whatever the run dtype, and its rounded entry decides the scale.",
        "The largest magnitude of all gradients must be known before the first code.",
    ),
    tolerances=calibrated(bf16=1.5e-2, fp16=4e-3),
)
