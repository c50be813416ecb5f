"""Hyena long convolution under context parallelism: exchange, gated FFT convolution, exchange back.

Legend: B batch, C channels, Ls local positions, T = W Ls all positions, G groups of filters with g = C/G channels each,
Lh taps, W ranks, r the own rank, t a position, s a tap. Zigzag: the sequence has 2 W chunks, rank r holds chunks r and
2 W - 1 - r; otherwise rank r holds positions r Ls onwards.

    u = x2 v                                                     x1, x2, v (B, C, Ls), h (G, Lh), conv_bias (C)
    y[b, c, t] = conv_bias[c] u[b, c, t] + sum over s <= t of h[c // g, s] u[b, c, t - s]
    z[b, t, c] = x1[b, c, t] y[b, c, t]                          z (B, Ls, C), in the layout of the inputs
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import element_size
from problems.suite.draws import scaled_normal
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal sequences; random filters that decay over an eighth of their length, the same on all ranks."""
    W, B, C, Ls = case.world_size, case["B"], case["C"], case["Ls"]
    taps = 2 * W * Ls if case.draw == "long_filter" else case["Lh"]
    width = 2 if case.draw == "grouped" else case["group_dim"]
    group = even_and_odd(W) if case.draw == "subgroups" else None
    reach = max(1.0, taps / 8)
    h = rng.normal(None, (C // width, taps), std=(5.0 / reach) ** 0.5) * torch.exp(-torch.arange(taps) / reach)
    bias = rng.normal(None, (C,))
    ranks: list[Args] = []
    for r in range(W):
        ranks.append(
            {
                "x1_seq": rng.normal(r, (B, C, Ls)).to(case.dtype),
                "x2_seq": rng.normal(r, (B, C, Ls)).to(case.dtype),
                "v_seq": scaled_normal(rng, r, (B, C, Ls), case.draw).to(case.dtype),
                "h": h.to(case.dtype, copy=True),
                "conv_bias": bias.to(case.dtype, copy=True),
                "num_groups": C // width,
                "group_dim": width,
                "group": group,
                "with_zigzag_splitting": case.draw != "natural",
            }
        )
    return ranks


def exchange(blocks: torch.Tensor, group: Optional[dist.ProcessGroup]) -> torch.Tensor:
    """Block d of the first axis goes to rank d; the result has the blocks of all ranks in their order."""
    received = torch.empty_like(blocks, memory_format=torch.contiguous_format)
    dist.all_to_all_single(received, blocks.contiguous(), group=group)
    return received


def sequence_to_channels(x: torch.Tensor, zigzag: bool, group: Optional[dist.ProcessGroup]) -> torch.Tensor:
    """(B, C, Ls), own positions of all channels -> (B, C/W, T), all positions of own channels in natural order."""
    W = dist.get_world_size(group)
    B, C, Ls = x.shape
    pieces = exchange(x.reshape(B, W, C // W, Ls).transpose(0, 1), group)  # (W, B, C/W, Ls), by source
    if zigzag:
        # Second halves lie in the opposite order of ranks.
        first, second = pieces.chunk(2, dim=-1)
        pieces = torch.cat((first, second.flip(0)))  # (2 W, B, C/W, Ls/2), by chunk
    return pieces.permute(1, 2, 0, 3).reshape(B, C // W, W * Ls)


def channels_to_sequence(y: torch.Tensor, zigzag: bool, group: Optional[dist.ProcessGroup]) -> torch.Tensor:
    """(B, C/W, T), all positions of own channels -> (B, C, Ls), own positions of all channels."""
    W = dist.get_world_size(group)
    B, channels, T = y.shape
    if zigzag:
        first, second = y.reshape(B, channels, 2, W, T // W // 2).unbind(2)
        pieces = torch.cat((first, second.flip(2)), dim=-1)
    else:
        pieces = y.reshape(B, channels, W, T // W)
    received = exchange(pieces.permute(2, 0, 1, 3), group)  # (W, B, C/W, Ls), by source, that is by channel block
    return received.transpose(0, 1).reshape(B, W * channels, T // W)


def solution(
    x1_seq: torch.Tensor,
    x2_seq: torch.Tensor,
    v_seq: torch.Tensor,
    h: torch.Tensor,
    conv_bias: torch.Tensor,
    num_groups: int,
    group_dim: int,
    group: Optional[dist.ProcessGroup] = None,
    with_zigzag_splitting: bool = True,
) -> torch.Tensor:
    W, r = dist.get_world_size(group), dist.get_rank(group)
    x1, x2, v = (sequence_to_channels(x, with_zigzag_splitting, group) for x in (x1_seq, x2_seq, v_seq))
    T = x1.shape[-1]
    groups, channels = num_groups // W, x1.shape[1]
    # Taps beyond the sequence meet nothing; without them a transform of length 2 T has no wrap-around.
    filters = h[r * groups : (r + 1) * groups, :T].float().repeat_interleave(group_dim, dim=0)
    bias = conv_bias[r * channels : (r + 1) * channels].float().unsqueeze(-1)
    u = x2 * v
    u32 = u.float()
    spectrum = torch.fft.rfft(u32, n=2 * T) * torch.fft.rfft(filters, n=2 * T)
    y = torch.fft.irfft(spectrum, n=2 * T)[..., :T] + u32 * bias
    z = channels_to_sequence(x1 * y.to(u.dtype), with_zigzag_splitting, group)
    return z.transpose(1, 2).contiguous()


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def operator(group: list[Args]) -> list[Expected]:
        W, zigzag = len(group), group[0]["with_zigzag_splitting"]
        B, C, Ls = group[0]["x1_seq"].shape
        position = torch.arange(W * Ls)
        if zigzag:
            chunks = position.reshape(2 * W, Ls // 2)
            owned = [torch.cat((chunks[r], chunks[2 * W - 1 - r])) for r in range(W)]
        else:
            owned = list(position.reshape(W, Ls))
        whole = {}
        for name in ("x1_seq", "x2_seq", "v_seq"):
            whole[name] = torch.empty(B, C, W * Ls, dtype=torch.float64)
            for r in range(W):
                whole[name][..., owned[r]] = wide(group[r][name])
        u = whole["x2_seq"] * whole["v_seq"]
        expected = []
        for r in range(W):
            # Channels are filtered by the rank that gets them, with its own copy of filters and biases.
            z = torch.empty(B, Ls, C, dtype=torch.float64)
            for q in range(W):
                own = slice(q * (C // W), (q + 1) * (C // W))
                rows = torch.arange(C)[own] // group[q]["group_dim"]
                filters, bias = wide(group[q]["h"])[rows], wide(group[q]["conv_bias"])[own, None]
                y = convolve(filters, u[:, own]) + bias * u[:, own]
                z[:, :, own] = (whole["x1_seq"][:, own] * y)[..., owned[r]].transpose(1, 2)
            expected.append(Expected(Leaf(z, case.dtype)))
        return expected

    return by_group(args, operator)


def convolve(taps: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Causal convolution along the last axis in float64, by transforms long enough for all of it."""
    n = taps.shape[-1] + u.shape[-1]
    whole: torch.Tensor = torch.fft.irfft(torch.fft.rfft(u, n=n) * torch.fft.rfft(taps, n=n), n=n)
    return whole[..., : u.shape[-1]]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """Real transforms of length 2 T at 2.5 n log2 n flops: two per channel and sequence, one per filter.

    Own sequences, own filters and biases and the result once. Link: u = x2 v can be formed before the exchange and the
    gate x1 applied after it, so only u and y travel, 1/W of them to each rank.
    """

    def costs(group: list[Args]) -> list[RankCost]:
        W, e = len(group), element_size(case.dtype)
        B, C, Ls = group[0]["x1_seq"].shape
        filters, taps = group[0]["num_groups"] // W, group[0]["h"].shape[1]
        n = 2 * W * Ls
        flops = {"fp32": (2 * B * (C // W) + filters) * 2.5 * n * math.log2(n)}
        hbm = float((4 * B * C * Ls + filters * min(taps, W * Ls) + C // W) * e)
        wire = 2.0 * B * C * Ls * e * (W - 1) / W
        return [RankCost(flops, hbm, wire, wire)] * W

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("Lh",), multiple={"C": 24, "Ls": 2}, keep=("B", "group_dim"))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    groups = sizes["C"] // sizes["group_dim"]
    if groups % world_size == 0 and sizes["Ls"] % 2 == 0:
        return ""
    return (
        f"The world size must divide the number of filter groups, {groups} mod {world_size} must be 0, and Ls must be "
        f"even: {sizes['Ls']}."
    )


def skip_draw(case: Case) -> bool:
    return lacks_subgroups(case) or (case.draw == "grouped" and case["C"] // 2 % case.world_size != 0)


PROBLEM = Problem(
    id=72,
    slug="hyena_forward_cp",
    title="Hyena long-convolution operator under context parallelism (all-to-all, FFT conv, all-to-all)",
    type="sequence",
    also=("context",),
    domain="scientific",
    stage="forward",
    origin="NVIDIA NeMo Hyena (Evo 2): ParallelHyenaOperator with all-to-all context parallelism and zigzag splitting",
    difficulty=4,
    statement=(
        "A sequence of T = W·Ls positions is split over the ranks. With `with_zigzag_splitting` it is cut into 2·W "
        "chunks and rank r holds chunk r followed by chunk 2·W-1-r; otherwise rank r holds positions r·Ls onwards. "
        "`x1_seq`, `x2_seq` and `v_seq` are (B, C, Ls); `h` (num_groups, Lh) and `conv_bias` (C) are the same on all "
        "ranks, and row c // group_dim of `h` is the filter of channel c.\n\n"
        "On the whole sequence: u = x2·v, stored in the run dtype; y[t] = Σ_{s ≤ t, s < Lh} filter[s]·u[t-s] + "
        "bias·u[t], computed in float32 and stored in the run dtype; z = x1·y. The result is the own positions of z "
        "for all channels, **positions before channels**: (B, Ls, C), contiguous, in the order of the inputs' "
        "positions. `group` None means the world group; with a process group, W counts its members."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 1, "C": 1024, "Ls": 2048, "Lh": 4096, "group_dim": 1},
    cpu_sizes={"B": 1, "C": 64, "Ls": 256, "Lh": 512, "group_dim": 1},
    check_sizes={"B": 2, "C": 16, "Ls": 16, "Lh": 12, "group_dim": 1},
    hidden_sizes=hidden_sizes,
    hidden_property="the number of channels and of positions is no power of two, the number of taps is odd",
    linear=("x1_seq",),
    draws={
        "natural": "structured: no zigzag, ranks hold consecutive positions",
        "grouped": "structured: every filter serves two channels",
        "long_filter": "structured: filters twice as long as the whole sequence",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "small": "stress: v scaled by 1e-3",
        "large": "stress: v scaled by 1e3",
    },
    world_size_rule=world_size_rule,
    skip_draw=skip_draw,
    replicated=("h", "conv_bias"),
    communication=(
        "3 all_to_all_single of (W, B, C/W, Ls): x1, x2 and v from positions to channels\nall_to_all_single of (W, B, "
        "C/W, Ls): the result back from channels to positions"
    ),
    hazards=(
        "The result swaps the axes of the inputs.",
        "x2 · v can be formed before the exchange and the gate applied after it: half of the reference's bytes.",
        "Taps beyond the sequence must not wrap around in a transform of length 2 T.",
        "Zigzag order is undone for the convolution and restored in the result.",
    ),
    tolerances=calibrated(bf16=1.42e-2, fp16=2.5e-3),
)
