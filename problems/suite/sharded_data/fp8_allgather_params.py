"""Parameter all-gather with an fp8 (E4M3) round trip and a delayed scale on every rank.

Legend: P elements of a shard, W ranks, s a rank, x_s (P,) its shard, h_s (16,) its history of largest magnitudes.

    h'_s = h_s[1], ..., h_s[15], bf16(max |x_s|)                               (16,), bf16
    scale_s = max(largest of h'_s, 1e-12) / 448                                float32
    full[s P + i] = fp8(x_s[i] / scale_s) * scale_s                            full (W P,)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng, wide
from problems.suite.costs import all_gather_cost, element_size
from problems.suite.families.fp8_scaling import DELAYED_DRAWS, delayed, fp8_round_trip, true_history, true_round_trip
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    ranks: list[Args] = []
    for r in range(case.world_size):
        shard, history = delayed(case, rng, r, case["P"])
        ranks.append({"flat_param_shard": shard, "amax_history": history})
    return ranks


@torch.no_grad()
def solution(flat_param_shard: Tensor, amax_history: Tensor) -> tuple[Tensor, Tensor]:
    restored, updated_hist = fp8_round_trip(flat_param_shard, amax_history)
    full = restored.new_empty(dist.get_world_size() * restored.numel())
    dist.all_gather_into_tensor(full, restored)
    return full, updated_hist


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    # The product is rounded to float32 and then to the run dtype.
    restored = [true_round_trip(a["flat_param_shard"], a["amax_history"]).to(torch.float32) for a in args]
    full = Leaf(wide(torch.cat(restored)), case.dtype, Exact(signed_zeros=False))
    return [
        Expected((full, Leaf(true_history(a["flat_param_shard"], a["amax_history"]), torch.bfloat16, Exact())))
        for a in args
    ]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """Per element: magnitude, maximum, division, rounding, product, rounding; shard read, result written.

    Link: an all-gather of one byte per element and of one bf16 number per rank, from which the scale follows.
    """
    W, P, e = case.world_size, args[0]["flat_param_shard"].numel(), element_size(case.dtype)
    return all_gather_cost(W, W * (P + 2), flops={"fp32": 6.0 * P}, hbm=float(P * e + W * P * e + 64))


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("P",))


PROBLEM = Problem(
    id=53,
    slug="fp8_allgather_params",
    title="Parameter all-gather with per-rank fp8 (e4m3) round trip and delayed amax history",
    type="sharded_data",
    also=("collective",),
    domain="llm_training",
    stage="communication",
    origin="fp8 parameter all-gather in the style of Transformer Engine's delayed scaling",
    difficulty=2,
    statement=(
        "Every rank holds a parameter shard `flat_param_shard` (P,) in the run dtype and `amax_history` (16,) in bf16, "
        "oldest entry first; histories differ from rank to rank. The new history drops the oldest entry and appends "
        "the largest magnitude of the shard, rounded to bf16. The rank's scale is the largest entry of the new history "
        "(at least 1e-12), as float32, divided by 448. Every element is divided by the scale in float32, rounded to "
        "float8 E4M3 (nearest, ties to even), multiplied by the scale in float32 and rounded to the run dtype. The "
        "result on every rank is the tuple of the restored shards of all ranks in rank order, (W·P,), and the rank's "
        "own new history, (16,) in bf16, both exact. The inputs keep their values. The reference gathers restored "
        "values; one byte per element and the scales determine them."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"P": 1 << 20},
    cpu_sizes={"P": 1 << 16},
    check_sizes={"P": 1200},
    hidden_sizes=hidden_sizes,
    hidden_property="P is odd, so no shard is a multiple of 16 bytes",
    draws=DELAYED_DRAWS,
    local_outputs=("output.1",),
    communication="all_gather of the restored shards, (P,) -> (W P,), in the run dtype",
    hazards=(
        "The scale depends on the history too: on some ranks the largest entry is an old one, and the oldest must go.",
        "Scales differ from rank to rank.",
        "The history stays bf16 whatever the run dtype, and its rounded entry decides the scale.",
        "The largest magnitude of the whole shard must be known before the first code.",
    ),
)
