"""SigLIP contrastive loss: every rank's images against the texts of all ranks, which travel round a ring both ways.

Legend: B pairs of one rank, D feature width, W ranks, r the own rank, q a rank, i an image, j a text.

    z_q[i, j] = logit_scale * image_features_r[i] . text_features_q[j] + logit_bias                           (B, B)
    y_q[i, j] = 1 if q = r and i = j, else -1
    loss = sum over q, i, j of -log(sigmoid(y_q[i, j] * z_q[i, j])) / B                                       one number
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import List, Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import all_gather_cost, element_size, flops_of
from problems.suite.golden import sin_rule
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Unit features that all lean to one direction, by an amount of the rank's own, so that all blocks count.

    Logits of unrelated pairs then have a mean of 1 to 4 that differs from block to block, and a missing block changes
    the loss by a tenth of it or more. With the published features and bias of -10 the other ranks' blocks contribute a
    thousandth of a loss of about 10. "unrelated": features without common direction; "bias": a positive bias.
    """
    W, B, D = case.world_size, case["B"], case["D"]
    group = even_and_odd(W) if case.draw == "subgroups" else None
    common = F.normalize(rng.normal(None, (1, D)), dim=1)
    ranks: list[Args] = []
    for r in range(W):
        own = F.normalize(rng.normal(r, (B, D)), dim=1)
        other = F.normalize(rng.normal(r, (B, D)) / D**0.5 + 0.5 * own, dim=1)
        lean = 0.0 if case.draw == "unrelated" else 0.4 + 0.9 * rng.uniform(r, (2,))
        image, text = (
            F.normalize(x + a * common, dim=1) for x, a in zip((own, other), lean * torch.ones(2), strict=True)
        )
        ranks.append(
            {
                "image_features": image.to(case.dtype),
                "text_features": text.to(case.dtype),
                "logit_scale": 10.0,
                "logit_bias": 0.5 if case.draw == "bias" else -1.0,
                "group": group,
            }
        )
    return ranks


def block_loss(images: torch.Tensor, texts: torch.Tensor, scale: float, bias: float, own: bool) -> torch.Tensor:
    """Loss of one block of pairs; on the diagonal of the own block stand the true pairs."""
    logits = (scale * images) @ texts.t() + bias
    signs = -torch.ones_like(logits)
    if own:
        signs.fill_diagonal_(1.0)
    return -F.logsigmoid(signs * logits).sum() / len(images)


def swap(
    sends: List[torch.Tensor], to: List[int], sources: List[int], group: Optional[dist.ProcessGroup]
) -> List[torch.Tensor]:
    """Sends each tensor to the rank beside it in ``to`` and receives one from each of ``sources``, all at once."""
    received = [torch.empty_like(x) for x in sends]
    outgoing = [dist.P2POp(dist.isend, x, group=group, group_peer=q) for x, q in zip(sends, to, strict=True)]
    incoming = [dist.P2POp(dist.irecv, x, group=group, group_peer=q) for x, q in zip(received, sources, strict=True)]
    for work in dist.batch_isend_irecv(outgoing + incoming):
        work.wait()
    return received


def solution(
    image_features: torch.Tensor,
    text_features: torch.Tensor,
    logit_scale: float,
    logit_bias: float = 0.0,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    W, r = dist.get_world_size(group), dist.get_rank(group)
    left, right = (r - 1) % W, (r + 1) % W
    loss = block_loss(image_features, text_features, logit_scale, logit_bias, own=True)
    from_right = from_left = text_features.contiguous()
    for _ in range((W - 1) // 2):
        from_right, from_left = swap([from_right, from_left], [left, right], [right, left], group)
        for texts in (from_right, from_left):
            loss = loss + block_loss(image_features, texts, logit_scale, logit_bias, own=False)
    if W % 2 == 0:
        (from_left,) = swap([from_left], [right], [left], group)
        loss = loss + block_loss(image_features, from_left, logit_scale, logit_bias, own=False)
    return loss


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def losses(members: list[Args]) -> list[Expected]:
        texts = torch.cat([wide(a["text_features"]) for a in members])
        expected = []
        for r, a in enumerate(members):
            images, B = wide(a["image_features"]), len(a["image_features"])
            z = a["logit_scale"] * (images @ texts.t()) + a["logit_bias"]
            true = torch.zeros_like(z)
            true[:, r * B : (r + 1) * B] = torch.eye(B)
            # -log sigmoid(z) = softplus(-z), and for wrong pairs softplus(z) = softplus(-z) + z.
            total = (F.softplus(-z) + (1.0 - true) * z).sum()
            expected.append(Expected(Leaf(total / B, case.dtype)))
        return expected

    return by_group(args, losses)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 B B D W flops for the logits; texts of all ranks and the own images read; an all-gather of the texts."""

    def costs(members: list[Args]) -> list[RankCost]:
        W, e, (B, D) = len(members), element_size(case.dtype), members[0]["text_features"].shape
        flops = flops_of(case.dtype, products=2.0 * B * B * D * W, elementwise=4.0 * B * B * W)
        return all_gather_cost(W, W * B * D * e, flops=flops, hbm=float((W + 1) * B * D * e + e))

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("B", "D"))


def golden_inputs(name: str, world_size: int) -> list[Args]:
    """Three pairs of width 16; texts follow the closed rule with twice the rank; rows normalised in fp32."""
    ranks: list[Args] = []
    for r in range(world_size):
        image, text = sin_rule([3, 16], rank=r, k=0), sin_rule([3, 16], rank=2 * r, k=1)
        ranks.append(
            {
                "image_features": F.normalize(image, dim=1),
                "text_features": F.normalize(text, dim=1),
                "logit_scale": 10.0,
                "logit_bias": -1.0,
                "group": None,
            }
        )
    return ranks


_SCALAR = (
    "The loss is one number, a mean over B rows of sums: roundings of the features average out, and the number itself "
    "is exact in scaled fp8, so no tolerance tells these from the honest error of a few roundings."
)

PROBLEM = Problem(
    id=58,
    slug="openclip_contrastive_loss",
    title="SigLIP contrastive loss with a bidirectional ring exchange of text features",
    type="data",
    also=("context",),
    domain="multimodal",
    stage="loss",
    origin="mlfoundations open_clip: SigLipLoss with neighbour_exchange_bidir",
    difficulty=3,
    statement=(
        "Every rank holds B image and B text features of width D, normalised. The result on a rank is the sigmoid "
        "contrastive loss of its own images against the texts of **all** ranks: with logits logit_scale·(image·text) + "
        "logit_bias, the sum of -log sigmoid(y·logit) over all pairs divided by B, where y is +1 for image and text of "
        "the same place on the own rank and -1 for all other pairs. It is a 0-dimensional tensor in the dtype of the "
        "features, differs from rank to rank and is not averaged over ranks. No gradient is recorded. `group` None "
        "means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 256, "D": 1024},
    cpu_sizes={"B": 64, "D": 128},
    check_sizes={"B": 32, "D": 48},
    hidden_sizes=hidden_sizes,
    hidden_property="B and D are odd, so no row is a multiple of 16 bytes",
    draws={
        "unrelated": "structured: features without a common direction",
        "bias": "structured: a positive bias",
        "subgroups": "structured: two losses, one over the even ranks and one over the odd ranks",
    },
    skip_draw=lacks_subgroups,
    golden_inputs=golden_inputs,
    communication=(
        "(W - 1) // 2 exchanges with both neighbours, isend and irecv of (B, D) each\n"
        "one more to the right neighbour where W is even"
    ),
    hazards=(
        "Every other rank counts exactly once: with an even number of ranks the last block comes from one side only.",
        "In bf16 the result has eight bits.",
        "The loss is not averaged over the ranks.",
    ),
    tolerances=calibrated(bf16=8.5e-3, fp16=1.2e-3, fp32=1e-6),
    waivers={
        f"{row}/{dtype}": _SCALAR
        for row in ("lower_precision", "narrow_inputs", "narrow_outputs")
        for dtype in ("bf16", "fp16")
    },
)
