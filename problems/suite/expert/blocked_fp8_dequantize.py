"""Blockwise dequantisation, then an all-to-all of the float32 result.

Legend: M rows, N columns of one chunk, b block size (divides M N), W ranks, s and d ranks, f a flat index into a chunk.

    x_s[d].flat[f] = float32(y_s[d].flat[f]) * float32(s_s[d, f // b])         y_s (W, M, N), s_s (W, M N / b)
    out_d[s] = x_s[d], in float32                                              out_d (W, M, N)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng, wide
from problems.suite.costs import all_to_all_cost, element_size
from problems.suite.draws import scaled_normal
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Normal values; normal scales times a power of two from 2^-4 to 2^4, so that scales of other blocks show."""
    W, M, N, block = case.world_size, case["M"], case["N"], case["block"]
    if case.draw == "short_blocks":
        block //= 4
    ranks: list[Args] = []
    for r in range(W):
        blocks = (W, M * N // block)
        scales = rng.normal(r, blocks) * 2.0 ** rng.integers(r, -4, 4, blocks)
        if case.draw == "zero_blocks":
            scales = torch.where(rng.uniform(r, blocks) < 0.25, 0.0, scales)
        y = scaled_normal(rng, r, (W, M, N), case.draw)
        ranks.append({"local_y": y.to(case.dtype), "local_s": scales.to(case.dtype), "block_size": block})
    return ranks


def solution(local_y: torch.Tensor, local_s: torch.Tensor, block_size: int = 128) -> torch.Tensor:
    assert local_y[0].numel() % block_size == 0
    # Blocks run over the flattened chunks and may cross rows.
    blocks = local_y.reshape(-1, block_size).to(torch.float32)
    x = (blocks * local_s.reshape(-1, 1).to(torch.float32)).view(local_y.shape)
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    W = len(args)
    chunks = []
    for a in args:
        scales = wide(a["local_s"]).repeat_interleave(a["block_size"], dim=1)
        chunks.append(wide(a["local_y"]) * scales.reshape(a["local_y"].shape))
    return [Expected(Leaf(torch.stack([chunks[s][d] for s in range(W)]), torch.float32, Exact())) for d in range(W)]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """One product per element; values and scales read, float32 written.

    Link: a chunk travels as the float32 result or as its factors, whichever is smaller.
    """
    W, e = case.world_size, element_size(case.dtype)
    elements, scales = args[0]["local_y"][0].numel(), args[0]["local_s"].shape[1]
    chunk = float(min(4 * elements, (elements + scales) * e))
    hbm = float(W * (elements * e + scales * e + 4 * elements))
    return all_to_all_cost([[chunk] * W] * W, flops={"fp32": float(W * elements)}, hbm=[hbm] * W)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("N",), multiple={"M": public["block"]}, keep=("block",))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    elements, block = sizes["M"] * sizes["N"], sizes["block"]
    if elements % block == 0:
        return ""
    return f"The block size must divide the elements of a chunk: {sizes['M']} * {sizes['N']} mod {block} is not 0."


PROBLEM = Problem(
    id=20,
    slug="blocked_fp8_dequantize",
    title="Blockwise dequantisation, then all-to-all of the float32 result",
    type="expert",
    also=("collective",),
    domain="llm_training",
    stage="preprocessing",
    origin="blockwise scale multiplication as in FP8 dispatch of mixture-of-experts models",
    difficulty=3,
    statement=(
        "`local_y` (W, M, N) holds one chunk for every rank, in the run dtype, whatever the name of the workload says. "
        "Every chunk, flattened, is cut into blocks of `block_size` elements, which may cross rows; `local_s` "
        "(W, M·N/block_size) holds a scale for each, of either sign. Multiply every element by the scale of its block "
        "in float32, and exchange chunks: out[s] on rank d is the product that rank s holds for rank d, (W, M, N) in "
        "float32 in every run. Products are rounded once, so the result is determined bit for bit. `block_size` "
        "divides M·N. The reference multiplies first and sends float32; exchanging the factors and multiplying at the "
        "receiver gives the same bits."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024, "block": 128},
    cpu_sizes={"M": 256, "N": 192, "block": 128},
    check_sizes={"M": 16, "N": 40, "block": 64},
    hidden_sizes=hidden_sizes,
    hidden_property="N is odd: blocks cross rows, and no row is a multiple of 16 bytes",
    linear=("local_s",),
    draws={
        "short_blocks": "structured: a quarter of the block size",
        "zero_blocks": "structured: a quarter of the scales is zero",
        "small": "stress: values scaled by 1e-3",
        "large": "stress: values scaled by 1e3",
        "mixed": "stress: rows with amplitudes from 1e-2 to 1e2",
    },
    world_size_rule=world_size_rule,
    communication="all_to_all of equal chunks along dimension 0, (W, M, N) in float32",
    hazards=(
        "No float8 tensor is involved; reading the values as float8 is wrong.",
        "The output is float32 whatever the run dtype.",
        "Blocks run over the flattened chunk and may cross rows.",
        "In 16-bit runs the factors take half the bytes of the products.",
    ),
    waivers=dict.fromkeys(
        ("cost/bf16", "cost/fp16"),
        "the row counts distinct float32 products of bit-exact outputs; their factors travel in half the bytes and "
        "determine them",
    ),
)
