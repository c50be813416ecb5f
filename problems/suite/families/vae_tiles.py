"""Tiles of a tile-parallel VAE decode as its definition has them: for oracle and cost model, not for references."""

from __future__ import annotations

import math
from itertools import product

import torch

from problems.suite.base import Args


class Grid:
    """Tiles of one call: span in the latent of every tile, upsampling, blend extents and kept sizes of every axis."""

    def __init__(self, args: Args) -> None:
        space, time = args["spatial_tile_overlap_factor"], args["temporal_tile_overlap_factor"]
        length = args["tile_latent_min_length"] + int(args["first_frame_as_image"])
        su = args["spatial_upsample"] * args["sr_ratio"]
        self.factors, self.extents, self.kept, axes = [], [], [], []
        for n, size, factor, overlap in zip(
            args["z"].shape[2:],
            (length, args["tile_latent_min_height"], args["tile_latent_min_width"]),
            (args["temporal_upsample"], su, su),
            (time, space, space),
            strict=True,
        ):
            stride, extent = int(size * (1 - overlap)), int(size * factor * overlap)
            axes.append([slice(start, min(n, start + size)) for start in range(0, n, stride)])
            self.factors.append(factor)
            self.extents.append(extent)
            self.kept.append(size * factor - extent)
        numbered = product(*(enumerate(spans) for spans in axes))
        self.spans = {tuple(p for p, _ in tile): tuple(span for _, span in tile) for tile in numbered}

    def take(self, z: torch.Tensor, tile: tuple[int, ...]) -> torch.Tensor:
        """The latent (B, C, ...) of one tile."""
        t, h, w = self.spans[tile]
        return z[:, :, t, h, w]

    def owned(self, W: int) -> list[list[tuple[int, ...]]]:
        """Tiles of every rank: dealt out by size, largest first, ties by index."""
        elements = {tile: math.prod(span.stop - span.start for span in spans) for tile, spans in self.spans.items()}
        order = sorted(elements, key=lambda tile: (-elements[tile], tile))
        return [order[rank::W] for rank in range(W)]


def upsampling(n: int, factor: int) -> torch.Tensor:
    """Matrix (n factor, n) of linear interpolation with half-pixel centres."""
    source = ((torch.arange(n * factor, dtype=torch.float64) + 0.5) / factor - 0.5).clamp(min=0.0)
    left = source.floor().long()
    matrix = torch.zeros(n * factor, n, dtype=torch.float64)
    rows = torch.arange(n * factor)
    matrix[rows, left] += 1.0 - (source - left)
    matrix[rows, (left + 1).clamp(max=n - 1)] += source - left
    return matrix
