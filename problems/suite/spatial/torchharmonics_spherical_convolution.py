"""Distributed spherical (DISCO) convolution on a polar x azimuth grid of ranks.

Legend: B batch, C channels in, Co channels out, K kernels, NLAT latitudes, NLON longitudes in and NOUT out,
s = NLON/NOUT; pol x az = W grid of ranks, p polar and a azimuth index (rank = p az + a), hl = NLAT/pol, wl = NLON/az.

    y[b, c, k, o, w] = sum over q, lat, lon of psi_qa[k, o, lat NLON + lon] X[b, c, q hl + lat, (lon + s w) mod NLON]
                       with the psi of the ranks (q, a) whose a owns channel block a of c: c in [a C/az, (a+1) C/az)
    out[b, o, i, j]  = bias[o] + sum over channels c of o's group and k of weight[o, c, k] y[b, c, k, i, j]
    x (B, C, hl, wl) tile of X, psi sparse (K, NLAT, hl NLON), weight (Co, C/groups, K), out (B, Co, hl, NOUT/az)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Group, Leaf, Problem, RankCost, Rng, Tolerance, wide
from problems.suite.families.ulysses import scatter_and_gather
from problems.suite.golden import sin_rule
from problems.suite.groups import contiguous, strided
from problems.suite.shapes import jitter


def _grid(case: Case) -> tuple[int, Group | None, Group | None]:
    """Number of azimuth ranks, azimuth and polar groups; None where the axis is not split."""
    W = case.world_size
    if case.draw == "polar_only":
        return 1, None, contiguous(W, W)
    if case.draw == "azimuth_only":
        return W, contiguous(W, W), None
    az = 2 if W % 2 == 0 else 1
    return az, contiguous(W, az), strided(W, az)


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Normal tiles; one to six entries of psi per kernel and output latitude, anywhere; everything differs by rank."""
    az, azimuth_group, polar_group = _grid(case)
    pol = case.world_size // az
    nlat, nlon = pol * -(-case["NLAT"] // pol), 2 * az * -(-case["NLON"] // (2 * az))
    C, Co, K, groups = case["C"], case["Co"], case["K"], 2 if case.draw == "grouped" else 1
    scale = {"small": 1e-3, "large": 1e3}.get(case.draw, 1.0)
    ranks: list[Args] = []
    for r in range(case.world_size):
        x = rng.normal(r, (case["B"], C, nlat // pol, nlon // az), std=scale)
        ranks.append(
            {
                "x": x,
                "psi": _psi(case, rng, r, (K, nlat, nlat // pol), nlon, r // az),
                "weight": rng.normal(r, (Co, C // groups, K), std=(C // groups * K) ** -0.5),
                "groups": groups,
                "nlon_out": nlon // 2 if case.draw == "coarse" else nlon,
                "nlon_in": nlon,
                "azimuth_group": azimuth_group,
                "polar_group": polar_group,
                "bias": None if case.draw == "no_bias" else rng.normal(r, (Co,), std=scale),
            }
        )
    return ranks


def _psi(case: Case, rng: Rng, rank: int, shape: tuple[int, int, int], nlon: int, polar: int) -> torch.Tensor:
    """Sparse filter bank (K, nlat, hl nlon). The draw "band" has the four entries per row of the public workload."""
    K, nlat, hl = shape
    k, o = torch.meshgrid(torch.arange(K), torch.arange(nlat), indexing="ij")
    k, o = k.reshape(-1, 1), o.reshape(-1, 1)
    if case.draw == "band":
        columns = (o - polar * hl) % hl * nlon + (o + torch.arange(4) * (k + 1)) % nlon
        kept = torch.ones(columns.shape, dtype=torch.bool)
    else:
        # Distinct columns: the smallest of random keys, six at most, as many as drawn for the row.
        columns = rng.uniform(rank, (K * nlat, hl * nlon)).topk(min(6, hl * nlon), largest=False).indices
        kept = torch.arange(columns.shape[1]) < rng.integers(rank, 1, 6, (K * nlat, 1))
    if case.draw == "gaps":
        kept &= (rng.uniform(rank, (K * nlat, 1)) < 0.3) & (rank != 0)
    indices = torch.stack([index.expand_as(columns)[kept] for index in (k, o, columns)])
    values = rng.normal(rank, (indices.shape[1],), std=0.5)
    return torch.sparse_coo_tensor(indices, values, (K, nlat, hl * nlon), check_invariants=False).coalesce()


def contract(psi: torch.Tensor, x: torch.Tensor, nlon_in: int, nlon_out: int) -> torch.Tensor:
    """Filters every rotation of x, one output longitude after the other: (B, C, hl, NLON) -> (B, C, K, NLAT, NOUT)."""
    K, nlat, columns = psi.shape
    psi = psi.coalesce()
    k, o, column = psi.indices()
    rows_and_columns = torch.stack((k * nlat + o, column))
    filters = torch.sparse_coo_tensor(rows_and_columns, psi.values(), (K * nlat, columns), check_invariants=False)
    B, C, hl, _ = x.shape
    rotated = x.permute(2, 3, 0, 1).reshape(hl, nlon_in, B * C)
    filtered = []
    for _ in range(nlon_out):
        filtered.append(torch.sparse.mm(filters, rotated.reshape(hl * nlon_in, B * C)))
        rotated = rotated.roll(-(nlon_in // nlon_out), dims=1)
    return torch.stack(filtered, dim=-1).view(K, nlat, B, C, nlon_out).permute(2, 3, 0, 1, 4)


def solution(
    x: torch.Tensor,
    psi: torch.Tensor,
    weight: torch.Tensor,
    groups: int,
    nlon_out: int,
    nlon_in: int,
    azimuth_group: Optional[dist.ProcessGroup] = None,
    polar_group: Optional[dist.ProcessGroup] = None,
    bias: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    # None means here that the axis is not split.
    azimuth_size = 1 if azimuth_group is None else dist.get_world_size(azimuth_group)
    polar_size = 1 if polar_group is None else dist.get_world_size(polar_group)
    if azimuth_size > 1:
        x = scatter_and_gather(x, 1, 3, azimuth_group)  # (B, C/az, hl, NLON)
    y = contract(psi, x, nlon_in, nlon_out)  # (B, C/az, K, NLAT, NOUT), from the own latitudes only
    if polar_size > 1:
        y = y.contiguous()
        dist.all_reduce(y, group=polar_group)
        y = y.chunk(polar_size, dim=3)[dist.get_rank(polar_group)]
    if azimuth_size > 1:
        y = scatter_and_gather(y, 4, 1, azimuth_group)  # (B, C, K, hl, NOUT/az)
    B, C, K, hl, wl = y.shape
    y = y.reshape(B, groups, C // groups, K, hl, wl)
    mixing = weight.reshape(groups, weight.shape[0] // groups, C // groups, K)
    out = torch.einsum("bgckij,gock->bgoij", y, mixing).reshape(B, weight.shape[0], hl, wl)
    return out if bias is None else out + bias.view(1, -1, 1, 1)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    az, pol = _grid_of(args)
    nlon, nout, groups = args[0]["nlon_in"], args[0]["nlon_out"], args[0]["groups"]
    rows = [torch.cat([wide(args[p * az + a]["x"]) for a in range(az)], dim=3) for p in range(pol)]
    B, C, hl, _ = rows[0].shape
    K, nlat, _ = args[0]["psi"].shape
    y = torch.zeros(B, C, K, nlat, nout, dtype=torch.float64)
    for rank, a in enumerate(args):
        own = slice(rank % az * (C // az), (rank % az + 1) * (C // az))
        psi = a["psi"].coalesce()
        for (k, o, column), value in zip(psi.indices().T.tolist(), psi.values().tolist(), strict=True):
            longitudes = (column % nlon + nlon // nout * torch.arange(nout)) % nlon
            y[:, own, k, o] += value * rows[rank // az][:, own, column // nlon][..., longitudes]
    expected = []
    for rank, a in enumerate(args):
        tile = y[:, :, :, rank // az * hl :][:, :, :, :hl].chunk(az, dim=4)[rank % az]
        outputs = []
        for channels, weight in zip(tile.chunk(groups, dim=1), wide(a["weight"]).chunk(groups), strict=True):
            outputs.append(torch.einsum("bckij,ock->boij", channels, weight))
        out = torch.cat(outputs, dim=1)
        if a["bias"] is not None:
            out += wide(a["bias"])[:, None, None]
        expected.append(Expected(Leaf(out, torch.float32)))
    return expected


def _grid_of(args: list[Args]) -> tuple[int, int]:
    """Numbers of azimuth and polar ranks, from the groups among the arguments."""
    groups = (args[0]["azimuth_group"], args[0]["polar_group"])
    az, pol = (1 if group is None else len(group.partition[0]) for group in groups)
    return az, pol


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 flops for each entry of psi, output longitude and channel in hand, and the mixing; tiles, psi, result once.

    Link, the cheaper of two schemes. Either channels and longitudes change places, partial y are summed and scattered
    over the polar ranks, and longitudes and channels change places again; or every rank gets all tiles and the rows of
    every psi for its own latitudes (8 bytes an entry: value and column) and filters for its own tile. Nothing less than
    the size of the own result is known to do, should the switch sum partial results.
    """
    (az, pol), W = _grid_of(args), len(args)
    B, C, hl, wl = args[0]["x"].shape
    K, nlat, _ = args[0]["psi"].shape
    nout, (Co, mixed, _) = args[0]["nlon_out"], args[0]["weight"].shape
    tile, result = 4.0 * B * C * hl * wl, 4.0 * B * Co * hl * nout / az
    summed = 4.0 * B * (C // az) * K * nlat * nout
    transposing = (az - 1) / az * (tile + summed / pol) + (pol - 1) / pol * summed
    # entries[q][p]: entries of the psi of rank q for the latitudes of polar index p.
    entries = [torch.bincount(a["psi"].coalesce().indices()[1] // hl, minlength=pol).tolist() for a in args]
    sent = [sum(tile + 8 * entries[q][r // az] for r in range(W) if r != q) for q in range(W)]
    received = [sum(tile + 8 * entries[q][r // az] for q in range(W) if q != r) for r in range(W)]
    if transposing <= max(received):
        sent, received = [transposing] * W, [transposing] * W
    ranks = []
    for r, a in enumerate(args):
        nnz = a["psi"].coalesce().values().numel()
        flops = {"fp32": 2.0 * nnz * nout * B * (C // az) + 2.0 * B * Co * mixed * K * hl * nout / az}
        floor = min(result, sent[r], received[r]) if W > 1 else 0.0
        ranks.append(RankCost(flops, tile + result + 28.0 * nnz, sent[r], received[r], one_way=floor))
    return ranks


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("B", "Co", "NLAT", "NLON"), keep=("C", "K"))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    az = 2 if world_size % 2 == 0 else 1
    if sizes["C"] % az == 0:
        return ""
    return f"The {az} azimuth ranks must share the channels evenly: {sizes['C']} mod {az} is not 0."


def skip_draw(case: Case) -> bool:
    return (case.draw == "azimuth_only" and case["C"] % case.world_size != 0) or (
        case.draw == "grouped" and (case["C"] % 2 != 0 or case["Co"] % 2 != 0)
    )


def golden_inputs(name: str, world_size: int) -> list[Args]:
    """The sin rule; psi with four entries for each kernel and output latitude, its values in the order of the rows."""
    K, nlat, hl, nlon = 3, 8, 4, 16
    ranks: list[Args] = []
    for r in range(world_size):
        triples = [
            (k, o, (o - r // 2 * hl) % hl * nlon + (o + j * (k + 1)) % nlon)
            for k in range(K)
            for o in range(nlat)
            for j in range(4)
        ]
        values = sin_rule([len(triples)], rank=r, k=1)
        psi = torch.sparse_coo_tensor(torch.tensor(triples).T, values, (K, nlat, hl * nlon), check_invariants=False)
        ranks.append(
            {
                "x": sin_rule([2, 4, hl, nlon // 2], rank=r, k=0),
                "psi": psi.coalesce(),
                "weight": sin_rule([6, 4, K], rank=r, k=2),
                "groups": 1,
                "nlon_out": nlon,
                "nlon_in": nlon,
                "azimuth_group": contiguous(world_size, 2),
                "polar_group": strided(world_size, 2),
                "bias": sin_rule([6], rank=r, k=8),
            }
        )
    return ranks


PROBLEM = Problem(
    id=62,
    slug="torchharmonics_spherical_convolution",
    title="Distributed spherical (DISCO) convolution on a polar x azimuth process grid",
    type="spatial",
    also=("tensor",),
    domain="scientific",
    stage="forward",
    origin="NVIDIA torch-harmonics DistributedDiscreteContinuousConvS2, its contraction in torch",
    difficulty=4,
    statement=(
        "A map of NLAT latitudes and NLON longitudes lies in tiles on a grid of pol x az ranks: `azimuth_group` holds "
        "the neighbouring ranks of one band of latitudes, `polar_group` the ranks az apart with the same longitudes. "
        "Rank (p, a) holds `x` (B, C, hl, wl), a filter bank `psi`, sparse COO of size (K, NLAT, hl·NLON), coalesced, "
        "`weight` (Co, C/groups, K) and `bias` (Co) or None; all of them differ from rank to rank. Everything is "
        "float32.\n\n1. Over the azimuth ranks channels change places with longitudes: azimuth index a gets channel "
        "block a of the whole band, (B, C/az, hl, NLON).\n2. With the rank's own psi and s = nlon_in / nlon_out: y[b, "
        "c, k, o, w] = Σ psi[k, o, lat·NLON + lon] · x[b, c, lat, (lon + s·w) mod NLON], for all output latitudes o of "
        "the sphere and w < nlon_out.\n3. y is summed over the polar ranks; rank (p, ·) keeps its own block of hl "
        "output latitudes.\n4. Over the azimuth ranks longitudes change places with channels: (B, C, K, hl, "
        "nlon_out/az).\n5. out[b, o, i, j] = bias[o] + Σ over the channels c of o's group and k of weight[o, c, k] · "
        "y[b, c, k, i, j], with the weight of the rank that owns the tile: (B, Co, hl, nlon_out/az).\n\nA group None "
        "means that the axis is not split."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 32, "C": 8, "Co": 8, "K": 3, "NLAT": 128, "NLON": 256},
    cpu_sizes={"B": 2, "C": 8, "Co": 8, "K": 3, "NLAT": 16, "NLON": 32},
    check_sizes={"B": 2, "C": 4, "Co": 6, "K": 3, "NLAT": 8, "NLON": 16},
    hidden_sizes=hidden_sizes,
    hidden_property="latitudes and longitudes are no powers of two, the batch and the output channels are odd",
    linear=("x", "bias"),
    draws={
        "coarse": "structured: half as many longitudes in the result as in the input",
        "grouped": "structured: two groups of channels",
        "no_bias": "structured: no bias",
        "band": "structured: four entries of psi per row, along a band, as in the public workload",
        "gaps": "structured: most rows of psi are empty, and the whole psi of one rank",
        "polar_only": "structured: no azimuth group, latitudes cut over all ranks",
        "azimuth_only": "structured: no polar group, longitudes cut over all ranks",
        "small": "stress: x and bias scaled by 1e-3",
        "large": "stress: x and bias scaled by 1e3",
    },
    world_size_rule=world_size_rule,
    skip_draw=skip_draw,
    golden_inputs=golden_inputs,
    communication=(
        "all_to_all over the azimuth_group, channels to longitudes, (B, C, hl, wl)\nall_reduce SUM of y over the "
        "polar_group, (B, C/az, K, NLAT, NLON)\nall_to_all over the azimuth_group, longitudes to channels, (B, C/az, "
        "K, hl, NLON)"
    ),
    hazards=(
        "psi, weight and bias differ from rank to rank; channel block a is filtered with the psi of azimuth index a.",
        "Columns of psi count the band's own latitudes, its rows all latitudes of the sphere.",
        "The reference sums y for all latitudes on every polar rank and keeps one block of it.",
        "The reference filters one output longitude at a time, so its time says little about communication.",
        "Sums on TF32 units miss the tolerance.",
    ),
    tolerances=dict.fromkeys(
        (torch.float32, torch.bfloat16, torch.float16), Tolerance(units=5e-5, relative=2e-5)
    ),  # float32 whatever the run dtype
)
