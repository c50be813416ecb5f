"""3-D convolution split over input channels, all-reduce of the partial sums.

Legend: C input and output channels, C_l = C/W input channels of a rank, T frames, H rows and columns, q a rank.

    out = sum over q of conv3d(x_q, w_q) + bias, cross-correlation with zero padding
    x (1, C_l, T, H, H), w (C, C_l, 3, 3, 3), bias (C), out (1, C, T', H', H')
    T' = (T + 2 padding - 2 dilation - 1) // stride + 1, H' likewise, with the number of each axis
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Optional, Tuple, Union

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.draws import scaled_normal
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter

KERNEL = 3
# Convolution libraries index with 32 bits: larger tensors are processed in pieces.
LARGEST_TENSOR = 2**31


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal channels, weights scaled so that outputs are standard normal; bias standard normal."""
    W, C, T, H = case.world_size, case["C"], case["T"], case["H"]
    window: Args = {"stride": 1, "padding": 0, "dilation": 1}
    if case.draw == "strided":
        window = {"stride": (2, 1, 2), "padding": (1, 0, 1), "dilation": (1, 1, 2)}
    group = even_and_odd(W) if case.draw == "subgroups" else None
    bias = rng.integers(None, -8, 8, (C,)).float() if case.draw == "exact" else rng.normal(None, (C,))
    ranks: list[Args] = []
    for r in range(W):
        x, weight = _exact(case, rng, r) if case.draw == "exact" else _normal(case, rng, r)
        ranks.append(
            {
                "input": x.reshape(1, C // W, T, H, H).to(case.dtype),
                "weight": weight.reshape(C, C // W, KERNEL, KERNEL, KERNEL).to(case.dtype),
                "bias": None if case.draw == "no_bias" else bias.to(case.dtype),
                **window,
                "groups": 1,
                "group": group,
            }
        )
    return ranks


def _normal(case: Case, rng: Rng, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    C, channels = case["C"], case["C"] // case.world_size
    x = scaled_normal(rng, rank, (channels * case["T"], case["H"] ** 2), case.draw)
    return x, rng.normal(rank, (C, channels * KERNEL**3), std=(KERNEL**3 * C) ** -0.5)


def _exact(case: Case, rng: Rng, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Entries from {-1, 0, 1}, at most 32 / W non-zero weights for an output channel: partial sums are up to 32."""
    C, channels = case["C"], case["C"] // case.world_size
    weight = torch.zeros(C, channels * KERNEL**3)
    picks = rng.integers(rank, 0, weight.shape[1] - 1, (C, max(1, 32 // case.world_size)))
    weight.scatter_(1, picks, 2.0 * rng.integers(rank, 0, 1, picks.shape).float() - 1.0)
    return rng.integers(rank, -1, 1, (channels * case["T"], case["H"] ** 2)).float(), weight


def triple(value: Union[int, Tuple[int, int, int]]) -> Tuple[int, ...]:
    return (value, value, value) if isinstance(value, int) else tuple(value)


def channels_at_once(channels: int, elements: int) -> int:
    """Channels of one piece of a tensor with so many elements, so that no piece is larger than LARGEST_TENSOR."""
    return channels // math.ceil(elements / LARGEST_TENSOR)


def convolution(x: torch.Tensor, weight: torch.Tensor, **window: Any) -> torch.Tensor:
    """conv3d without bias, in pieces of input and of output channels where tensors are too large."""
    strides, paddings, dilations = (triple(window[name]) for name in ("stride", "padding", "dilation"))
    positions = x.shape[0]
    for size, kernel, s, p, d in zip(x.shape[2:], weight.shape[2:], strides, paddings, dilations, strict=True):
        positions *= (size + 2 * p - d * (kernel - 1) - 1) // s + 1
    into = channels_at_once(x.shape[1], x.numel())
    out_of = channels_at_once(weight.shape[0], weight.shape[0] * positions)
    outputs = []
    for filters in torch.split(weight, out_of, dim=0):
        pieces = zip(torch.split(x, into, dim=1), torch.split(filters, into, dim=1), strict=True)
        partial = [F.conv3d(channels, part, **window) for channels, part in pieces]
        if len(partial) > 1:
            partial = [torch.stack([p.float() for p in partial]).sum(dim=0).to(x.dtype)]
        outputs.append(partial[0])
    return torch.cat(outputs, dim=1) if len(outputs) > 1 else outputs[0]


def solution(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: Optional[torch.Tensor],
    stride: Union[int, Tuple[int, int, int]],
    padding: Union[int, Tuple[int, int, int]],
    dilation: Union[int, Tuple[int, int, int]],
    groups: int = 1,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    out = convolution(input, weight, stride=stride, padding=padding, dilation=dilation, groups=groups)
    dist.all_reduce(out, op=dist.ReduceOp.SUM, group=group)
    if bias is not None:
        out = out + bias.view(1, -1, 1, 1, 1)  # after the reduction, so that it is added once
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()

    def convolved(group: list[Args]) -> list[Expected]:
        s, p, d = (triple(group[0][name]) for name in ("stride", "padding", "dilation"))
        x = torch.cat([wide(a["input"]) for a in group], dim=1)
        x = F.pad(x, (p[2], p[2], p[1], p[1], p[0], p[0]))
        weight = torch.cat([wide(a["weight"]) for a in group], dim=1)
        sizes = [(x.shape[2 + i] - d[i] * (weight.shape[2 + i] - 1) - 1) // s[i] + 1 for i in range(3)]
        out = torch.zeros(x.shape[0], weight.shape[0], *sizes, dtype=torch.float64)
        for tap in torch.cartesian_prod(*(torch.arange(k) for k in weight.shape[2:])).tolist():
            seen = [slice(tap[i] * d[i], tap[i] * d[i] + s[i] * (sizes[i] - 1) + 1, s[i]) for i in range(3)]
            out += torch.einsum("bcthw,oc->bothw", x[:, :, *seen], weight[:, :, *tap])
        if group[0]["bias"] is not None:
            out += wide(group[0]["bias"])[:, None, None, None]
        return [Expected(Leaf(out, case.dtype, rule)) for _ in group]

    return by_group(args, convolved)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 * 27 C_l flops for each output; own channels, weights, bias and outputs once; an all-reduce of the outputs.

    ``one_way``: with in-switch reduction the outputs once; or every rank gets the channels and weights of the others
    and does all of the work itself.
    """

    def costs(group: list[Args]) -> list[RankCost]:
        W, e, first = len(group), element_size(case.dtype), group[0]
        x, weight = first["input"], first["weight"]
        s, p, d = (triple(first[name]) for name in ("stride", "padding", "dilation"))
        outputs = x.shape[0] * weight.shape[0]
        for i, size in enumerate(x.shape[2:]):
            outputs *= (size + 2 * p[i] - d[i] * (KERNEL - 1) - 1) // s[i] + 1
        operands = x.numel() + weight.numel()
        wire = 2.0 * (W - 1) / W * outputs * e
        one_way = min(wire, float(outputs * e), float((W - 1) * operands * e))
        flops = {dtype_name(case.dtype): 2.0 * KERNEL**3 * x.shape[1] * outputs}
        return [RankCost(flops, float((operands + weight.shape[0] + outputs) * e), wire, wire, one_way)] * W

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("H",), multiple={"C": 24}) | {
        "T": int(torch.randint(4, 8, (1,), generator=secret))
    }


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if sizes["C"] % world_size == 0:
        return ""
    return f"The world size must divide the channels: {sizes['C']} mod {world_size} is not 0."


PROBLEM = Problem(
    id=76,
    slug="opensora_conv3d_allreduce",
    title="3-D convolution split over input channels, all-reduce of the partial sums",
    type="tensor",
    also=(),
    domain="vision",
    stage="forward",
    origin="Open-Sora (hpcaitech): row-parallel conv3d of its video autoencoder",
    difficulty=3,
    statement=(
        "The input channels of a 3-D convolution are split over the ranks: `input` (1, C/W, T, H, H) holds the rank's "
        "channels, `weight` (C, C/W, 3, 3, 3) the filters for them. The result on every rank is the convolution over "
        "the channels of all ranks (cross-correlation, zero padding) plus `bias` (C), which is the same on all ranks "
        "and added once; it may be None. `stride`, `padding` and `dilation` are numbers or triples for time, height "
        "and width; `groups` is 1. Products accumulate in float32, the result is in the dtype of the input. `group` "
        "None means the world group; with a process group, its members hold the channels."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"C": 512, "T": 19, "H": 66},
    cpu_sizes={"C": 32, "T": 6, "H": 14},
    check_sizes={"C": 16, "T": 4, "H": 7},
    hidden_sizes=hidden_sizes,
    hidden_property="fewer frames, H odd, and a number of channels that is no power of two",
    linear=("input", "bias"),
    draws={
        "strided": "structured: stride (2, 1, 2), padding (1, 0, 1), dilation (1, 1, 2)",
        "no_bias": "structured: no bias",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "exact": "stress: small integers, every partial sum is exact: compared bit for bit",
        "small": "stress: inputs scaled by 1e-3",
        "large": "stress: inputs scaled by 1e3",
        "mixed": "stress: frames with amplitudes from 1e-2 to 1e2",
    },
    world_size_rule=world_size_rule,
    skip_draw=lacks_subgroups,
    replicated=("bias",),
    communication="all_reduce SUM of (1, C, T', H', H') over the group",
    hazards=(
        "The bias is added once, after the reduction.",
        "bf16 partial sums rounded before the reduction lose precision; fp32 accumulation is welcome.",
        "Convolutions on TF32 units miss the tolerance of fp32 runs.",
        "The reference cuts tensors of more than 2^31 elements into pieces of channels; no shape here is that large.",
    ),
    tolerances=calibrated(bf16=1.23e-2, fp16=2e-3),
)
