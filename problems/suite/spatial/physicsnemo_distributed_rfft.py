"""Distributed 2-D real FFT, forward, with one transpose.

Legend: B fields, H rows, N columns, W ranks, r the own rank, h and n a position, k and l a frequency.

    X[b, k, l] = c sum over h, n of x[b, h, n] exp(-2 pi i (k h / H + l n / N)),  l <= N/2,  c = 1/sqrt(H N) for "ortho"
    x (B, H, N/W) float32: columns r N/W onwards; out (B, H/W, N/2 + 1) complex64: rows r H/W onwards of X
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Sequence

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, wide
from problems.suite.families.distributed_fft import FFT_TOLERANCES, transform_cost
from problems.suite.families.ulysses import scatter_and_gather
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """A standard normal field plus ramps along rows and columns, a slope for every field: strong low frequencies."""
    W, B = case.world_size, case["B"]
    group, members = (even_and_odd(W), W // 2) if case.draw == "subgroups" else (None, W)
    H, N = (members * -(-max(16, case[size]) // members) for size in ("M", "N"))
    width = N // members
    slopes = 1.0 + rng.uniform(None, (2, B, 1, 1))
    ranks: list[Args] = []
    for r in range(W):
        position = r // 2 if group is not None else r
        columns = (torch.arange(width) + position * width) / N
        x = rng.normal(r, (B, H, width)) + slopes[0] * (torch.arange(H) / H)[:, None] + slopes[1] * columns
        x *= {"small": 1e-3, "large": 1e3}.get(case.draw, 1.0)
        dim: tuple[int, int] = (1, 2)
        if case.draw == "fields_last":
            x, dim = x.permute(1, 2, 0).contiguous(), (0, 1)
        elif case.draw == "negative_dims":
            dim = (-2, -1)
        norm = case.draw if case.draw in ("backward", "forward") else "ortho"
        ranks.append({"x": x, "s": (H, N), "dim": dim, "norm": norm, "group": group})
    return ranks


def solution(
    x: torch.Tensor,
    s: Sequence[int],
    dim: Sequence[int],
    norm: str = "ortho",
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    rows, columns = dim
    spectrum: torch.Tensor = torch.fft.fft(x, n=s[0], dim=rows, norm=norm)  # (B, H, N/W)
    spectrum = scatter_and_gather(spectrum, rows, columns, group)  # (B, H/W, N)
    spectrum = torch.fft.fft(spectrum, n=s[1], dim=columns, norm=norm)
    return spectrum.narrow(columns, 0, s[1] // 2 + 1).contiguous()


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def transform(group: list[Args]) -> list[Expected]:
        rows, columns = group[0]["dim"]
        field = torch.cat([wide(a["x"]) for a in group], dim=columns)
        spectrum = torch.fft.rfft2(field, dim=(rows, columns), norm=group[0]["norm"])
        return [Expected(Leaf(block, torch.complex64)) for block in spectrum.chunk(len(group), dim=rows)]

    return by_group(args, transform)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """Real transforms; own columns read, own rows of the half spectrum written; a transpose of complex64."""

    def costs(group: list[Args]) -> list[RankCost]:
        W, (H, N) = len(group), group[0]["s"]
        elements = group[0]["x"].numel()
        fields = elements * W // (H * N)
        hbm = 4.0 * elements + 8.0 * fields * (H // W) * (N // 2 + 1)
        return [transform_cost(W, fields, H, N, hbm=hbm)] * W

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("B", "M", "N"))


PROBLEM = Problem(
    id=59,
    slug="physicsnemo_distributed_rfft",
    title="Distributed 2-D real FFT (forward) with one transpose",
    type="spatial",
    also=(),
    domain="scientific",
    stage="forward",
    origin="NVIDIA PhysicsNeMo physicsnemo/distributed/fft.py: DistributedRFFT2",
    difficulty=3,
    statement=(
        "Every rank holds a block of columns, `x` (B, H, N/W), of real fields with H rows and N columns; `s` is (H, N) "
        "and `dim` names the axes of rows and columns. The result on rank r is its block of H/W rows of the half "
        "spectrum, as `torch.fft.rfft2(field, norm=norm)` has it: (B, H/W, N/2+1), complex64, contiguous. `norm` is "
        'one of torch\'s: "ortho" (1/√(H·N)), "backward" (1), "forward" (1/(H·N)). The data are float32 whatever '
        "the run dtype. `group` None means the world group; with a process group, W counts its members."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 16, "M": 1024, "N": 1024},
    cpu_sizes={"B": 2, "M": 128, "N": 128},
    check_sizes={"B": 2, "M": 24, "N": 40},
    hidden_sizes=hidden_sizes,
    hidden_property="rows and columns are the next multiples of the world size above odd numbers; B is odd",
    draws={
        "backward": "structured: norm backward",
        "forward": "structured: norm forward",
        "fields_last": "structured: rows and columns are the first two axes",
        "negative_dims": "structured: axes given as -2 and -1",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "small": "stress: x scaled by 1e-3",
        "large": "stress: x scaled by 1e3",
    },
    skip_draw=lacks_subgroups,
    tolerances=FFT_TOLERANCES,
    communication="all_to_all of W complex64 pieces (B, H/W, N/W) over the world group",
    hazards=(
        "The result is complex: real and imaginary parts are both compared.",
        "Input is float32 and output complex64 whatever the run dtype.",
        "The axes and the norm are arguments.",
        "Conjugate symmetry of a real field's spectrum allows fewer bytes than the plain transpose from W = 4 on.",
    ),
)
