"""Patch-parallel 2-D convolution: an image cut into strips, with exchange of border rows.

Legend: B batch, C channels, H rows and N columns of one strip, k x k filter, p padding, W ranks, r the own rank.

    strip = the last p rows of rank r - 1, the own rows, the first p rows of rank r + 1 (zeros beyond the image)
    y = convolution of the strip with the own weight, zero padding p in width only, plus the own bias
    x (B, C, H, N), weight (C', C, k, k), bias (C'), y (B, C', (H + 2 p - k) // stride + 1, (N + 2 p - k) // stride + 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem, RankCost, Rng, Tolerance, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.draws import scaled_normal
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Normal values, four times as large in the border rows; weights of 1/sqrt(9 C), own ones on every rank."""
    W, B, C = case.world_size, case["B"], case["C"]
    padding = {"wide": 2, "pointwise": 0}.get(case.draw, 1)
    k = 2 * padding + 1
    shape = (B, C, max(3, case["H"] // max(1, W // 2)), case["N"])
    group = even_and_odd(W) if case.draw == "subgroups" else None
    ranks: list[Args] = []
    for r in range(W):
        if case.draw == "exact":
            x, weight, bias = _exact(rng, r, shape, C)
        else:
            x = scaled_normal(rng, r, shape, case.draw)
            x[:, :, :padding] *= 4.0
            x[:, :, shape[2] - padding :] *= 4.0
            weight = rng.normal(r, (C, C, k, k), std=(k * k * C) ** -0.5)
            bias = rng.normal(r, (C,))
        ranks.append(
            {
                "x": x.to(case.dtype),
                "weight": weight.to(case.dtype),
                "bias": None if case.draw in ("wide", "no_bias") else bias.to(case.dtype),
                "stride": 2 if case.draw == "stride" else 1,
                "padding": padding,
                "group": group,
            }
        )
    return ranks


def _exact(rng: Rng, rank: int, shape: tuple[int, ...], C: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Integers up to 7 and at most 32 weights of +-1 per filter: with the bias every partial sum is below 256."""
    weight = torch.zeros(C, 9 * C)
    picks = rng.integers(rank, 0, 9 * C - 1, (C, 32))
    weight.scatter_(1, picks, 2.0 * rng.integers(rank, 0, 1, picks.shape).float() - 1.0)
    bias = rng.integers(rank, -8, 8, (C,)).float()
    return rng.integers(rank, -7, 7, shape).float(), weight.reshape(C, C, 3, 3), bias


def solution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor],
    stride: int = 1,
    padding: int = 1,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    W, r, p = dist.get_world_size(group), dist.get_rank(group), int(padding)
    if p == 0 or W == 1:
        return F.conv2d(x, weight, bias, stride=stride, padding=padding)
    own = torch.stack((x[:, :, :p], x[:, :, x.shape[2] - p :]))  # (2, B, C, p, N), top and bottom
    borders = own.new_empty((2 * W, *own.shape[1:]))
    dist.all_gather_into_tensor(borders, own, group=group)
    above = borders[2 * r - 1] if r > 0 else torch.zeros_like(own[0])
    below = borders[2 * r + 2] if r < W - 1 else torch.zeros_like(own[0])
    strip = torch.cat((above, x, below), dim=2)
    return F.conv2d(strip, weight, bias, stride=stride, padding=(0, p))


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()

    def convolution(group: list[Args]) -> list[Expected]:
        H, p, stride = group[0]["x"].shape[2], group[0]["padding"], group[0]["stride"]
        image = F.pad(torch.cat([wide(a["x"]) for a in group], dim=2), (p, p, p, p))
        expected = []
        for r, a in enumerate(group):
            strip, weight = image[:, :, r * H : (r + 1) * H + 2 * p], wide(a["weight"])
            rows, columns = ((size - weight.shape[2]) // stride + 1 for size in strip.shape[2:])
            y = torch.zeros(strip.shape[0], weight.shape[0], rows, columns, dtype=torch.float64)
            for i in range(weight.shape[2]):
                for j in range(weight.shape[3]):
                    window = strip[:, :, i : i + stride * rows : stride, j : j + stride * columns : stride]
                    y += torch.einsum("bchn,oc->bohn", window[:, :, :rows, :columns], weight[:, :, i, j])
            if a["bias"] is not None:
                y += wide(a["bias"])[:, None, None]
            expected.append(Expected(Leaf(y, case.dtype, rule)))
        return expected

    return by_group(args, convolution)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 k² C flops for each output; strip, weight, bias and result once; p rows to each neighbour there is.

    The reference gathers the borders of all ranks on every rank, W - 1 times as many bytes.
    """

    def costs(group: list[Args]) -> list[RankCost]:
        W, e, ranks = len(group), element_size(case.dtype), []
        for r, a in enumerate(group):
            x, weight, p, stride = a["x"], a["weight"], a["padding"], a["stride"]
            B, C, H, N = x.shape
            rows, columns = ((size + 2 * p - weight.shape[2]) // stride + 1 for size in (H, N))
            outputs = B * weight.shape[0] * rows * columns
            flops = {dtype_name(case.dtype): 2.0 * outputs * C * weight.shape[2] * weight.shape[3]}
            hbm = float((x.numel() + weight.numel() + weight.shape[0] + outputs) * e)
            wire = float(((r > 0) + (r < W - 1)) * B * C * p * N * e)
            ranks.append(RankCost(flops, hbm, wire, wire))
        return ranks

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("N",), multiple={"C": 8}, keep=("B",)) | {"B": 2}


PROBLEM = Problem(
    id=87,
    slug="conv2d_boundary_exchange",
    title="Patch-parallel conv2d with boundary exchange (DistriFusion)",
    type="spatial",
    also=(),
    domain="vision",
    stage="forward",
    origin="DistriFusion patch-parallel convolution (mit-han-lab/distrifuser), synchronous boundary",
    difficulty=2,
    statement=(
        "An image is cut into horizontal strips, top to bottom in rank order; rank r holds `x` (B, C, H, N). The "
        "result is the convolution (cross-correlation) of the own strip with the own `weight` (C', C, k, k) and `bias` "
        "(C') or None. Above and below the strip stand the `padding` nearest rows of the neighbours' strips, and zeros "
        "beyond the first and the last strip; in width there is zero padding. With `stride` above 1 every strip starts "
        "its own grid at its own first row. Accumulation is in float32; the bias is added before the one rounding. "
        "With `padding` 0, or in a group of one rank, this is a plain convolution. `group` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 1, "C": 1280, "H": 128, "N": 128},
    cpu_sizes={"B": 1, "C": 32, "H": 32, "N": 48},
    check_sizes={"B": 2, "C": 8, "H": 8, "N": 7},
    hidden_sizes=hidden_sizes,
    hidden_property="a batch of two, N odd, and a number of channels that is no power of two",
    linear=("x", "bias"),
    draws={
        "stride": "structured: stride 2",
        "wide": "structured: a 5 x 5 filter with padding 2, no bias",
        "pointwise": "structured: a 1 x 1 filter without padding",
        "no_bias": "structured: no bias",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "exact": "stress: small integers, every partial sum is exact: compared bit for bit",
        "small": "stress: x scaled by 1e-3",
        "large": "stress: x scaled by 1e3",
        "mixed": "stress: rows of x with amplitudes from 1e-2 to 1e2",
    },
    skip_draw=lacks_subgroups,
    reads=lambda rank, peer, world_size: abs(rank - peer) <= 1,
    communication="all_gather of the first and last p rows of every strip, (2, B, C, p, N), over the world group",
    hazards=(
        "Weights and bias differ from rank to rank; each convolves its own strip.",
        "Only neighbours need the border rows; the reference sends them to all ranks.",
        "Convolutions on TF32 units miss the tolerance of fp32 runs.",
    ),
    tolerances={
        torch.float32: Tolerance(units=5e-5, relative=2e-5),
        torch.bfloat16: Tolerance(units=1.6e-2, relative=1.6e-2),
        torch.float16: Tolerance(units=2e-3, relative=2e-3),
    },
)
