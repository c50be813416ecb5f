"""Bytes and flops of the usual collectives: the pieces from which the problems' cost models are put together.

W ranks; S = bytes of the full logical buffer of one rank, as in nccl-tests. Point-to-point bounds are per rank and
direction; ``one_way`` is what remains when the switch reduces and multicasts.
"""

from __future__ import annotations

from collections.abc import Mapping

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
