"""Tile-parallel VAE decode with overlap blending; trilinear upsampling stands in for the decoder.

Legend: z (B, C, T, H, N) latent, different on every rank; tiles of tl x th x tw latents at strides st, sh, sw; tu and
su upsampling in time and space; for every axis a blend extent b and a kept size k = tile size times upsampling minus b.

    tile (i, h, w) = z[:, :3, i st : i st + tl, h sh : h sh + th, w sw : w sw + tw] of its owner, upsampled
    owner: tiles sorted by their number of elements, largest first, ties by index; position p belongs to rank p mod W
    blend, along time, then height, then width, with the raw tile before along that axis, over its last e and the own
    first e elements, e = min(both sizes, b): own[j] = before[size - e + j] (1 - j/e) + own[j] j/e
    frames (B, 3, T tu, H su, N su): the first k elements of every tile along every axis, joined; on every rank
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, Tolerance, wide
from problems.suite.families.vae_tiles import Grid, upsampling
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Waves with a phase of their own on every rank plus noise, bfloat16 in every run: errors at tile borders show."""
    W, C = case.world_size, 2 if case.draw == "two_channels" else case["C"]
    shape = (1, C, case["T"], case["H"], case["N"])
    c, t, h, w = torch.meshgrid(*(torch.arange(size, dtype=torch.float32) for size in shape[1:]), indexing="ij")
    wave = 0.05 * h + 0.07 * w + 0.3 * t + c
    group = even_and_odd(W) if case.draw == "subgroups" else None
    ranks: list[Args] = []
    for r in range(W):
        z = 2.0 * torch.sin(wave + 2.0 * math.pi * rng.uniform(r, (1,))) + rng.normal(r, shape, std=0.5)
        z *= {"small": 1e-3, "large": 1e3}.get(case.draw, 1.0)
        ranks.append(
            {
                "z": z.to(torch.bfloat16),
                "tile_latent_min_length": case["TL"],
                "tile_latent_min_height": case["TS"],
                "tile_latent_min_width": case["TS"],
                "spatial_tile_overlap_factor": 0.5 if case.draw == "overlap" else 0.25,
                "temporal_tile_overlap_factor": 0.5 if case.draw == "overlap" else 0.0,
                "spatial_upsample": case["US"],
                "temporal_upsample": case["UT"],
                "sr_ratio": 2 if case.draw == "super_resolution" else 1,
                "first_frame_as_image": case.draw == "first_frame",
                "group": group,
            }
        )
    return ranks


def all_gather_uneven(own: torch.Tensor, sizes: list[int], group: Optional[dist.ProcessGroup]) -> list[torch.Tensor]:
    """Flat tensors of all ranks, ``sizes`` elements each, by one broadcast per rank."""
    flat = [own.new_empty(size) for size in sizes]
    flat[dist.get_rank(group)] = own
    sent = [dist.broadcast(piece, group=group, group_src=s, async_op=True) for s, piece in enumerate(flat)]
    for work in sent:
        work.wait()
    return flat


def decode(tile: torch.Tensor, time_factor: int, space_factor: int) -> torch.Tensor:
    """Stand-in decoder: the first three channels (repeated if there are fewer), trilinear upsampling, bfloat16."""
    channels = [c % tile.shape[1] for c in range(3)]
    factors = (float(time_factor), float(space_factor), float(space_factor))
    up = F.interpolate(tile[:, channels].float(), scale_factor=factors, mode="trilinear", align_corners=False)
    return up.to(torch.bfloat16)


def blend(before: torch.Tensor, tile: torch.Tensor, extent: int, axis: int) -> torch.Tensor:
    """Fades from the end of the tile before to the start of this one; products and their sum round to the dtype."""
    e = min(before.shape[axis], tile.shape[axis], extent)
    if e == 0:
        return tile
    fade = (torch.arange(e, dtype=torch.float64, device=tile.device) / e).view(-1, *[1] * (tile.dim() - axis - 1))
    old = before.narrow(axis, before.shape[axis] - e, e).float() * (1.0 - fade).float()
    new = tile.narrow(axis, 0, e).float() * fade.float()
    rest = tile.narrow(axis, e, tile.shape[axis] - e)
    return torch.cat((old.to(tile.dtype) + new.to(tile.dtype), rest), dim=axis)


def cut_axis(length: int, size: int, factor: int, overlap: float) -> tuple[list[slice], int, int]:
    """Spans of the tiles along one axis of the latent, blend extent and kept size in the decoded tile."""
    stride, extent = int(size * (1 - overlap)), int(size * factor * overlap)
    if stride <= 0:
        raise ValueError(f"tiles of size {size} that overlap by {overlap} have no positive stride")
    spans = [slice(start, min(start + size, length)) for start in range(0, length, stride)]
    return spans, extent, size * factor - extent


def exchange_tiles(
    own: list[torch.Tensor],
    owned: list[list[tuple[int, int, int]]],
    shapes: dict[tuple[int, int, int], list[int]],
    group: Optional[dist.ProcessGroup],
) -> dict[tuple[int, int, int], torch.Tensor]:
    """Own tiles of every rank -> all tiles on all ranks; ``shapes`` and ``owned`` are known to everybody."""
    sizes = [[math.prod(shapes[tile]) for tile in tiles] for tiles in owned]
    flat = torch.cat([tile.flatten() for tile in own])
    found = {}
    for source, piece in enumerate(all_gather_uneven(flat, [sum(row) for row in sizes], group)):
        for tile, values in zip(owned[source], torch.split(piece, sizes[source]), strict=True):
            found[tile] = values.view(shapes[tile])
    return found


def solution(
    z: torch.Tensor,
    tile_latent_min_length: int,
    tile_latent_min_height: int,
    tile_latent_min_width: int,
    spatial_tile_overlap_factor: float,
    temporal_tile_overlap_factor: float,
    spatial_upsample: int,
    temporal_upsample: int,
    sr_ratio: int = 1,
    first_frame_as_image: bool = False,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    W, r = dist.get_world_size(group), dist.get_rank(group)
    B, _, T, H, N = z.shape
    length = tile_latent_min_length + (1 if first_frame_as_image else 0)
    tu, su = temporal_upsample, spatial_upsample * sr_ratio
    ts, te, tk = cut_axis(T, length, tu, temporal_tile_overlap_factor)
    hs, he, hk = cut_axis(H, tile_latent_min_height, su, spatial_tile_overlap_factor)
    ws, we, wk = cut_axis(N, tile_latent_min_width, su, spatial_tile_overlap_factor)

    # Shapes of all tiles, decoded and after the cut, and who owns them: all of it follows from sizes alone.
    decoded, cut = {}, {}
    for t, h, w in product(range(len(ts)), range(len(hs)), range(len(ws))):
        spans = (ts[t], hs[h], ws[w])
        frames, height, width = (n * (span.stop - span.start) for n, span in zip((tu, su, su), spans, strict=True))
        decoded[t, h, w] = [B, 3, frames, height, width]
        cut[t, h, w] = [B, 3, min(frames, tk), min(height, hk), min(width, wk)]
    largest_first = sorted(decoded, key=lambda index: -math.prod(decoded[index]))  # stable: ties by index
    owned = [largest_first[rank::W] for rank in range(W)]

    own = [decode(z[:, :, ts[t], hs[h], ws[w]], tu, su) for t, h, w in owned[r]]
    raw = exchange_tiles(own, owned, decoded, group)  # of all ranks, because neighbours blend with them
    blended = []
    for t, h, w in owned[r]:
        tile = raw[t, h, w]
        if t > 0:
            tile = blend(raw[t - 1, h, w], tile, te, 2)
        if h > 0:
            tile = blend(raw[t, h - 1, w], tile, he, 3)
        if w > 0:
            tile = blend(raw[t, h, w - 1], tile, we, 4)
        blended.append(tile[:, :, :tk, :hk, :wk])
    done = exchange_tiles(blended, owned, cut, group)
    video = []
    for t in range(len(ts)):
        rows = [torch.cat([done[t, h, w] for w in range(len(ws))], dim=4) for h in range(len(hs))]
        video.append(torch.cat(rows, dim=3))
    return torch.cat(video, dim=2)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def video(group: list[Args]) -> list[Expected]:
        grid = Grid(group[0])
        raw = {}
        for rank, tiles in enumerate(grid.owned(len(group))):
            for tile in tiles:
                x = grid.take(wide(group[rank]["z"]), tile)
                x = x[:, [c % x.shape[1] for c in range(3)]]
                matrices = [upsampling(n, factor) for n, factor in zip(x.shape[2:], grid.factors, strict=True)]
                raw[tile] = torch.einsum("bcthn,xt,yh,zn->bcxyz", x, *matrices)
        size = [n * factor for n, factor in zip(group[0]["z"].shape[2:], grid.factors, strict=True)]
        frames = torch.full((group[0]["z"].shape[0], 3, *size), torch.nan, dtype=torch.float64)
        for tile in grid.spans:
            x = raw[tile].clone()
            for axis, extent in enumerate(grid.extents):
                if tile[axis] > 0:
                    before = raw[tuple(p - (a == axis) for a, p in enumerate(tile))].movedim(2 + axis, 0)
                    faded = x.movedim(2 + axis, 0)
                    e = min(len(before), len(faded), extent)
                    for j in range(e):
                        faded[j] = before[len(before) - e + j] * (1 - j / e) + faded[j] * (j / e)
            x = x[:, :, : grid.kept[0], : grid.kept[1], : grid.kept[2]]
            t, h, w = (slice(p * k, p * k + n) for p, k, n in zip(tile, grid.kept, x.shape[2:], strict=True))
            frames[:, :, t, h, w] = x
        return [Expected(Leaf(frames, torch.bfloat16)) for _ in group]

    return by_group(args, video)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """Three flops for each frame element of the own share; own tiles' latents read, all frames written.

    Link: decoding is cheap upsampling, so the fewest bytes are the latents of the own tiles, three channels, to every
    other rank, which then decodes and blends everything. The reference sends raw and blended tiles instead, a few
    hundred times as much. With multicast every rank still receives what the others own.
    """

    def costs(group: list[Args]) -> list[RankCost]:
        W, grid, z = len(group), Grid(group[0]), group[0]["z"]
        channels = 2.0 * z.shape[0] * min(3, z.shape[1])
        owned = []
        for tiles in grid.owned(W):
            covered = torch.zeros(z.shape[2:], dtype=torch.bool)
            for tile in tiles:
                covered[grid.spans[tile]] = True
            owned.append(channels * float(covered.sum()))
        frames = 3.0 * z.shape[0] * math.prod(n * factor for n, factor in zip(z.shape[2:], grid.factors, strict=True))
        ranks = []
        for own in owned:
            sent, received = (W - 1) * own, sum(owned) - own
            floor = min(max(sent, received), max(own if W > 1 else 0.0, received))
            ranks.append(RankCost({"fp32": 3.0 * frames / W}, own + 2.0 * frames, sent, received, one_way=floor))
        return ranks

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("H", "N"), keep=("C", "T", "TL", "TS", "US", "UT"))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    stride = int(sizes["TS"] * 0.75)
    tiles = -(-sizes["T"] // sizes["TL"]) * -(-sizes["H"] // stride) * -(-sizes["N"] // stride)
    if tiles >= world_size:
        return ""
    return f"Every rank must own a tile: {tiles} tiles for {world_size} ranks."


PROBLEM = Problem(
    id=78,
    slug="magi1_tile_parallel_vae_decode",
    title="Tile-parallel VAE decode with overlap blending (trilinear stand-in decoder)",
    type="spatial",
    also=(),
    domain="vision",
    stage="forward",
    origin="SandAI MAGI-1 tiled VAE decoding (TileProcessor); the decoder is replaced by trilinear upsampling",
    difficulty=4,
    statement=(
        "Every rank holds a latent `z` (B, C, T, H, N), bfloat16, **of its own**. With tl = tile_latent_min_length + "
        "(1 if first_frame_as_image else 0), th, tw the tile sizes, tu = temporal_upsample, su = spatial_upsample · "
        "sr_ratio and the overlap factors ot and os: strides int(tl·(1-ot)), int(th·(1-os)), int(tw·(1-os)), all "
        "positive (ValueError otherwise); blend extents int(tl·tu·ot), int(th·su·os), int(tw·su·os); kept sizes tl·tu, "
        "th·su, tw·su minus the extents. Tile (i, h, w) covers the latent from (i, h, w) times the strides, cut off at "
        "its end; there are ceil(T/stride) and so on of them, numbered with w fastest.\n\nTiles are dealt out by their "
        "number of elements, largest first, ties by number: position p to rank p mod W. The owner decodes a tile "
        "**from its own latent**: trilinear upsampling by (tu, su, su) with half-pixel centres in float32, channels 0 "
        "to 2 (repeated cyclically if there are fewer), rounded to bfloat16. Then each tile is blended with the "
        "decoded, not yet blended, tile before it in time, then in height, then in width: with e the least of both "
        "sizes and the extent, its element j < e becomes before[size-e+j]·(1-j/e) + own[j]·(j/e), each product and the "
        "sum rounded to bfloat16. Finally every tile is cut to the kept sizes and all are joined. Every rank returns "
        "the whole video, bfloat16: (B, 3, T·tu, H·su, N·su). `group` None means the world group; with a process "
        "group, W counts its members."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"C": 16, "T": 6, "H": 90, "N": 90, "TL": 3, "TS": 32, "US": 8, "UT": 4},
    cpu_sizes={"C": 4, "T": 4, "H": 26, "N": 24, "TL": 2, "TS": 8, "US": 2, "UT": 2},
    check_sizes={"C": 3, "T": 4, "H": 10, "N": 11, "TL": 2, "TS": 4, "US": 2, "UT": 2},
    hidden_sizes=hidden_sizes,
    hidden_property="height and width are odd, so that the last tiles are smaller",
    linear=("z",),
    draws={
        "overlap": "structured: tiles overlap by half in time, height and width",
        "first_frame": "structured: the first frame counts as an image, tiles are longer by one",
        "super_resolution": "structured: sr_ratio 2",
        "two_channels": "structured: two channels, of which the first is used twice",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "small": "stress: z scaled by 1e-3",
        "large": "stress: z scaled by 1e3",
    },
    world_size_rule=world_size_rule,
    skip_draw=lacks_subgroups,
    communication=(
        "all_gather of uneven sizes (a broadcast for each rank): raw decoded tiles\nall_gather of uneven sizes: "
        "blended and cut tiles"
    ),
    hazards=(
        "Latents differ from rank to rank, so the map of owners matters; it follows from shapes alone.",
        "Blending uses raw neighbours, so the order of the axes matters at corners.",
        "Input and output are bfloat16 whatever the run dtype; only three channels are used.",
        "Sending latents and decoding everything locally gives the same result with far fewer bytes.",
    ),
    tolerances=dict.fromkeys(
        (torch.float32, torch.bfloat16, torch.float16), Tolerance(units=3e-2, relative=1e-2)
    ),  # bfloat16 whatever the run dtype
)
