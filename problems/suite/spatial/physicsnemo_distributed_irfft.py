"""Distributed 2-D inverse real FFT with conjugate extension and one transpose.

Legend: B batch, C channels, H rows, N columns, W ranks, r the own rank, k and l a frequency, h and n a position.

    E[k, l] = X[k, l] for l <= N/2, the conjugate of X[(H - k) mod H, N - l] beyond
    out[h, n] = real part of c sum over k, l of E[k, l] exp(2 pi i (k h / H + l n / N)),  c = 1/sqrt(H N) for "ortho"
    x (B, C, H/W, N/2 + 1) complex64: rows r H/W onwards of X; out (B, C, H, N/W) float32: columns r N/W onwards
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Sequence

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.families.distributed_fft import FFT_TOLERANCES, transform_cost
from problems.suite.families.ulysses import scatter_and_gather
from problems.suite.golden import sin_rule
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Any complex spectrum: independent normal real and imaginary parts, in the columns 0 and N/2 as well."""
    W, B, C, H, N = case.world_size, case["B"], case["C"], case["H"], case["N"]
    group, members = (even_and_odd(W), W // 2) if case.draw == "subgroups" else (None, W)
    shape, dim = (B, C, H // members, N // 2 + 1), (-2, -1)
    if case.draw == "channels_last":
        shape, dim = (B, H // members, N // 2 + 1, C), (1, 2)
    scale = {"small": 1e-3, "large": 1e3}.get(case.draw, 1.0)
    norm = case.draw if case.draw in ("backward", "forward") else "ortho"
    ranks: list[Args] = []
    for r in range(W):
        x = scale * torch.complex(rng.normal(r, shape), rng.normal(r, shape))
        ranks.append({"x": x, "s": (H, N), "dim": dim, "norm": norm, "group": group})
    return ranks


def solution(
    x: torch.Tensor,
    s: Optional[Sequence[int]],
    dim: Sequence[int],
    norm: str = "ortho",
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    W, r = dist.get_world_size(group), dist.get_rank(group)
    rows, columns = dim
    local, half = x.shape[rows], x.shape[columns]
    n_rows, n_columns = (local, 2 * (half - 1)) if s is None else (s[0], s[1])
    # The other half of the own rows: the conjugate of the mirrored rows, which lie on other ranks.
    blocks = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(W)]
    dist.all_gather(blocks, x.contiguous(), group=group)
    spectrum = torch.cat(blocks, dim=rows)
    H = spectrum.shape[rows]
    mirrored_rows = -torch.arange(r * local, (r + 1) * local, device=x.device) % H
    mirrored_columns = n_columns - torch.arange(half, n_columns, device=x.device)
    mirrored = spectrum.index_select(rows, mirrored_rows).index_select(columns, mirrored_columns)
    extended = torch.cat((x, mirrored.conj()), dim=columns)  # (B, C, H/W, N)
    field = torch.fft.ifft(extended, n=n_columns, dim=columns, norm=norm)
    field = scatter_and_gather(field, columns, rows, group)  # (B, C, H, N/W)
    field = torch.fft.ifft(field, n=n_rows, dim=rows, norm=norm)
    real: torch.Tensor = field.real
    return real.contiguous()


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def transform(group: list[Args]) -> list[Expected]:
        rows, columns = group[0]["dim"]
        spectrum = torch.cat([a["x"].to(torch.complex128) for a in group], dim=rows)
        field = torch.fft.irfft2(spectrum, s=group[0]["s"], dim=(rows, columns), norm=group[0]["norm"])
        return [Expected(Leaf(block, torch.float32)) for block in field.chunk(len(group), dim=columns)]

    return by_group(args, transform)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """Real transforms; own rows of the half spectrum read, own columns written; a transpose of complex64.

    The extension needs no bytes: doubling the columns 1 to N/2 - 1 and padding with zeros gives the same real part. The
    reference gathers the whole spectrum on every rank for it.
    """

    def costs(group: list[Args]) -> list[RankCost]:
        W, (H, N) = len(group), group[0]["s"]
        elements = group[0]["x"].numel()
        fields = elements * W // (H * (N // 2 + 1))
        hbm = 8.0 * elements + 4.0 * fields * H * (N // W)
        return [transform_cost(W, fields, H, N, hbm=hbm)] * W

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("C",), multiple={"H": 24, "N": 24}, keep=("B",))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    H, N = sizes["H"], sizes["N"]
    if H % world_size == 0 and N % world_size == 0:
        return ""
    return f"The world size {world_size} must divide the rows and the columns: H = {H}, N = {N}."


def golden_inputs(name: str, world_size: int) -> list[Args]:
    """Real part by the sin rule with k = 0, imaginary part with k = 0.5."""
    ranks: list[Args] = []
    for r in range(world_size):
        parts = [sin_rule([1, 2, 8 // world_size, 9], rank=r, k=k) for k in (0.0, 0.5)]
        ranks.append({"x": torch.complex(*parts), "s": (8, 16), "dim": (-2, -1), "norm": "ortho", "group": None})
    return ranks


PROBLEM = Problem(
    id=60,
    slug="physicsnemo_distributed_irfft",
    title="Distributed 2-D inverse real FFT with conjugate extension and one transpose",
    type="spatial",
    also=(),
    domain="scientific",
    stage="forward",
    origin="NVIDIA PhysicsNeMo physicsnemo/distributed/fft.py: DistributedIRFFT2, conj_pad_2d",
    difficulty=4,
    statement=(
        "Every rank holds a block of rows, `x` (B, C, H/W, N/2+1), complex64, of half spectra of real fields with H "
        "rows and N columns; `s` is (H, N) and `dim` names the axes of rows and columns. The result on rank r is its "
        "block of N/W columns of the fields, as `torch.fft.irfft2(spectrum, s=s, norm=norm)` has it: (B, C, H, N/W), "
        "float32, contiguous. The spectrum is arbitrary: its columns 0 and N/2 need not be conjugate-symmetric.\n\n"
        "In full: extend each row to N columns, E[k, l] = conj(X[(H-k) mod H, N-l]) for l > N/2; inverse transforms "
        'along columns and rows; real part. `norm` is one of torch\'s: "ortho" (1/√(H·N)), "backward" (1/(H·N)), '
        '"forward" (1). With `s` None, in a group of one rank, H and N follow from the shape of `x`. The data are '
        "complex64 whatever the run dtype. `group` None means the world group; with a process group, W counts its "
        "members."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 2, "C": 10, "H": 720, "N": 1440},
    cpu_sizes={"B": 1, "C": 2, "H": 72, "N": 144},
    check_sizes={"B": 1, "C": 2, "H": 16, "N": 24},
    hidden_sizes=hidden_sizes,
    hidden_property="C is odd, rows and columns are multiples of 24",
    draws={
        "backward": "structured: norm backward",
        "forward": "structured: norm forward",
        "channels_last": "structured: rows and columns are the two axes in the middle",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "small": "stress: x scaled by 1e-3",
        "large": "stress: x scaled by 1e3",
    },
    world_size_rule=world_size_rule,
    skip_draw=lacks_subgroups,
    tolerances=FFT_TOLERANCES,
    golden_inputs=golden_inputs,
    communication=(
        "all_gather of the half spectra, complex64 (B, C, H/W, N/2 + 1)\nall_to_all of W complex64 pieces (B, C, H/W, "
        "N/W)"
    ),
    hazards=(
        "Columns 0 and N/2 are arbitrary complex numbers, taken as they are.",
        "The all-gather is not needed: doubling the columns between 0 and N/2 and padding with zeros gives the same "
        "real part.",
        "Input is complex64 and output float32 whatever the run dtype.",
        "Large: at the public shape and W = 4 a rank's spectrum has 21 MB, all of them 83 MB.",
    ),
)
