"""Ulysses attention block: QKV projection, exchange, attention, exchange back, output projection.

Legend: B batch, S local sequence, H heads, D head dimension, C = H D, W ranks, G = H/W heads of a group, b and t a
position, g a head group, i and j heads of it.

    q, k, v = x W_qkv^T as (B, S, 3, H, D)                          x (B, S, C), W_qkv (3 C, C), W_o (C, C)
    a[b, t, g, i, :] = softmax over j of q[b, t, g, i] . k[b, t, g, j] / sqrt(D);  causal: only j <= i
    out = (sum over j of a[b, t, g, i, j] v[b, t, g, j]) W_o^T                      out (B, S, C)

As in the public workload, attention runs between the heads of a group at one position, not along the sequence. So the
exchanges cancel: the same result needs no communication. The definition is kept for the sake of comparison.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.families.ulysses import scatter_and_gather
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal tokens and weights of 1/sqrt(C): scores and outputs of order one; own weights on each rank."""
    W, C = case.world_size, case["H"] * case["D"]
    shape = (case["B"], max(1, case["T"] // W), C)
    scale = {"small": 1e-3, "large": 1e3}.get(case.draw, 1.0)
    ranks: list[Args] = []
    for r in range(W):
        ranks.append(
            {
                "hidden_states": rng.normal(r, shape).to(case.dtype),
                "w_qkv": rng.normal(r, (3 * C, C), std=C**-0.5).to(case.dtype),
                "w_o": rng.normal(r, (C, C), std=scale * C**-0.5).to(case.dtype),
                "group": None,
                "num_heads": case["H"],
                "causal": case.draw == "causal",
            }
        )
    return ranks


def solution(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    group: Optional[dist.ProcessGroup] = None,
    num_heads: int = 8,
    causal: bool = False,
) -> torch.Tensor:
    B, S, _ = hidden_states.shape
    q, k, v = F.linear(hidden_states, w_qkv).view(B, S, 3, num_heads, -1).unbind(2)  # each (B, S, H, D)
    W = dist.get_world_size(group)
    if W > 1:
        q = scatter_and_gather(q, 2, 1, group)  # (B, W S, G, D)
        # k and v of a head side by side, so that one exchange carries both.
        kv = torch.stack((k, v), dim=3).flatten(2, 3)  # (B, S, 2 H, D)
        k, v = scatter_and_gather(kv, 2, 1, group).view(*q.shape[:3], 2, -1).unbind(3)
    scores = torch.matmul(q, k.transpose(-1, -2)) * q.shape[-1] ** -0.5  # (B, W S, G, G)
    if causal and q.shape[1] > 1:
        G = scores.shape[-1]
        later = torch.ones(G, G, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    out = torch.matmul(torch.softmax(scores, dim=-1, dtype=torch.float32).to(v.dtype), v)
    if W > 1:
        out = scatter_and_gather(out, 1, 2, group)  # (B, S, H, D)
    return F.linear(out.reshape(B, S, -1), w_o)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    W, H = len(args), args[0]["num_heads"]
    qkv = torch.cat([wide(a["hidden_states"]) @ wide(a["w_qkv"]).T for a in args], dim=1)
    B, T, C = qkv.shape[0], qkv.shape[1], qkv.shape[2] // 3
    q, k, v = (x.reshape(B, T, W, H // W, C // H) for x in qkv.chunk(3, dim=-1))
    scores = torch.einsum("btgid,btgjd->btgij", q, k) / (C // H) ** 0.5
    if args[0]["causal"] and T > 1:
        head = torch.arange(H // W)
        scores[..., head[None, :] > head[:, None]] = -torch.inf
    context = torch.einsum("btgij,btgjd->btgid", scores.softmax(-1), v).reshape(B, T, C)
    blocks = context.chunk(W, dim=1)
    return [Expected(Leaf(blocks[r] @ wide(args[r]["w_o"]).T, case.dtype)) for r in range(W)]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """8 B S C² flops of the projections and 4 B S C G of attention; tokens, weights and result once; no link bytes.

    The reference's three exchanges move 4 (W-1)/W B S C elements, none of which the result needs.
    """
    B, S, C = args[0]["hidden_states"].shape
    G, e = args[0]["num_heads"] // len(args), element_size(case.dtype)
    flops = {dtype_name(case.dtype): 8.0 * B * S * C * C + 4.0 * B * S * C * G}
    return [RankCost(flops, float(e * (2 * B * S * C + 4 * C * C)), 0.0, 0.0)] * len(args)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("B",), multiple={"T": 8, "D": 8}, keep=("H",))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if sizes["H"] % world_size == 0:
        return ""
    return f"The world size must divide the number of heads: {sizes['H']} mod {world_size} is not 0."


PROBLEM = Problem(
    id=39,
    slug="ulysses_attention_e2e",
    title="Ulysses attention block: QKV projection, exchange, attention, exchange back, output projection",
    type="sequence",
    also=(),
    domain="llm_training",
    stage="forward",
    origin="after Together AI xorl / ByteDance VeOmni ulysses.py; the attention core is the public benchmark's own",
    difficulty=4,
    statement=(
        "Every rank projects its slice of the sequence, `hidden_states` (B, S, C), with its own `w_qkv` (3·C, C) (rows "
        "of q, then k, then v; H heads of D rows each inside) and its own `w_o` (C, C). A Ulysses exchange turns q, k "
        "and v into the whole sequence for H/W heads, attention follows, and a second exchange brings the result "
        "(B, S, H, D) back to the owners of the positions, which apply `w_o`: the output is (B, S, C).\n\n"
        "Attention is taken, at every position by itself, **between the H/W heads of a group**: scores "
        "q_i · k_j / √D, softmax over j, sum of v_j; with `causal` head i sees only heads j ≤ i (if the sequence has "
        "more than one position). There is no attention along the sequence. The softmax is computed in float32. "
        "`group` None means the world group; for one rank the group has all H heads."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 16, "T": 16, "H": 8, "D": 64},
    cpu_sizes={"B": 16, "T": 16, "H": 8, "D": 32},
    check_sizes={"B": 4, "T": 16, "H": 8, "D": 8},
    hidden_sizes=hidden_sizes,
    hidden_property="the batch is odd and the head dimension is not a power of two",
    linear=("w_o",),
    draws={
        "causal": "structured: causal mask over the heads of a group",
        "small": "stress: output projection scaled by 1e-3",
        "large": "stress: output projection scaled by 1e3",
    },
    world_size_rule=world_size_rule,
    reads=lambda rank, peer, world_size: rank == peer,
    local_outputs=("output",),
    communication=(
        "all_to_all of q, (B, S, H, D)\nall_to_all of k and v, (B, S, 2 H, D)\nall_to_all of the context, "
        "(B, W S, H/W, D)\nNone of it is needed: see the hazards."
    ),
    hazards=(
        "Communication-free: attention mixes heads of one position, so all that a rank's output needs is local; the "
        "exchanges cancel and the bound has no link term.",
        "The result depends on the world size, since heads mix only inside groups of H/W; with H/W = 1 the softmax has "
        "one element and q and k do not matter.",
        "Weights differ from rank to rank.",
    ),
    tolerances=calibrated(bf16=1.4e-2, fp16=2.5e-3),
)
