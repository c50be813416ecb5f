"""Gradient averaging with block-wise int8 quantisation.

Legend: n elements of the gradient x_q of rank q, b block size, W ranks; block k holds elements k b to (k+1) b - 1, the
last one filled up with zeros.

    scale_q[k] = max(largest |x_q| in block k, 1e-8) / 127                     float32
    code_q[i] = x_q[i] / scale_q[i // b], rounded half to even, in [-127, 127]
    output[i] = 1/W * sum over q of code_q[i] * scale_q[i // b]                in float32, rounded once; shape of x_q
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, Tolerance, wide
from problems.suite.costs import element_size
from problems.suite.shapes import jitter

CODES = 127


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Normal values with a standard deviation of 0.3 and one outlier of 30 to 100 in every block.

    One block in eight is zero. The outliers make the codes coarse (scales of 0.25 to 0.8), so that quantisation shows.
    Elements within 1e-3 of the middle between two codes are zero: no code depends on the rounding of the division.
    """
    n, block = case["n"], case["block"]
    if case.draw == "ragged":
        block = max(1, 3 * block // 4 + 1)
    elif case.draw == "single":
        block = 1
    blocks = -(-n // block)
    ranks: list[Args] = []
    for r in range(case.world_size):
        x = rng.normal(r, (blocks, block), std=1.0 if case.draw == "plain" else 0.3)
        if case.draw != "plain":
            outlier = (30.0 + 70.0 * rng.uniform(r, (blocks, 1))) * (2 * rng.integers(r, 0, 1, (blocks, 1)) - 1)
            x.scatter_(1, rng.integers(r, 0, block - 1, (blocks, 1)), outlier)
            x[(torch.arange(blocks) + r) % 8 == 0] = 0.0
        x *= {"small": 1e-3, "large": 1e2}.get(case.draw, 1.0)
        x = _away_from_ties(x.to(case.dtype), n)
        shape = (2, n // 2) if case.draw == "matrix" and n % 2 == 0 else (n,)
        ranks.append({"flat_grad": x.reshape(shape), "block_size": block})
    return ranks


def _away_from_ties(x: Tensor, n: int) -> Tensor:
    """The first n elements of the blocks (k, b), flat, with those that lie between two codes set to zero.

    What is cut off counts as zero, as it does in the workload.
    """
    flat = x.flatten().clone()
    flat[n:] = 0.0
    steps = (wide(flat).view(x.shape) / _scales(flat.view(x.shape))).abs().flatten()
    return torch.where((steps - steps.floor() - 0.5).abs() < 1e-3, 0.0, flat)[:n]


def _scales(blocks: Tensor) -> Tensor:
    """The float32 scales of blocks (k, b), in float64: (k, 1)."""
    largest = wide(blocks.abs().amax(dim=1, keepdim=True).to(torch.float32)).clamp(min=wide(torch.tensor(1e-8)))
    return wide((largest / CODES).to(torch.float32))


@torch.no_grad()
def solution(flat_grad: Tensor, block_size: int) -> Tensor:
    n = flat_grad.numel()
    padded = F.pad(flat_grad.reshape(-1).to(torch.float32), (0, -n % block_size))
    blocks = padded.view(-1, block_size)
    scale = blocks.abs().amax(dim=1, keepdim=True).clamp(min=1e-8) / CODES
    codes = torch.round(blocks / scale).clamp(-CODES, CODES).to(torch.int8)
    restored = (codes.to(torch.float32) * scale).view(-1)[:n]
    dist.all_reduce(restored, op=dist.ReduceOp.SUM)
    return (restored / dist.get_world_size()).to(flat_grad.dtype).view(flat_grad.shape)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    total = torch.zeros(args[0]["flat_grad"].numel(), dtype=torch.float64)
    for a in args:
        flat, size = a["flat_grad"].flatten(), a["block_size"]
        blocks = torch.zeros(-(-len(flat) // size) * size, dtype=flat.dtype)
        blocks[: len(flat)] = flat
        blocks = blocks.view(-1, size)
        scales = _scales(blocks)
        total += ((wide(blocks) / scales).round() * scales).flatten()[: len(flat)]
    mean = (total / len(args)).reshape(args[0]["flat_grad"].shape)
    return [Expected(Leaf(mean, case.dtype)) for _ in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """Per element: magnitude, maximum, division, rounding, product, addition; gradients read once and written once.

    Link: a code of one byte per element, and per block the largest magnitude, at most 4 bytes. Either the codes go to
    owners of slices, who add and all-gather the result in the run dtype, or all codes go to all ranks. No switch adds
    codes that have scales of their own.
    """
    W, n, e = case.world_size, args[0]["flat_grad"].numel(), element_size(case.dtype)
    codes = n + min(4, e) * -(-n // args[0]["block_size"])
    by_owners = (W - 1) / W * (codes + n * e)
    wire = float(min(by_owners, (W - 1) * codes))
    return [RankCost({"fp32": 6.0 * n}, 2.0 * n * e, wire, wire)] * W


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("n",), keep=("block",))


PROBLEM = Problem(
    id=44,
    slug="quantized_grad_allreduce",
    title="Gradient averaging with block-wise int8 quantisation",
    type="data",
    also=(),
    domain="llm_training",
    stage="communication",
    origin="block-quantised gradient compression in the spirit of DeepSpeed ZeRO++",
    difficulty=3,
    statement=(
        "Every rank holds a gradient `flat_grad` of the same shape. Flattened and filled up with zeros it is cut into "
        "blocks of `block_size` elements; the size need not divide the number of elements. The scale of a block is its "
        "largest magnitude in float32, at least 1e-8, divided by 127; the code of an element is its value divided by "
        "the scale in float32 and rounded to the nearest integer, half to even. The result on every rank is the mean "
        "over the ranks of code times scale, summed and divided in float32 and rounded once to the run dtype, in the "
        "shape of the gradient. There is no feedback of the error and no second quantisation. The input keeps its "
        "values. The reference adds restored float32 values; one byte per element and a scale per block carry the same."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"n": 1024 * 1024, "block": 128},
    cpu_sizes={"n": 65536, "block": 128},
    check_sizes={"n": 2048, "block": 32},
    hidden_sizes=hidden_sizes,
    hidden_property="n is odd, so the last block is not full",
    draws={
        "plain": "structured: standard normal values without outliers",
        "ragged": "structured: an odd block size, the last block is not full",
        "matrix": "structured: a gradient with two rows, blocks may cross them",
        "single": "structured: blocks of one element",
        "small": "stress: values scaled by 1e-3",
        "large": "stress: values scaled by 1e2",
    },
    communication="all_reduce SUM of the restored gradient, (n,) in float32",
    hazards=(
        "Codes of different ranks have scales of their own and cannot be added.",
        "Values within a block differ by a factor of 100 and more, so most codes are -1, 0 or 1.",
        "Blocks of zeros use the least scale and give zeros.",
        "The sum must not pass through a 16-bit format.",
    ),
    # Sums are in float32 and rounded once, so every element is right to half a step of the run dtype.
    tolerances={
        torch.bfloat16: Tolerance(units=1e-5, relative=1.3e-2),
        torch.float16: Tolerance(units=5e-5, relative=2.5e-3),
        torch.float32: Tolerance(units=1e-5, relative=1e-5),
    },
    permutable=True,
)
