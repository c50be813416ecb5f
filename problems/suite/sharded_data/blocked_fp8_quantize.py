"""Blockwise FP8 (E4M3) quantisation, then an all-gather of codes and scales along dimension 0.

Legend: x_q (M, ..., N) the tensor of rank q, b block size (divides N), W ranks; block k of a row holds its elements k b
to (k+1) b - 1.

    s[i, k] = largest |x| in block k of row i / 448                            float32; stored as it is
    y[i, j] = fp8(x[i, j] / s[i, j // b]), with 1 in place of a scale of zero  a float32 division
    y_global (W M, ..., N) float8_e4m3fn and s_global (W M, ..., N/b) float32: those of all ranks, in rank order

fp8 rounds to nearest, ties to even, and saturates at 448; it keeps subnormal codes, the smallest step is 2^-9.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Tuple

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Expected, Leaf, Problem, RankCost, Rng, Valid, wide
from problems.suite.costs import all_gather_cost, element_size
from problems.suite.families.fp8_scaling import FP8_LARGEST, float32_quotient, fp8
from problems.suite.golden import sin_rule
from problems.suite.shapes import jitter

NEAR_TIE = 1e-6
"""Relative error of a quotient that may decide between two codes: about four steps of float32."""


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Normal values times a power of two from 2^-6 to 2^6 for each block, so that scales differ by block and rank."""
    M, N, block = case["M"], case["N"], case["block"]
    if case.draw == "short_blocks":
        block //= 4
    ranks: list[Args] = []
    for r in range(case.world_size):
        x = rng.normal(r, (M, N // block, block))
        scales = 2.0 ** rng.integers(r, -6, 6, (M, N // block, 1))
        if case.draw == "zero_blocks":
            scales = torch.where(rng.uniform(r, scales.shape) < 0.25, 0.0, scales)
        elif case.draw in ("small", "large"):
            scales *= 1e-3 if case.draw == "small" else 1e2
        elif case.draw == "outlier":
            # The others fall among the subnormal codes; the outlier has either sign.
            sign = 2.0 * rng.integers(r, 0, 1, scales.shape) - 1.0
            x.scatter_(2, rng.integers(r, 0, block - 1, scales.shape), 5e3 * sign)
            scales.clamp_(max=8.0)
        shape = (M, 1, N) if case.draw == "three_axes" else (M, N)
        ranks.append({"local_tensor": (x * scales).to(case.dtype).reshape(shape), "block_size": block})
    return ranks


def solution(local_tensor: torch.Tensor, block_size: int = 128) -> Tuple[torch.Tensor, torch.Tensor]:
    assert local_tensor.shape[-1] % block_size == 0
    blocks = local_tensor.to(torch.float32).reshape(*local_tensor.shape[:-1], -1, block_size)
    largest = blocks.abs().amax(dim=-1)
    scales = largest / torch.full_like(largest, FP8_LARGEST)
    divisors = torch.where(scales == 0.0, 1.0, scales).unsqueeze(-1)
    codes = (blocks / divisors).clamp(-FP8_LARGEST, FP8_LARGEST).flatten(-2).to(torch.float8_e4m3fn)
    if not dist.is_initialized():
        return codes, scales
    W = dist.get_world_size()
    y_global = codes.new_empty((W * codes.shape[0], *codes.shape[1:]))
    s_global = scales.new_empty((W * scales.shape[0], *scales.shape[1:]))
    # Communication libraries need not know float8: its bytes travel.
    dist.all_gather_into_tensor(y_global.view(torch.uint8), codes.view(torch.uint8))
    dist.all_gather_into_tensor(s_global, scales)
    return y_global, s_global


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    """A quotient within NEAR_TIE of the middle between two codes may give either; elsewhere the code is determined."""
    whole = torch.cat([wide(a["local_tensor"]) for a in args])
    blocks = whole.reshape(*whole.shape[:-1], -1, args[0]["block_size"])
    largest = blocks.abs().amax(dim=-1)
    rounded = float32_quotient(largest, FP8_LARGEST).unsqueeze(-1)
    quotient = blocks / torch.where(rounded == 0.0, 1.0, rounded)
    low, codes, high = (fp8(quotient * factor).flatten(-2) for factor in (1.0 - NEAR_TIE, 1.0, 1.0 + NEAR_TIE))
    y_global = Leaf(codes, torch.float8_e4m3fn, Valid(partial(_wrong_codes, low, high)))
    s_global = Leaf(largest / FP8_LARGEST, torch.float32, Close(units=0.0, relative=1e-6))
    return [Expected((y_global, s_global)) for _ in args]


def _wrong_codes(low: torch.Tensor, high: torch.Tensor, value: torch.Tensor) -> str:
    """What is wrong with the codes, if anything: each must be ``low`` or ``high``, which mostly are the same."""
    codes = wide(value.cpu())
    bad = ~((codes == low) | (codes == high))
    if not bool(bad.any()):
        return ""
    first = tuple(bad.nonzero()[0].tolist())
    wanted = f"{float(low[first]):g}"
    return (
        f"{int(bad.sum())} of {bad.numel()} codes are wrong; the first, at {first}, stands for {float(codes[first]):g} "
        f"instead of {wanted}"
    )


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """A maximum and a division per element; tensor read, everything written.

    Link: an all-gather of one byte per element and, per block, of the largest magnitude, at most 4 bytes.
    """
    W, e = case.world_size, element_size(case.dtype)
    elements = args[0]["local_tensor"].numel()
    blocks = elements // args[0]["block_size"]
    hbm = float(elements * e + W * (elements + 4 * blocks))
    return all_gather_cost(W, W * (elements + min(4, e) * blocks), flops={"fp32": 2.0 * elements}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M",), multiple={"N": public["block"]}, keep=("block",))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if sizes["N"] % sizes["block"] == 0:
        return ""
    return f"The block size must divide the row length: {sizes['N']} mod {sizes['block']} is not 0."


def golden_inputs(name: str, world_size: int) -> list[Args]:
    ranks: list[Args] = []
    for r in range(world_size):
        x = sin_rule([8, 256], rank=r, k=0)
        x[3, :128] = 0.0
        ranks.append({"local_tensor": x, "block_size": 128})
    return ranks


PROBLEM = Problem(
    id=19,
    slug="blocked_fp8_quantize",
    title="Blockwise FP8 (E4M3) quantisation, then all-gather of codes and scales along axis 0",
    type="sharded_data",
    also=("tensor", "collective"),
    domain="llm_training",
    stage="preprocessing",
    origin="quantiser of the form of act_quant in DeepSeek-V3's inference kernels, with a guard for blocks of zeros",
    difficulty=3,
    statement=(
        "Every rank holds `local_tensor` (M, N), or with more axes in between. Each row is cut into blocks of "
        "`block_size` elements, which divides N. The scale of a block is its largest magnitude divided by 448 in "
        "float32; it is 0 for a block of zeros. Every element is divided in float32 by the scale of its block (by 1 "
        "where that is 0) and rounded to float8 E4M3: to nearest, ties to even, saturating at 448, with subnormal "
        "codes. The result on every rank is the tuple of the codes of all ranks, joined along dimension 0 in rank "
        "order, as float8_e4m3fn, and of the scales, (W·M, N/block_size) in float32. Codes are exact; only where a "
        "quotient lies within 1e-6 of the middle between two codes may either come."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024, "block": 128},
    cpu_sizes={"M": 64, "N": 512, "block": 128},
    check_sizes={"M": 12, "N": 192, "block": 64},
    hidden_sizes=hidden_sizes,
    hidden_property="M is odd, and rows have fewer blocks than in the public shape",
    draws={
        "short_blocks": "structured: a quarter of the block size",
        "zero_blocks": "structured: a quarter of the blocks holds only zeros",
        "three_axes": "structured: a tensor with three axes",
        "outlier": "stress: one element of each block is thousands of times the others, which get subnormal codes",
        "small": "stress: values scaled by 1e-3",
        "large": "stress: values scaled by 1e2",
    },
    world_size_rule=world_size_rule,
    communication=(
        "all_gather of the codes along dimension 0, (M, N) bytes\n"
        "all_gather of the scales along dimension 0, (M, N/block_size) in float32"
    ),
    hazards=(
        "Values of a 16-bit format often lie exactly in the middle between two codes after the division.",
        "A block of zeros has scale 0 and codes 0, not NaN.",
        "The codes cast without saturation may overflow to NaN where the scale was rounded down.",
        "Where a block has one large element the others get subnormal codes or zero.",
    ),
    golden_inputs=golden_inputs,
)
