"""Ring attention backward with data-parallel averaging of the gradients.

Legend: B batch, T sequence, H heads, D head dimension, dp x cp = W grid of ranks, c index in the context-parallel group
(rank = replica cp + c), S = T/cp positions, i a query, j a key, over all blocks of the context-parallel group.

    P_ij = exp(scale q_i . k_j - lse_i),  dS_ij = P_ij (dout_i . v_j - dout_i . out_i)   q, k, v, out, dout (B, S, H, D)
    dq_i = scale sum over j of dS_ij k_j,  dk_j = scale sum over i of dS_ij q_i,  dv_j = sum over i of P_ij dout_i
    each then averaged over the ranks of the data-parallel group;  causal: only j <= i                lse (B, H, S)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Tuple

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Group, Leaf, Problem, RankCost, Rng, Tolerance, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.families.ring_attention import (
    HIDDEN_PROPERTY,
    attended_pairs,
    exact_attention,
    hidden_attention_sizes,
    start_shift,
)
from problems.suite.golden import sin_rule
from problems.suite.groups import contiguous, members, strided

_NAMES = ("dout", "q", "k", "v")


def _grid(case: Case) -> tuple[Group, Group]:
    """Context-parallel and data-parallel groups."""
    W = case.world_size
    dp = {"context_only": 1, "data_only": W}.get(case.draw, min(2, W))
    return contiguous(W, W // dp), strided(W, W // dp)


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values; out and softmax_lse of the attention over the whole sequence of a replica.

    So the result is the true gradient. The draw "local" has them from the own block alone, as the public workload does.
    """
    cp_group, dp_group = _grid(case)
    cp = len(cp_group.partition[0])
    shape = (case["B"], max(1, case["T"] // cp), case["H"], case["D"])
    scale = {"small": 1e-3, "large": 1e3}.get(case.draw, 1.0)
    values = []
    for r in range(case.world_size):
        drawn = {name: rng.normal(r, shape).to(case.dtype) for name in _NAMES}
        values.append(drawn | {"dout": (scale * drawn["dout"].float()).to(case.dtype)})
    softmax_scale, causal = (0.5 * shape[-1] ** -0.5 if case.draw == "scale" else None), case.draw == "causal"
    rings = contiguous(case.world_size, 1) if case.draw == "local" else cp_group
    ranks: list[Args] = [{}] * case.world_size
    for ring in rings.partition:
        q, k, v = (torch.cat([values[r][name] for r in ring], dim=1).float() for name in ("q", "k", "v"))
        out, lse = exact_attention(q, k, v, softmax_scale or shape[-1] ** -0.5, causal)
        pieces = zip(out.chunk(len(ring), dim=1), lse.chunk(len(ring), dim=2), strict=True)
        for r, (own_out, own_lse) in zip(ring, pieces, strict=True):
            ranks[r] = {
                **values[r],
                "out": own_out.to(case.dtype).contiguous(),
                "softmax_lse": own_lse.contiguous(),
                "softmax_scale": softmax_scale,
                "causal": causal,
                "cp_group": cp_group,
                "dp_group": dp_group,
            }
    return ranks


def block_gradients(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    delta: torch.Tensor,
    lse: torch.Tensor,
    scale: float,
    masked: bool,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Contributions of the own queries and one block of keys to dq, dk, dv, all (B, H, S, D) in fp32."""
    scores = scale * torch.matmul(q, k.transpose(-1, -2))
    if masked:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    P = torch.exp(scores - lse)
    dS = P * (torch.matmul(dout, v.transpose(-1, -2)) - delta)
    dq = scale * torch.matmul(dS, k)
    dk = scale * torch.matmul(dS.transpose(-1, -2), q)
    return dq, dk, torch.matmul(P.transpose(-1, -2), dout)


def solution(
    dout: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    softmax_lse: torch.Tensor,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    cp_group: Optional[dist.ProcessGroup] = None,
    dp_group: Optional[dist.ProcessGroup] = None,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    n, r = dist.get_world_size(cp_group), dist.get_rank(cp_group)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    dout32, q32, out32 = (x.float().transpose(1, 2) for x in (dout, q, out))  # (B, H, S, D)
    delta = (dout32 * out32).sum(dim=-1, keepdim=True)
    lse = softmax_lse.float().unsqueeze(-1)
    k, v = k.contiguous(), v.contiguous()
    dq = torch.zeros_like(q32)
    # dk and dv of the block held at a step: they travel with it in fp32, one step behind, and end at its owner.
    gradients = [torch.zeros_like(q32, memory_format=torch.contiguous_format) for _ in range(2)]
    returning: list[dist.Work] = []
    for step in range(n):
        if step + 1 < n:
            upcoming, transfers = start_shift([k, v], cp_group)
        if not causal or step <= r:
            k32, v32 = (x.float().transpose(1, 2) for x in (k, v))
            masked = causal and step == 0
            block_dq, block_dk, block_dv = block_gradients(dout32, q32, k32, v32, delta, lse, scale, masked)
            dq += block_dq
        for transfer in returning:
            transfer.wait()
        if not causal or step <= r:
            gradients[0] += block_dk
            gradients[1] += block_dv
        if n > 1:
            gradients, returning = start_shift(gradients, cp_group)
        if step + 1 < n:
            for transfer in transfers:
                transfer.wait()
            k, v = upcoming
    for transfer in returning:
        transfer.wait()
    results = [x.transpose(1, 2).to(q.dtype).contiguous() for x in (dq, *gradients)]
    replicas = dist.get_world_size(dp_group)
    if replicas > 1:
        for result in results:
            dist.all_reduce(result, group=dp_group)
            result /= replicas
    return results[0], results[1], results[2]


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    W = len(args)
    gradients: dict[int, torch.Tensor] = {}
    for ring in members(args[0]["cp_group"], W):
        whole = {name: torch.cat([wide(args[r][name]) for r in ring], dim=1) for name in (*_NAMES, "out")}
        dout, q, k, v, out = (whole[name] for name in (*_NAMES, "out"))
        lse = torch.cat([wide(args[r]["softmax_lse"]) for r in ring], dim=2)
        scale = args[0]["softmax_scale"] or q.shape[-1] ** -0.5
        P = torch.exp(scale * torch.einsum("bihd,bjhd->bhij", q, k) - lse[..., None])
        if args[0]["causal"]:
            P = P.tril()
        delta = torch.einsum("bihd,bihd->bhi", dout, out)[..., None]
        dS = P * (torch.einsum("bihd,bjhd->bhij", dout, v) - delta)
        dq = scale * torch.einsum("bhij,bjhd->bihd", dS, k)
        dk = scale * torch.einsum("bhij,bihd->bjhd", dS, q)
        dv = torch.einsum("bhij,bihd->bjhd", P, dout)
        blocks = torch.stack((dq, dk, dv)).chunk(len(ring), dim=2)
        gradients.update(zip(ring, blocks, strict=True))
    expected: dict[int, Expected] = {}
    for replicas in members(args[0]["dp_group"], W):
        mean = torch.stack([gradients[r] for r in replicas]).mean(0)
        leaves = tuple(Leaf(x, case.dtype) for x in mean)
        expected |= dict.fromkeys(replicas, Expected(leaves))
    return [expected[r] for r in range(W)]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """10 D flops for each pair of a query and a key that it sees (five products); all inputs and results once.

    Link, cheapest plain scheme: k and v stay; q, dout, lse and delta go round and the partial dq comes back in fp32.
    To this the average over the replicas, three all-reduces in the run dtype. No algorithm does with less than the
    average alone, three units of (B, S, H, D), or one unit each way in the ring.
    """
    W, e = len(args), element_size(case.dtype)
    B, S, H, D = args[0]["q"].shape
    cp, causal = len(members(args[0]["cp_group"], W)[0]), args[0]["causal"]
    dp, elements = W // cp, float(B * S * H * D)
    # Under the causal mask only half of the pairs of ranks have to do with each other.
    partners = (cp - 1) / 2 if causal else cp - 1.0
    ring = partners * (elements * (2 * e + 4) + 8 * B * H * S)
    average = 6.0 * (dp - 1) / dp * elements * e
    floor = 3 * elements * e if dp > 1 else elements * e if cp > 1 else 0.0
    hbm = 8 * elements * e + 4.0 * B * H * S
    ranks = []
    for r in range(W):
        flops = {dtype_name(case.dtype): 10.0 * B * H * D * attended_pairs(cp, r % cp, S, causal)}
        ranks.append(RankCost(flops, hbm, ring + average, ring + average, one_way=floor))
    return ranks


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    dp = min(2, world_size)
    if world_size % dp == 0:
        return ""
    return f"dp = min(2, W) = {dp} must divide the world size: {world_size} mod {dp} is not 0."


def golden_inputs(name: str, world_size: int) -> list[Args]:
    """The sin rule for dout, q, k, v, and out and softmax_lse of the own block alone."""
    shape = [2, 3, 2, 8]
    ranks: list[Args] = []
    for r in range(world_size):
        values = {key: sin_rule(shape, rank=r, k=k) for k, key in enumerate(_NAMES)}
        out, lse = exact_attention(values["q"], values["k"], values["v"], shape[-1] ** -0.5, False)
        groups = {"cp_group": contiguous(world_size, 2), "dp_group": strided(world_size, 2)}
        ranks.append(values | {"out": out, "softmax_lse": lse, "softmax_scale": None, "causal": False} | groups)
    return ranks


PROBLEM = Problem(
    id=57,
    slug="ring_attention_backward_dp",
    title="Ring attention backward with data-parallel gradient averaging",
    type="context",
    also=("data",),
    domain="llm_training",
    stage="backward",
    origin="zhuzilin/ring-flash-attention, with plain PyTorch attention inside; Megatron-LM cp-dp rank order",
    difficulty=4,
    statement=(
        "The ranks form dp replicas of cp ranks each: `cp_group` holds the neighbouring ranks over which one sequence "
        "is cut, `dp_group` the ranks cp apart that hold the same block index of different data. Given on every rank: "
        "`dout`, `q`, `k`, `v`, `out` (B, S, H, D) and `softmax_lse` (B, H, S) in float32, all for the own block.\n\n"
        "Over all queries i and keys j of the cp_group: P_ij = exp(scale·q_i·k_j - lse_i), dS_ij = P_ij·(dout_i·v_j - "
        "dout_i·out_i), dq_i = scale·Σ_j dS_ij·k_j, dk_j = scale·Σ_i dS_ij·q_i, dv_j = Σ_i P_ij·dout_i, in float32. "
        "The given `out` and `softmax_lse` are used as they are, not computed again. With `causal` only j ≤ i counts. "
        "`softmax_scale` None means D^(-1/2). Round to the run dtype, then average over the dp_group: sum in the run "
        "dtype, divide by its size. The result is the tuple (dq, dk, dv) for the own block."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 16, "T": 16, "H": 8, "D": 64},
    cpu_sizes={"B": 8, "T": 16, "H": 8, "D": 64},
    check_sizes={"B": 4, "T": 16, "H": 4, "D": 16},
    hidden_sizes=hidden_attention_sizes,
    hidden_property=HIDDEN_PROPERTY,
    linear=("dout",),
    draws={
        "causal": "structured: causal mask",
        "local": "structured: out and softmax_lse from the own block alone, so that P is no probability",
        "scale": "structured: a softmax scale half of 1/sqrt(D)",
        "context_only": "structured: one ring of all ranks, data-parallel groups of one rank",
        "data_only": "structured: rings of one rank, all ranks in one data-parallel group",
        "small": "stress: dout scaled by 1e-3",
        "large": "stress: dout scaled by 1e3",
    },
    world_size_rule=world_size_rule,
    golden_inputs=golden_inputs,
    communication=(
        "cp - 1 steps round the cp_group's ring, each one isend and irecv of k and of v, (B, S, H, D)\ncp steps of dk "
        "and dv in fp32, (B, H, S, D)\n3 all_reduce SUM of (B, S, H, D) over the dp_group"
    ),
    hazards=(
        "out and softmax_lse are given and need not belong to the whole sequence; computing them again is wrong.",
        "All ranks of a dp_group return equal tensors, though they hold different data.",
        "Where out and softmax_lse belong to the sequence, dk summed over positions is zero: sums are no check.",
        "At W = 2 the ring has one rank; at the public shape latency dominates.",
    ),
    tolerances={
        torch.float32: Tolerance(units=5e-5, relative=2e-5),
        torch.bfloat16: Tolerance(units=7.5e-2, relative=1e-2),
        torch.float16: Tolerance(units=9e-3, relative=1.2e-3),
    },
)
