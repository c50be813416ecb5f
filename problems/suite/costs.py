"""Bytes and flops of the usual collectives: the pieces from which the problems' cost models are put together.

W ranks; S = bytes of the full logical buffer of one rank, as in nccl-tests. Point-to-point bounds are per rank and
direction; ``one_way`` is what remains when the switch reduces and multicasts.

Flops stand under the name of the unit that does them: matrix products under the run dtype (tensor cores), element-wise
work and reductions under "fp32" (vector units), whatever the dtype in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from problems.suite.base import RankCost

_NAMES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
    torch.int8: "int8",
}


def dtype_name(dtype: torch.dtype) -> str:
    """Name of the dtype in flop counts and target peaks: "bf16", "fp32", ..."""
    return _NAMES[dtype]


def element_size(dtype: torch.dtype) -> int:
    """Bytes of one element."""
    return torch.empty((), dtype=dtype).element_size()


def flops_of(dtype: torch.dtype, *, products: float, elementwise: float) -> dict[str, float]:
    """Flops by unit: matrix products in ``dtype``, element-wise work on vector units; added up where both are fp32."""
    flops = {dtype_name(dtype): products}
    flops["fp32"] = flops.get("fp32", 0.0) + elementwise
    return flops


def all_reduce_cost(W: int, S: float, *, flops: Mapping[str, float], hbm: float) -> list[RankCost]:
    """All-reduce of S bytes: 2 S (W-1)/W each way; S each way with in-switch reduction (nothing for one rank)."""
    wire = 2.0 * S * (W - 1) / W
    return [RankCost(flops, hbm, wire, wire, one_way=min(wire, S))] * W


def all_gather_cost(W: int, S: float, *, flops: Mapping[str, float], hbm: float) -> list[RankCost]:
    """All-gather of a total of S bytes: every rank receives S (W-1)/W; multicast does not lower that."""
    wire = S * (W - 1) / W
    return [RankCost(flops, hbm, wire, wire)] * W


def reduce_scatter_cost(W: int, S: float, *, flops: Mapping[str, float], hbm: float) -> list[RankCost]:
    """Reduce-scatter of S bytes per rank: every rank sends S (W-1)/W; in-switch reduction does not lower that."""
    wire = S * (W - 1) / W
    return [RankCost(flops, hbm, wire, wire)] * W


def all_to_all_cost(
    sizes: Sequence[Sequence[float]], *, flops: Mapping[str, float], hbm: Sequence[float]
) -> list[RankCost]:
    """Personalised exchange: ``sizes[s][d]`` bytes go from rank s to rank d; what stays on a rank costs no link.

    ``hbm`` gives the bytes of every rank, which may differ.
    """
    ranks = range(len(sizes))
    sent = [float(sum(sizes[r][d] for d in ranks if d != r)) for r in ranks]
    received = [float(sum(sizes[s][r] for s in ranks if s != r)) for r in ranks]
    return [RankCost(flops, hbm[r], sent[r], received[r]) for r in ranks]


def broadcast_cost(W: int, S: float, root: int, *, flops: Mapping[str, float], hbm: Sequence[float]) -> list[RankCost]:
    """Broadcast of S bytes in a pipelined tree: the root sends S, every other rank receives S.

    W - 1 copies must be sent by somebody; the W - 2 that the root does not send are spread evenly over the others. With
    multicast nobody but the root sends, but still every other rank receives S.
    """
    relayed = S * (W - 2) / (W - 1) if W > 2 else 0.0
    link = S if W > 1 else 0.0
    at_root = RankCost(flops, hbm[root], link, 0.0, one_way=link)
    return [at_root if r == root else RankCost(flops, hbm[r], relayed, link, one_way=link) for r in range(W)]


def reduce_cost(W: int, S: float, root: int, *, flops: Mapping[str, float], hbm: Sequence[float]) -> list[RankCost]:
    """Reduction of S bytes to the root: the mirror image of the broadcast."""
    mirrored = broadcast_cost(W, S, root, flops=flops, hbm=hbm)
    return [RankCost(c.flops, c.hbm, c.received, c.sent, c.one_way) for c in mirrored]


def gather_cost(
    sizes: Sequence[float], root: int, *, flops: Mapping[str, float], hbm: Sequence[float], scatters: bool = False
) -> list[RankCost]:
    """Gather of ``sizes[r]`` bytes from every rank r to the root; ``scatters``: the way back, from the root."""
    W = len(sizes)
    matrix = [[0.0] * W for _ in range(W)]
    for r, size in enumerate(sizes):
        source, destination = (root, r) if scatters else (r, root)
        matrix[source][destination] = size
    return all_to_all_cost(matrix, flops=flops, hbm=hbm)
