"""All-gather of object masks and suppression of overlapping ones by IoU, as in the SAM 3 video tracker.

Legend: c_q objects of rank q, n their sum over the W ranks, H x D pixels of a mask, i and j objects, lo last_occluded.

    masks (n, H, D), scores (n,) = those of all ranks in rank order, in float32
    set_i = pixels with masks[i] > 0,   IoU(i, j) = |set_i & set_j| / max(1, |set_i or set_j|)
    for every pair with IoU(i, j) >= iou_threshold: i is suppressed if lo[i] > lo[j] > -1, j if lo[j] > lo[i] > -1
    reverse: i is suppressed if lo[j] > lo[i] and lo[j] > -1, j if lo[i] > lo[j] and lo[i] > -1
    suppressed masks become -10 everywhere; all decisions use the original masks
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import List, Optional, Tuple

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Group, Leaf, Problem, RankCost, Rng
from problems.suite.costs import element_size
from problems.suite.families.uneven_gather import uneven_gather
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups, members
from problems.suite.shapes import jitter

SUPPRESSED = -10.0
ATTEMPTS = 200


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Discs in pairs with IoUs of about 0.8, 0.95 and 0.5, in random order over the ranks, and noise.

    c_q = 1 + (q + shift) mod C. No IoU is within 0.01 of the threshold, and something is suppressed; in the public draw
    it is not the last object of a rank, of whose mask only the signs would count.
    """
    W, C = case.world_size, case["C"]
    shift = int(rng.integers(None, 0, C - 1, ()))
    counts = [1 + (r + shift) % C for r in range(W)]
    if case.draw == "even":
        counts = [C] * W
    elif case.draw == "crowded":
        counts = [1] * (W - 1) + [2 * C]
    group = even_and_odd(W) if case.draw == "subgroups" else None
    ranks: dict[int, Args] = {}
    for part in members(group, W):
        ranks |= zip(part, _scene(case, rng, [counts[r] for r in part], group), strict=True)
    return [ranks[r] for r in range(W)]


def _scene(case: Case, rng: Rng, counts: list[int], group: Group | None) -> list[Args]:
    """Arguments of ranks that gather their objects, redrawn until the margins are kept."""
    n, threshold = sum(counts), 0.4 if case.draw == "low_threshold" else 0.7
    reverse = case.draw == "reverse"
    for _ in range(ATTEMPTS):
        masks = _discs(case, rng, n)
        # Where the smaller value is -1 nobody is suppressed, nor where both are equal.
        occluded = rng.integers(None, -1, 0 if case.draw == "visible" else 5, (n,))
        table = _ious(masks > 0)
        suppressed = _suppressed(table, occluded, threshold, reverse)
        clear = all(abs(iou - threshold) > 0.01 for iou in table.values())
        if clear and (case.draw == "visible" or n < 2 or bool(suppressed.any())):
            break
    else:
        raise ValueError(f"no {n} discs with IoUs away from {threshold} found in {ATTEMPTS} attempts")
    order = torch.argsort(rng.uniform(None, (n,)))
    if case.draw == "normal":
        order = _ending_with_kept(order, suppressed, counts)
    masks, occluded = masks[order], occluded[order]
    scores = rng.normal(None, (n,)).to(case.dtype)
    return [
        {
            "low_res_masks_local": own_masks.clone(),
            "obj_scores_local": own_scores.clone(),
            "num_obj_per_gpu": list(counts),
            "last_occluded": occluded.clone(),
            "iou_threshold": threshold,
            "reverse": reverse,
            "group": group,
        }
        for own_masks, own_scores in zip(masks.split_with_sizes(counts), scores.split_with_sizes(counts), strict=True)
    ]


def _ending_with_kept(order: torch.Tensor, suppressed: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """The order changed such that, as far as they suffice, objects that are kept come last on every rank."""
    kept = [i for i in order.tolist() if not suppressed[i]]
    lasts = kept[: len(counts)]
    rest = [i for i in order.tolist() if i not in lasts]
    lasts += [rest.pop() for _ in range(len(counts) - len(lasts))]
    return torch.tensor([i for count in counts for i in [*(rest.pop() for _ in range(count - 1)), lasts.pop()]])


def _discs(case: Case, rng: Rng, n: int) -> torch.Tensor:
    H, D = case["H"], case["D"]
    size = min(H, D)
    u = rng.uniform(None, (3, n))
    row, column, radius = H * (0.25 + 0.5 * u[0]), D * (0.25 + 0.5 * u[1]), size * (0.12 + 0.11 * u[2])
    # Every odd disc lies within the one before it, smaller by the factor that is their IoU.
    for i in range(1, n, 2):
        row[i], column[i] = row[i - 1], column[i - 1]
        radius[i] = radius[i - 1] * (0.8, 0.95, 0.5)[i // 2 % 3] ** 0.5
    down = torch.arange(H).view(1, H, 1) - row.view(n, 1, 1)
    right = torch.arange(D).view(1, 1, D) - column.view(n, 1, 1)
    level = (radius.view(n, 1, 1) - (down.square() + right.square()).sqrt()) / 8.0
    return (level + rng.normal(None, (n, H, D), std=0.02)).to(case.dtype)


def solution(
    low_res_masks_local: torch.Tensor,
    obj_scores_local: torch.Tensor,
    num_obj_per_gpu: List[int],
    last_occluded: torch.Tensor,
    iou_threshold: float = 0.7,
    reverse: bool = False,
    group: Optional[dist.ProcessGroup] = None,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    expected, found = num_obj_per_gpu[dist.get_rank(group)], low_res_masks_local.shape[0]
    if found != expected or obj_scores_local.shape[0] != expected:
        raise ValueError(f"{found} masks and {obj_scores_local.shape[0]} scores, but {expected} objects were announced")
    masks = gather_uneven(low_res_masks_local.to(torch.float32), num_obj_per_gpu, group)
    scores = gather_uneven(obj_scores_local.to(torch.float32), num_obj_per_gpu, group)
    pixels = (masks > 0).flatten(1).to(torch.float32)
    # Counts of pixels are exact in fp32.
    common = pixels @ pixels.t()
    area = pixels.sum(dim=1)
    union = area.unsqueeze(1) + area.unsqueeze(0) - common
    overlapping = common / union.clamp(min=1.0) >= iou_threshold
    overlapping.fill_diagonal_(False)
    mine, other = last_occluded.unsqueeze(1), last_occluded.unsqueeze(0)
    loses = (mine < other) if reverse else (mine > other)
    to_suppress = (overlapping & loses & (other > -1)).any(dim=1)
    masks = masks.masked_fill(to_suppress.view(-1, 1, 1), -10.0)
    return masks, scores, to_suppress


def gather_uneven(own: torch.Tensor, counts: List[int], group: Optional[dist.ProcessGroup]) -> torch.Tensor:
    """Rows of all ranks in rank order; a broadcast per rank, for their numbers differ."""
    pieces = [own.new_empty((count, *own.shape[1:])) for count in counts]
    pieces[dist.get_rank(group)] = own.contiguous()
    sent = [dist.broadcast(piece, group=group, group_src=s, async_op=True) for s, piece in enumerate(pieces)]
    for work in sent:
        work.wait()
    return torch.cat(pieces)


def _ious(pixels: torch.Tensor) -> dict[tuple[int, int], float]:
    """IoU of every pair of objects, from sets of pixels (n, H, D) bool."""
    flat = pixels.flatten(1).to(torch.float32)
    common = (flat @ flat.t()).to(torch.int64).tolist()  # exact: counts are far below 2^24
    table = {}
    for i, j in combinations(range(len(pixels)), 2):
        union = common[i][i] + common[j][j] - common[i][j]
        table[i, j] = common[i][j] / max(1, union)
    return table


def _suppressed(
    table: Mapping[tuple[int, int], float], occluded: torch.Tensor, threshold: float, reverse: bool
) -> torch.Tensor:
    """Which objects are suppressed, (n,) bool: pair by pair, as the definition reads."""
    out = torch.zeros(len(occluded), dtype=torch.bool)
    lo = occluded.tolist()
    for (i, j), iou in table.items():
        if iou < threshold:
            continue
        for own, other in ((i, j), (j, i)):
            loses = lo[own] < lo[other] if reverse else lo[own] > lo[other]
            out[own] |= loses and lo[other] > -1
    return out


def _decided(part: list[Args]) -> tuple[torch.Tensor, torch.Tensor]:
    """All masks of a group in fp32, and which are suppressed."""
    masks = torch.cat([a["low_res_masks_local"].to(torch.float32) for a in part])
    own = part[0]
    return masks, _suppressed(_ious(masks > 0), own["last_occluded"], own["iou_threshold"], own["reverse"])


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def gathered(part: list[Args]) -> list[Expected]:
        masks, suppressed = _decided(part)
        masks[suppressed] = SUPPRESSED
        scores = torch.cat([a["obj_scores_local"].to(torch.float32) for a in part])
        values = ((masks, torch.float32), (scores, torch.float32), (suppressed, torch.bool))
        return [Expected(tuple(Leaf(value, dtype, Exact()) for value, dtype in values)) for _ in part]

    return by_group(args, gathered)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """A comparison per pixel, and per pair an intersection and a count on words of 32 pixels; masks in, all out.

    Link: scores and masks in the run dtype; of a mask that is suppressed only the signs.
    """
    e = element_size(case.dtype)

    def costs(part: list[Args]) -> list[RankCost]:
        masks, suppressed = _decided(part)
        n, pixels = len(masks), masks[0].numel()
        counts = [len(a["low_res_masks_local"]) for a in part]
        lost = [int(own.sum()) for own in suppressed.split_with_sizes(counts)]
        shares = [(c - s) * pixels * e + s * pixels / 8 + c * e for c, s in zip(counts, lost, strict=True)]
        flops = {"fp32": float(n * pixels) + n * (n - 1) / 2 * pixels / 32 * 2}
        written = n * (4 * pixels + 4 + 1)
        return [
            RankCost(flops, float(c * (pixels + 1) * e + 8 * n + written), link.sent, link.received, link.floor)
            for c, link in zip(counts, uneven_gather(shares), strict=True)
        ]

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("H", "D"), keep=("C",))


PROBLEM = Problem(
    id=81,
    slug="sam3_allgather_iou_suppression",
    title="All-gather of object masks and IoU-based suppression (SAM 3 video tracking)",
    type="data",
    also=("collective",),
    domain="vision",
    stage="forward",
    origin="Meta SAM 3 video tracker, suppression of overlapping masks across GPUs",
    difficulty=2,
    statement=(
        "Rank q holds `low_res_masks_local` (c_q, H, D) and `obj_scores_local` (c_q,) in the run dtype; "
        "`num_obj_per_gpu` lists all c_q, which differ from rank to rank, and a rank whose counts disagree with it "
        "raises ValueError. Gather masks and scores of all ranks in rank order as float32, exact copies; n is the sum "
        "of the c_q. A pixel belongs to a mask where its value is positive; the IoU of two objects is the number of "
        "common pixels over the number in either (at least 1). For every pair with an IoU of at least `iou_threshold`, "
        "the object with the larger `last_occluded` (n,), int64, the same on all ranks, is suppressed if the smaller "
        "one is above -1; with `reverse`, the object with the smaller one is suppressed if the larger one is above -1. "
        "Equal values suppress neither. All decisions use the original masks. The result on every rank is the tuple of "
        "the masks (n, H, D), suppressed ones filled with -10, the scores (n,), unchanged, and the booleans (n,) that "
        "say which are suppressed. `group` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"C": 4, "H": 256, "D": 256},
    cpu_sizes={"C": 4, "H": 96, "D": 96},
    check_sizes={"C": 4, "H": 96, "D": 80},
    hidden_sizes=hidden_sizes,
    hidden_property="H and D are odd, so no mask is a multiple of 16 bytes",
    draws={
        "reverse": "structured: reverse is True",
        "low_threshold": "structured: a threshold of 0.4, more pairs overlap",
        "visible": "structured: last_occluded is such that nothing is suppressed",
        "even": "structured: the same number of objects on every rank",
        "crowded": "structured: one object on every rank but the last, which has many",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
    },
    skip_draw=lacks_subgroups,
    replicated=("last_occluded",),
    communication=(
        "broadcast of every rank's masks (c_q, H, D) in float32, that is an all_gather of uneven sizes\n"
        "broadcast of every rank's scores (c_q,) in float32"
    ),
    hazards=(
        "Numbers of objects differ from rank to rank.",
        "Outputs are float32 whatever the run dtype; sending the run dtype and widening on arrival is exact.",
        "With reverse both the comparison and the value that is tested against -1 change.",
        "An object that is itself suppressed can still suppress another.",
        "Filling by a boolean index waits for the device; the workload is bound by latency.",
    ),
    waivers=dict.fromkeys(
        ("narrow_outputs/bf16", "narrow_outputs/fp16"),
        "the float32 outputs are copies of 16-bit values, which TF32 holds exactly",
    ),
)
