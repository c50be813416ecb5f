"""Gated DeltaNet forward with a head/sequence all-to-all.

Legend: B batch, Tl local tokens, T = W Tl tokens, Hq heads of q and k, Hv heads of v (Hv/Hq for each of q and k),
Dk and Dv dimensions of keys and values, W ranks, t a token, j a value head.

    decay_t = exp(-exp(a_log) log(1 + exp(gate_t + dt_bias)))                                     per value head
    q'_t = q_t / max(|q_t|, 1e-6) / sqrt(Dk),  k'_t = k_t / max(|k_t|, 1e-6)                      of head j // (Hv/Hq)
    S <- decay_t S;  S <- S + k'_t (beta_t (v_t - S^T k'_t))^T;  o_t = S^T q'_t                S (Dk, Dv), zero at first
    q, k (B, Tl, Hq, Dk), v, out (B, Tl, Hv, Dv), gate, beta (B, Tl, Hv); a_log, dt_bias (Hv/W) of the own heads
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Close, Expected, Leaf, Problem, RankCost, Rng, Tolerance, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.families.delta_rule import chain_cost, delta_rule, exact_delta_rule, unit
from problems.suite.families.ulysses import scatter_and_gather
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter

NORM_EPS = 1e-6


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values, v 64 times as large; gate parameters uniform in [-0.5, 0.5] for the own heads.

    The mean of the raw gates falls from 0 to -6 over the heads: some forget at once, as all do in the public workload,
    some remember the whole sequence.
    """
    W, B, Tl, Dk, Dv = case.world_size, case["B"], case["Tl"], case["Dk"], case["Dv"]
    group, n = (even_and_odd(W), W // 2) if case.draw == "subgroups" else (None, W)
    Hq = W * -(-case["Hq"] // W)
    Hv = (2 if case.draw == "grouped" else 1) * Hq
    parameters = torch.float32 if case.draw == "float_gates" else torch.bfloat16
    scale = 64.0 * {"small": 1e-3, "large": 1e2}.get(case.draw, 1.0)
    means = -6.0 * (torch.arange(Hv) + 0.5) / Hv
    if case.draw in ("short_memory", "closed"):
        means = torch.full((Hv,), 0.0 if case.draw == "short_memory" else 25.0)
    ranks: list[Args] = []
    for r in range(W):
        beta = rng.normal(r, (B, Tl, Hv)).to(torch.bfloat16).sigmoid()
        ranks.append(
            {
                "q": rng.normal(r, (B, Tl, Hq, Dk)).to(case.dtype),
                "k": rng.normal(r, (B, Tl, Hq, Dk)).to(case.dtype),
                "v": rng.normal(r, (B, Tl, Hv, Dv), std=scale).to(case.dtype),
                "gate": (rng.normal(r, (B, Tl, Hv)) + means).to(case.dtype),
                "beta": beta.to(case.dtype),
                "a_log": (rng.uniform(r, (Hv // n,)) - 0.5).to(parameters),
                "dt_bias": (rng.uniform(r, (Hv // n,)) - 0.5).to(parameters),
                "group": group,
            }
        )
    return ranks


def solution(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    gate: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    dtype = q.dtype
    # From own tokens and all heads to all tokens and own heads.
    q, k, v, gate, beta = (scatter_and_gather(x, 2, 1, group) for x in (q, k, v, gate, beta))
    repeats = v.shape[2] // q.shape[2]
    q = (unit(q, NORM_EPS) * q.shape[-1] ** -0.5).repeat_interleave(repeats, dim=2)
    k = unit(k, NORM_EPS).repeat_interleave(repeats, dim=2)
    decay = torch.exp(-a_log.float().exp() * F.softplus(gate.float() + dt_bias.float()))  # (B, T, Hv/W)
    out = delta_rule(q, k, v.float(), decay.unsqueeze(-1), beta.float()).to(dtype)
    return scatter_and_gather(out, 1, 2, group)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def layer(group: list[Args]) -> list[Expected]:
        names = ("q", "k", "v", "gate", "beta")
        q, k, v, gate, beta = (torch.cat([wide(a[name]) for a in group], dim=1) for name in names)
        a_log, dt_bias = (torch.cat([wide(a[name]) for a in group]) for name in ("a_log", "dt_bias"))
        head = torch.arange(v.shape[2]) // (v.shape[2] // q.shape[2])
        z = gate + dt_bias
        decay = torch.exp(-a_log.exp() * torch.logaddexp(z, torch.zeros_like(z)))
        q, k = q[:, :, head], k[:, :, head]
        out = exact_delta_rule(q, k, v, decay[..., None].expand_as(q), beta)
        # Heads differ in amplitude, since they differ in memory.
        return [Expected(Leaf(block, case.dtype, Close(axis=2))) for block in out.chunk(len(group), dim=1)]

    return by_group(args, layer)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """7 Dk Dv flops for each own token and head (decay, recall, update, read-out); inputs and result once.

    Link, the cheaper of two schemes: all inputs and the result change between tokens and heads, (W-1)/W of them; or
    tokens stay and states in fp32 go along the ranks.
    """

    def costs(group: list[Args]) -> list[RankCost]:
        W, e = len(group), element_size(case.dtype)
        B, Tl, Hq, Dk = group[0]["q"].shape
        Hv, Dv = group[0]["v"].shape[2:]
        moved = float(B * Tl * (2 * Hq * Dk + 2 * Hv * Dv + 2 * Hv) * e)
        flops = {dtype_name(case.dtype): 7.0 * B * Tl * Hv * Dk * Dv}
        hbm = moved + 2.0 * group[0]["a_log"].numel() * element_size(group[0]["a_log"].dtype)
        wire = moved * (W - 1) / W
        state, tokens = 4.0 * B * Hv * Dk * Dv, float(B * Tl * (Hq * Dk + Hv * (Dv + 2)) * e)
        chain = [chain_cost(W, r, state, tokens, flops=flops, hbm=hbm) for r in range(W)]
        if max(max(c.sent, c.received) for c in chain) < wire:
            return chain
        floor = min(wire, state / 2, B * Tl * Hv * Dv * e)
        return [RankCost(flops, hbm, wire, wire, one_way=floor)] * W

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("Tl", "Dv"), multiple={"Dk": 8}, keep=("B", "Hq"))


PROBLEM = Problem(
    id=75,
    slug="fla_gated_deltanet_cp",
    title="Gated DeltaNet forward with head/sequence all-to-all context parallelism",
    type="sequence",
    also=("context",),
    domain="llm_training",
    stage="forward",
    origin="flash-linear-attention (fla) gated delta rule under context parallelism",
    difficulty=4,
    statement=(
        "A sequence of T = W·Tl tokens is split over the ranks, rank r holding tokens r·Tl onwards for all heads: `q` "
        "and `k` (B, Tl, Hq, Dk), `v` (B, Tl, Hv, Dv), `gate` and `beta` (B, Tl, Hv). `a_log` and `dt_bias` (Hv/W) are "
        "the parameters of value heads r·Hv/W onwards, in bfloat16 in every run. Each head of q and k serves Hv/Hq "
        "consecutive value heads.\n\nIn float32, for every value head over the whole sequence: decay_t = "
        "exp(-exp(a_log)·softplus(gate_t + dt_bias)); q and k scaled to length one (norms below 1e-6 count as 1e-6), q "
        "also by Dk^(-1/2); beta as it is. A state S (Dk, Dv) starts at zero; for each token in turn S ← decay_t·S, "
        "then S ← S + k_t·(beta_t·(v_t - Sᵀk_t))ᵀ, and o_t = Sᵀq_t. The result on every rank is o for its own tokens "
        "and all value heads, rounded to the run dtype: (B, Tl, Hv, Dv). `group` None means the world group; with a "
        "process group, W counts its members."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 1, "Tl": 64, "Hq": 6, "Dk": 256, "Dv": 512},
    cpu_sizes={"B": 1, "Tl": 16, "Hq": 6, "Dk": 32, "Dv": 64},
    check_sizes={"B": 2, "Tl": 6, "Hq": 4, "Dk": 8, "Dv": 10},
    hidden_sizes=hidden_sizes,
    hidden_property="tokens and the value dimension are odd, the key dimension is a multiple of 8",
    linear=("v",),
    draws={
        "grouped": "structured: two value heads for each head of q and k",
        "short_memory": "structured: raw gates with mean zero, so that half of the state is forgotten with each token",
        "closed": "structured: gates in the linear part of softplus, so that hardly anything is remembered",
        "float_gates": "structured: a_log and dt_bias in float32",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "small": "stress: v scaled by 1e-3",
        "large": "stress: v scaled by 1e2",
    },
    skip_draw=lacks_subgroups,
    reads=lambda rank, peer, world_size: peer <= rank,  # of later ranks only the gate parameters of their heads
    communication=(
        "5 all_to_all from tokens to heads: q, k, v, gate and beta\nall_to_all of the result from heads to tokens, (B, "
        "T, Hv/W, Dv)"
    ),
    hazards=(
        "The recurrence is sequential in the tokens; the reference launches a few small kernels for each.",
        "a_log and dt_bias are bfloat16 also in fp32 runs, and each rank has those of its own heads only.",
        "The number of heads is rounded up to a multiple of the world size: 6 at W = 2, 8 at W = 4 and 8.",
    ),
    tolerances={
        torch.float32: Tolerance(units=5e-5, relative=2e-5),
        torch.bfloat16: Tolerance(units=4e-2, relative=1e-2),
        torch.float16: Tolerance(units=5e-3, relative=1.2e-3),
    },
)
