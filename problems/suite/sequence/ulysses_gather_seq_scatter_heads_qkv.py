"""Ulysses exchange of a packed QKV projection.

Legend: B batch, T local sequence, P = H D features of each of q, k and v (H heads, D head dimension), W ranks,
s a source rank, r the own rank, c in {0: q, 1: k, 2: v}, j a feature.

    out_r[b, s T + t, c P/W + j] = qkv_s[b, t, c P + r P/W + j]     qkv_s (B, T, 3 P), out_r (B, W T, 3 P/W)
    then only the first U positions, if U = unpadded_dim_size is neither 0 (or None) nor a multiple of W;
    with restore_shape False as (B, W T, 3, P/W)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_to_all_cost, element_size
from problems.suite.draws import bit_patterns
from problems.suite.families.ulysses import scatter_and_gather
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values; the structured draws use the other branches of the definition."""
    W, B, T, P = case.world_size, case["B"], case["T"], case["H"] * case["D"]
    unpadded = {"unpad": W * T - 1, "multiple": W * (T - 1), "zero": 0, "both": W * T - 1}.get(case.draw)
    shape: tuple[int, ...] = (B * T, 3 * P) if case.draw == "two_dims" else (B, T, 3 * P)
    ranks: list[Args] = []
    for r in range(W):
        qkv = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        ranks.append(
            {
                "qkv_tensor": qkv,
                "seq_dim": len(shape) - 2,
                "group": None,
                "unpadded_dim_size": unpadded,
                "restore_shape": case.draw not in ("unmerged", "both"),
            }
        )
    return ranks


def solution(
    qkv_tensor: torch.Tensor,
    seq_dim: int,
    group: Optional[ProcessGroup] = None,
    unpadded_dim_size: Optional[int] = None,
    restore_shape: bool = True,
) -> torch.Tensor:
    qkv = qkv_tensor.reshape(
        *qkv_tensor.shape[:-1], 3, -1
    )  # (B, T, 3, P): the features of q, k and v are cut separately
    out = scatter_and_gather(qkv, qkv.dim() - 1, seq_dim, group)
    if restore_shape:
        out = out.flatten(-2)
    if unpadded_dim_size and unpadded_dim_size % dist.get_world_size(group) != 0:
        out = out.narrow(seq_dim, 0, unpadded_dim_size)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    W, seq_dim = len(args), args[0]["seq_dim"]
    whole = torch.cat([a["qkv_tensor"] for a in args], dim=seq_dim)
    unpadded = args[0]["unpadded_dim_size"] or 0
    if unpadded % W != 0:
        whole = whole.narrow(seq_dim, 0, unpadded)
    thirds = [part.chunk(W, dim=-1) for part in whole.chunk(3, dim=-1)]
    join = torch.cat if args[0]["restore_shape"] else torch.stack
    dim = -1 if args[0]["restore_shape"] else -2
    return [Expected(Leaf(join([part[r] for part in thirds], dim=dim), case.dtype, Exact())) for r in range(W)]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; 3 B T P elements read and written; 1/W of them goes to each rank."""
    W, size = len(args), args[0]["qkv_tensor"].numel() * element_size(case.dtype)
    return all_to_all_cost([[size / W] * W for _ in range(W)], flops={}, hbm=[2.0 * size] * W)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("B", "T", "D"), keep=("H",))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if sizes["H"] % world_size == 0:
        return ""
    return f"The world size must divide the number of heads: {sizes['H']} mod {world_size} is not 0."


PROBLEM = Problem(
    id=38,
    slug="ulysses_gather_seq_scatter_heads_qkv",
    title="Ulysses exchange for a packed QKV projection",
    type="sequence",
    also=(),
    domain="llm_training",
    stage="communication",
    origin="Together AI xorl / ByteDance VeOmni ulysses.py: gather_seq_scatter_heads_qkv",
    difficulty=2,
    statement=(
        "Every rank holds its slice of the sequence for all heads: `qkv_tensor` (B, T, 3·P); its last axis is a block "
        "of P features of q, then P of k, then P of v; P = H·D. The result on rank r is the whole sequence with slice "
        "r (P/W features) of q, of k and of v: (B, W·T, 3·P/W), the positions of all ranks concatenated along "
        "`seq_dim` in rank order, bit for bit. With `restore_shape` False the last axis stays split: (B, W·T, 3, P/W). "
        "If `unpadded_dim_size` is neither None, nor 0, nor a multiple of W, only its first `unpadded_dim_size` "
        "positions are kept; otherwise nothing is cut. `group` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 16, "T": 16, "H": 8, "D": 64},
    cpu_sizes={"B": 16, "T": 16, "H": 8, "D": 64},
    check_sizes={"B": 2, "T": 3, "H": 8, "D": 6},
    hidden_sizes=hidden_sizes,
    hidden_property="B, T and D are odd, so no piece is a multiple of 16 bytes",
    linear=("qkv_tensor",),
    draws={
        "unmerged": "structured: restore_shape False",
        "unpad": "structured: unpadded_dim_size is one less than the gathered sequence",
        "both": "structured: restore_shape False and unpadded_dim_size one less than the gathered sequence",
        "multiple": "structured: unpadded_dim_size is a multiple of the world size, so nothing is cut",
        "zero": "structured: unpadded_dim_size is 0, so nothing is cut",
        "two_dims": "structured: two dimensions, the sequence first",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    world_size_rule=world_size_rule,
    communication="all_to_all of W pieces (B, T, 3, P/W) over the world group",
    hazards=(
        "A plain cut of the last axis into W pieces mixes q, k and v.",
        "unpadded_dim_size cuts only where it is not a multiple of the world size.",
        "At the public shape a rank sends less than 1 MiB: latency dominates.",
    ),
)
