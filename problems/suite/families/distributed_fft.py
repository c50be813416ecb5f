"""Distributed 2-D real transforms: least bytes and flops, which forward and inverse have in common.

Legend: n pairs of transforms, H x N the real field, W ranks.
"""

from __future__ import annotations

import math

import torch

from problems.suite.base import RankCost, Tolerance

# The data are float32 and complex64 whatever the run dtype.
FFT_TOLERANCES = dict.fromkeys((torch.float32, torch.bfloat16, torch.float16), Tolerance(units=5e-5, relative=2e-5))


def transform_cost(W: int, fields: int, H: int, N: int, *, hbm: float) -> RankCost:
    """One rank's share of ``fields`` real transforms of H x N: 2.5 H N log2(H N) flops each; bytes of a transpose.

    A plain transpose sends (W-1)/W of the rank's slab, H N / W complex numbers for each field. Since the field is
    real, rows k and H - k of its spectrum are conjugate: transposing one row of each pair, half of that, and then
    handing a quarter of the slab to the owner of the other row is less for W > 2. No algorithm receives less than half
    a slab, the rank of the map from the other ranks' data to the own result.
    """
    slab = 8.0 * fields * H * N / W
    wire = slab * min((W - 1) / W, (W - 1) / (2 * W) + 0.25) if W > 1 else 0.0
    flops = {"fp32": 2.5 * fields * H * N * math.log2(H * N) / W}
    return RankCost(flops, hbm, wire, wire, one_way=min(wire, slab / 2))
