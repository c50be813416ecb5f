"""Tensor-parallel orthogonalisation by Newton-Schulz iterations, as the optimizer Muon needs it.

Legend: R rows and C columns of the whole matrix X, W ranks, q a rank; X_q holds C/W columns.

    X = [X_0, X_1, ...] / max(|X|, 1e-7), |X| the Frobenius norm of the whole matrix
    in step i, with the coefficients (a, b, c) number i modulo their count:  G = X X^T, X <- a X + (b G + c G G) X
    x = X_q, (R, C/W), for partition_dim 1; its transpose, a block of rows, for partition_dim 0; the result likewise
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups, members
from problems.suite.shapes import jitter

SMALLEST_NORM = 1e-7
COEFFICIENTS = {
    "simple": ((3.4445, -4.7750, 2.0315),),
    "quintic": (
        (4.0848, -6.8946, 2.9270),
        (3.9505, -6.3029, 2.6377),
        (3.7418, -5.5913, 2.3037),
        (2.8769, -3.1427, 1.2046),
        (2.8366, -3.0525, 1.2012),
    ),
    "polar_express": (
        (8.2051, -22.9019, 16.4607),
        (4.0664, -2.8612, 0.5184),
        (3.9096, -2.8234, 0.5250),
        (3.2856, -2.4647, 0.5074),
        (2.2779, -1.6447, 0.4162),
        (1.8726, -1.2307, 0.3585),
        (1.8564, -1.2132, 0.3568),
        (1.8750, -1.2500, 0.3750),
    ),
    "aol": (
        (4.0098, -7.0585, 2.4635),
        (3.4585, -5.5479, 2.5959),
        (2.7573, -3.2939, 1.4254),
        (2.7215, -3.0494, 1.3169),
    ),
}
BYTES = 2  # x is bf16 whatever the run dtype


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Columns of a matrix with rms 1 whose singular values fall geometrically over three decades; always bf16.

    "gaussian": independent normal values. "tall": a third as many columns as rows. "tiny": a norm below 1e-7.
    """
    W, R = case.world_size, case["R"]
    group = even_and_odd(W) if case.draw == "subgroups" else None
    columns = -(-(R // 3 if case.draw == "tall" else case["C"]) // W)
    kind = case.draw if case.draw in COEFFICIENTS else "quintic"
    scale = {"tiny": 1e-12, "large": 1e3}.get(case.draw, 1.0)
    ranks: dict[int, Args] = {}
    for part in members(group, W):
        X = scale * _matrix(case.draw, rng, R, len(part) * columns)
        for r, own in zip(part, X.to(torch.bfloat16).chunk(len(part), dim=1), strict=True):
            ranks[r] = {
                "x": (own.t() if case.draw == "rows" else own).contiguous(),
                "steps": 6 if case.draw == "simple" else len(COEFFICIENTS[kind]),
                "coefficient_type": kind,
                "partition_dim": 0 if case.draw == "rows" else 1,
                "group": group,
            }
    return [ranks[r] for r in range(W)]


def _matrix(draw: str, rng: Rng, rows: int, columns: int) -> torch.Tensor:
    if draw == "gaussian":
        return rng.normal(None, (rows, columns))
    rank = min(rows, columns)
    left = torch.linalg.qr(rng.normal(None, (rows, rank))).Q
    right = torch.linalg.qr(rng.normal(None, (columns, rank))).Q
    X = torch.matmul(left * torch.logspace(0, -3, rank), right.t())
    return X / X.square().mean().sqrt()


def solution(
    x: torch.Tensor,
    steps: int = 5,
    coefficient_type: str = "quintic",
    partition_dim: int = 1,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    assert x.ndim == 2, f"a matrix is wanted, not {x.ndim} axes"
    assert partition_dim in (0, 1), f"partition_dim must be 0 or 1, not {partition_dim}"
    assert coefficient_type in COEFFICIENTS, f"unknown coefficients {coefficient_type!r}"
    coefficients = COEFFICIENTS[coefficient_type]
    assert steps % len(coefficients) == 0, f"steps must be a multiple of {len(coefficients)}, not {steps}"
    X = (x if partition_dim == 1 else x.t()).to(torch.float32)  # (R, C / W)
    squares = X.square().sum()
    dist.all_reduce(squares, op=dist.ReduceOp.SUM, group=group)
    X = X / squares.sqrt().clamp(min=SMALLEST_NORM)
    for step in range(steps):
        a, b, c = coefficients[step % len(coefficients)]
        gram = torch.matmul(X, X.t())
        dist.all_reduce(gram, op=dist.ReduceOp.SUM, group=group)  # (R, R)
        update = b * gram + c * torch.matmul(gram, gram)
        X = a * X + torch.matmul(update, X)
    y = X.to(x.dtype)
    return y if partition_dim == 1 else y.t()


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    """The iteration acts on the singular values alone: s <- a s + b s³ + c s⁵."""

    def orthogonalised(group: list[Args]) -> list[Expected]:
        axis = group[0]["partition_dim"]
        whole = torch.cat([wide(a["x"]) for a in group], dim=axis)
        left, s, right = torch.linalg.svd(whole, full_matrices=False)
        s = s / max(float(torch.linalg.vector_norm(whole)), SMALLEST_NORM)
        coefficients = COEFFICIENTS[group[0]["coefficient_type"]]
        for step in range(group[0]["steps"]):
            a, b, c = coefficients[step % len(coefficients)]
            s = a * s + b * s**3 + c * s**5
        blocks = ((left * s) @ right).chunk(len(group), dim=axis)
        return [Expected(Leaf(y, a["x"].dtype)) for y, a in zip(blocks, group, strict=True)]

    return by_group(args, orthogonalised)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """steps (3 R² C + R³) / W flops: Gram and square are symmetric and shared by the ranks; x read, the result written.

    Link: either the bf16 columns are gathered once and every rank does all of the work, (W-1) R C/W * 2 bytes, or one
    half of the symmetric fp32 Gram matrix is all-reduced once, R (R+1)/2 * 4 bytes, from which all later ones follow.
    """

    def costs(group: list[Args]) -> list[RankCost]:
        W, x = len(group), group[0]["x"]
        R, columns = x.shape if group[0]["partition_dim"] == 1 else x.shape[::-1]
        triangle = R * (R + 1) / 2 * 4
        gathered = float((W - 1) * R * columns * BYTES)
        wire = min(gathered, 2 * (W - 1) / W * triangle)
        flops = group[0]["steps"] * (3.0 * R * R * columns + R**3 / W)
        return [RankCost({"fp32": flops}, 2.0 * R * columns * BYTES, wire, wire, min(wire, triangle))] * W

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("R", "C"))


PROBLEM = Problem(
    id=86,
    slug="tp_muon_orthogonalization",
    title="Tensor-parallel Newton-Schulz orthogonalisation (Muon)",
    type="tensor",
    also=(),
    domain="llm_training",
    stage="optimizer",
    origin="NVIDIA Emerging-Optimizers and Megatron-LM: tensor-parallel Newton-Schulz iteration for Muon",
    difficulty=3,
    statement=(
        "A matrix X (R, C) is split over the ranks by columns (`partition_dim` 1: `x` is (R, C/W)) or, transposed, by "
        "rows (`partition_dim` 0: `x` is (C/W, R), a block of rows of the transpose of X). X is divided by its "
        "Frobenius norm over all ranks, or by 1e-7 if that is larger, and then `steps` times replaced by a·X + (b·G + "
        "c·G·G)·X with G = X·Xᵀ; (a, b, c) runs through the coefficients that `coefficient_type` names ('simple', "
        "'quintic', 'polar_express', 'aol'), again and again. All of this is in float32. The result is the rank's "
        "block, in the shape and dtype of `x`, which is bfloat16 whatever the run dtype. An unknown name, or a number "
        "of steps that is no multiple of the number of coefficients, is an AssertionError. `group` None means the "
        "world group; with a process group, its members hold the matrix."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"R": 512, "C": 512},
    cpu_sizes={"R": 64, "C": 96},
    check_sizes={"R": 24, "C": 48},
    hidden_sizes=hidden_sizes,
    hidden_property="R is odd; C was odd before it was rounded up to a multiple of the world size",
    draws={
        "rows": "structured: partition_dim 0, blocks of rows",
        "tall": "structured: fewer columns than rows, so that the Gram matrix is singular",
        "gaussian": "structured: independent normal values",
        "simple": "structured: the coefficients 'simple', six steps",
        "polar_express": "structured: the coefficients 'polar_express', eight steps",
        "aol": "structured: the coefficients 'aol', four steps",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "tiny": "stress: a matrix with a norm below 1e-7",
        "large": "stress: values scaled by 1e3",
    },
    skip_draw=lacks_subgroups,
    communication=(
        "all_reduce SUM of the squared norm, a scalar in float32\n"
        "all_reduce SUM of the Gram matrix, (R, R) in float32, once for each step"
    ),
    hazards=(
        "Gram products in bf16 miss the tolerance: small singular values are amplified up to 500 times.",
        "x is bfloat16 in runs of every dtype.",
        "Gathering the columns once sends less than all-reducing Gram matrices, but every rank does all of the work.",
    ),
    tolerances=calibrated(bf16=6e-3, fp16=6e-3, fp32=6e-3),
    permutable=True,
)
