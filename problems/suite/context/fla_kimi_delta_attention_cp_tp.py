"""Kimi delta attention (KDA) forward with context and tensor parallelism.

Legend: B batch, Tl local tokens, H heads, Dk and Dv dimensions of keys and values, cp x tp = W grid of ranks, c context
and i tensor index (rank = c tp + i), T = cp Tl tokens of the sequence that the ranks with one i share, t a token.

    decay_t = exp(-5 sigmoid(exp(a_log) (g_t + dt_bias))),  beta'_t = sigmoid(beta_t)
    q'_t = q_t / max(|q_t|, 1e-12) / sqrt(Dk),  k'_t = k_t / max(|k_t|, 1e-12)
    S <- diag(decay_t) S;  S <- S + k'_t (beta'_t (v_t - S^T k'_t))^T;  o_t = S^T q'_t        S (Dk, Dv), zero at first
    out = sum over i of o, own tokens                 q, k, g (B, Tl, H, Dk), v, out (B, Tl, H, Dv), beta (B, Tl, H)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Expected, Group, Leaf, Problem, RankCost, Rng, Tolerance, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.families.delta_rule import chain_cost, delta_rule, exact_delta_rule, unit
from problems.suite.groups import contiguous, members, strided
from problems.suite.shapes import jitter

LOWER_BOUND = -5.0  # of the logarithm of the decay
NORM_EPS = 1e-12


def _tensor_size(world_size: int) -> int:
    return 2 if world_size >= 4 and world_size % 2 == 0 else 1


def _grid(case: Case) -> tuple[Group, Group | None]:
    """Context-parallel group, and tensor-parallel group or None where there is none."""
    W = case.world_size
    tp = {"context_only": 1, "tensor_only": W}.get(case.draw, _tensor_size(W))
    return strided(W, tp), contiguous(W, tp) if tp > 1 else None


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values, v 32 times as large; gate parameters uniform in [-0.5, 0.5], the same on all ranks.

    The mean of the raw gates falls from 0 to -7 over the heads: some forget at once, as all do in the public workload,
    some remember the whole sequence.
    """
    cp_group, tp_group = _grid(case)
    B, Tl, H, Dk, Dv = (case[size] for size in ("B", "Tl", "H", "Dk", "Dv"))
    parameters = torch.float32 if case.draw == "float_gates" else torch.bfloat16
    a_log, dt_bias = (rng.uniform(None, (size,)) - 0.5 for size in (H, H * Dk))
    scale = 32.0 * {"small": 1e-3, "large": 1e2}.get(case.draw, 1.0)
    means = (0.0 if case.draw == "short_memory" else -7.0) * (torch.arange(H) + 0.5) / H
    ranks: list[Args] = []
    for r in range(case.world_size):
        g = rng.normal(r, (B, Tl, H, Dk)) + means[:, None]
        ranks.append(
            {
                "q": rng.normal(r, (B, Tl, H, Dk)).to(case.dtype),
                "k": rng.normal(r, (B, Tl, H, Dk)).to(case.dtype),
                "v": rng.normal(r, (B, Tl, H, Dv), std=scale).to(case.dtype),
                "g": g.to(case.dtype),
                "beta": rng.normal(r, (B, Tl, H)).to(case.dtype),
                "a_log": a_log.to(parameters, copy=True),
                "dt_bias": dt_bias.to(parameters, copy=True),
                "cp_group": cp_group,
                "tp_group": tp_group,
            }
        )
    return ranks


def gather_tokens(x: torch.Tensor, group: Optional[dist.ProcessGroup]) -> torch.Tensor:
    """(B, Tl, ...) on every rank -> (B, T, ...), tokens in the order of ranks."""
    tokens_first = x.transpose(0, 1).contiguous()
    whole = x.new_empty((dist.get_world_size(group) * tokens_first.shape[0], *tokens_first.shape[1:]))
    dist.all_gather_into_tensor(whole, tokens_first, group=group)
    return whole.transpose(0, 1)


def solution(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    g: torch.Tensor,
    beta: torch.Tensor,
    a_log: torch.Tensor,
    dt_bias: torch.Tensor,
    cp_group: Optional[dist.ProcessGroup] = None,
    tp_group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    Tl, H, Dk = q.shape[1:]
    dtype = q.dtype
    q, k, v, g, beta = (gather_tokens(x, cp_group) for x in (q, k, v, g, beta))
    rate = a_log.float().exp().view(H, 1)
    decay = torch.exp(LOWER_BOUND * torch.sigmoid(rate * (g.float() + dt_bias.float().view(H, Dk))))
    q, k = unit(q, NORM_EPS) * Dk**-0.5, unit(k, NORM_EPS)
    out = delta_rule(q, k, v.float(), decay, beta.float().sigmoid()).to(dtype)
    if tp_group is not None:
        dist.all_reduce(out, group=tp_group)
    c = dist.get_rank(cp_group)
    return out[:, c * Tl : (c + 1) * Tl].contiguous()


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    W, out = len(args), {}
    for chain in members(args[0]["cp_group"], W):
        q, k, v, g, beta = (torch.cat([wide(args[r][n]) for r in chain], dim=1) for n in ("q", "k", "v", "g", "beta"))
        H, Dk = q.shape[2:]
        for r, position in zip(chain, range(len(chain)), strict=True):
            # Every rank runs its sequence with its own gate parameters.
            rate, shift = wide(args[r]["a_log"]).exp()[:, None], wide(args[r]["dt_bias"]).reshape(H, Dk)
            o = exact_delta_rule(q, k, v, torch.exp(-5.0 * torch.sigmoid(rate * (g + shift))), beta.sigmoid())
            out[r] = o.chunk(len(chain), dim=1)[position]
    pairs = members(args[0]["tp_group"], W) if args[0]["tp_group"] else tuple((r,) for r in range(W))
    total = {r: torch.stack([out[peer] for peer in pair]).sum(0) for pair in pairs for r in pair}
    return [Expected(Leaf(total[r], case.dtype, Close(axis=2))) for r in range(W)]  # heads differ in amplitude


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """7 Dk Dv flops for each own token and head (decay, recall, update, read-out); inputs and result once.

    Link: one state per head in fp32 to the next rank of the sequence, or k, v, g and beta of the own tokens to later
    ranks, whichever is less; and an all-reduce of the own tokens' results over the tensor-parallel ranks.
    """
    W, e = len(args), element_size(case.dtype)
    B, Tl, H, Dk = args[0]["q"].shape
    Dv = args[0]["v"].shape[-1]
    cp = len(members(args[0]["cp_group"], W)[0])
    tp = W // cp if args[0]["tp_group"] else 1
    rows = float(B * Tl * H)
    result = rows * Dv * e
    total = 2.0 * (tp - 1) / tp * result
    hbm = rows * (3 * Dk + 2 * Dv + 1) * e + 2.0 * H * (1 + Dk)
    flops = {dtype_name(case.dtype): 7.0 * rows * Dk * Dv}
    ranks = []
    for r in range(W):
        tokens = rows * (2 * Dk + Dv + 1) * e
        chain = chain_cost(cp, r // (W // cp), 4.0 * B * H * Dk * Dv, tokens, flops={}, hbm=0.0)
        floor = max(chain.floor_bytes, result if tp > 1 else 0.0)
        ranks.append(RankCost(flops, hbm, chain.sent + total, chain.received + total, one_way=floor))
    return ranks


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("Tl", "H", "Dv"), multiple={"Dk": 8}, keep=("B",))


def _reads(rank: int, peer: int, world_size: int) -> bool:
    """Earlier parts of the sequence and the own one, of all tensor indices."""
    tp = _tensor_size(world_size)
    return peer // tp <= rank // tp


PROBLEM = Problem(
    id=74,
    slug="fla_kimi_delta_attention_cp_tp",
    title="Kimi delta attention (KDA) forward with context and tensor parallelism",
    type="context",
    also=("tensor",),
    domain="llm_training",
    stage="forward",
    origin="flash-linear-attention (fla) KDA / Kimi Linear; gate with lower bound -5",
    difficulty=4,
    statement=(
        "The ranks form a grid of cp x tp: `tp_group` holds neighbouring ranks, `cp_group` ranks tp apart. The ranks "
        "of one cp_group share a sequence of T = cp·Tl tokens, block c on context index c: `q`, `k`, `g` (B, Tl, H, "
        "Dk), `v` (B, Tl, H, Dv), `beta` (B, Tl, H). Ranks of one tp_group hold unrelated data. `a_log` (H) and "
        "`dt_bias` (H·Dk, head by head) are the same on all ranks and stay in bfloat16 in every run.\n\nIn float32, "
        "for every head: decay_t = exp(-5·sigmoid(exp(a_log)·(g_t + dt_bias))) per key channel; β_t = sigmoid(beta_t); "
        "q and k scaled to length one (norms below 1e-12 count as 1e-12), q also by Dk^(-1/2). A state S (Dk, Dv) "
        "starts at zero; for each token in turn S ← diag(decay_t)·S, then S ← S + k_t·(β_t·(v_t - Sᵀk_t))ᵀ, and o_t = "
        "Sᵀq_t. Round o to the run dtype, sum over the tp_group (None: no sum), and return the own tokens: (B, Tl, H, "
        "Dv)."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 1, "Tl": 64, "H": 16, "Dk": 128, "Dv": 128},
    cpu_sizes={"B": 1, "Tl": 16, "H": 4, "Dk": 32, "Dv": 32},
    check_sizes={"B": 2, "Tl": 6, "H": 2, "Dk": 8, "Dv": 10},
    hidden_sizes=hidden_sizes,
    hidden_property="tokens, heads and the value dimension are odd, the key dimension is a multiple of 8",
    linear=("v",),
    draws={
        "short_memory": "structured: raw gates with mean zero, so that most of the state is forgotten with each token",
        "float_gates": "structured: a_log and dt_bias in float32",
        "context_only": "structured: no tensor-parallel group, one sequence over all ranks",
        "tensor_only": "structured: one tensor-parallel group of all ranks, a sequence on each",
        "small": "stress: v scaled by 1e-3",
        "large": "stress: v scaled by 1e2",
    },
    replicated=("a_log", "dt_bias"),
    reads=_reads,
    communication=(
        "5 all_gather of q, k, v, g and beta over the cp_group, (Tl, B, H, D) each\nall_reduce SUM of (B, T, H, Dv) "
        "over the tp_group"
    ),
    hazards=(
        "The recurrence is sequential in the tokens; the reference launches a few small kernels for each.",
        "a_log and dt_bias are bfloat16 also in fp32 runs.",
        "Data differ inside a tensor-parallel group; at W = 2 there is none.",
        "The reference runs the whole sequence on every rank and reduces all of it.",
    ),
    tolerances={
        torch.float32: Tolerance(units=5e-5, relative=2e-5),
        torch.bfloat16: Tolerance(units=5e-2, relative=1.1e-2),
        torch.float16: Tolerance(units=6e-3, relative=1.4e-3),
    },
)
