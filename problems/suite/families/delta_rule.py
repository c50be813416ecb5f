"""Gated delta rule: a matrix state per head that decays, forgets what it holds for a key, and learns the new value.

Legend: B batch, T positions, H heads, Dk and Dv dimensions of keys and values, t a position.

    S_t = (I - beta_t k_t k_t^T) diag(decay_t) S_(t-1) + beta_t k_t v_t^T,  S_(-1) = 0          S (Dk, Dv) per head
    o_t = S_t^T q_t                           q, k, decay (B, T, H, Dk), v, o (B, T, H, Dv), beta (B, T, H)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from problems.suite.base import RankCost


def unit(x: torch.Tensor, eps: float) -> torch.Tensor:
    """Vectors along the last axis scaled to length one in fp32; those shorter than eps are divided by eps."""
    x = x.float()
    length: torch.Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.clamp(min=eps)


def delta_rule(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor, beta: torch.Tensor
) -> torch.Tensor:
    """Runs the recurrence over all positions, in fp32: (B, T, H, Dv). ``decay`` may have 1 in place of Dk."""
    B, T, H, Dk = q.shape
    state = q.new_zeros((B, H, Dk, v.shape[-1]))
    out = []
    for t in range(T):
        state = state * decay[:, t].unsqueeze(-1)
        recalled = torch.matmul(k[:, t].unsqueeze(-2), state).squeeze(-2)  # (B, H, Dv)
        learned = beta[:, t].unsqueeze(-1) * (v[:, t] - recalled)
        state = state + k[:, t].unsqueeze(-1) * learned.unsqueeze(-2)
        out.append(torch.matmul(q[:, t].unsqueeze(-2), state).squeeze(-2))
    return torch.stack(out, dim=1)


def exact_delta_rule(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, decay: torch.Tensor, beta: torch.Tensor
) -> torch.Tensor:
    """For oracles: the recurrence in float64; q and k as given (any length), scaled to length one here."""
    tiny = 1e-300
    q = q / q.square().sum(-1, keepdim=True).sqrt().clamp(min=tiny) / q.shape[-1] ** 0.5
    k = k / k.square().sum(-1, keepdim=True).sqrt().clamp(min=tiny)
    out = torch.zeros_like(v)
    state = torch.zeros(*q[:, 0].shape, v.shape[-1], dtype=torch.float64)
    for t in range(q.shape[1]):
        state *= decay[:, t, :, :, None]
        error = v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t])
        state += torch.einsum("bh,bhk,bhv->bhkv", beta[:, t], k[:, t], error)
        out[:, t] = torch.einsum("bhkv,bhk->bhv", state, q[:, t])
    return out


def chain_cost(n: int, index: int, state: float, tokens: float, *, flops: Mapping[str, float], hbm: float) -> RankCost:
    """The state goes along the chain of ranks, or the tokens to all later ranks, whichever is less for the busiest.

    ``state``: bytes of the states in fp32; ``tokens``: bytes of what a rank's own tokens bring into the recurrence.
    Should states be sent in half the precision, less would do: the floor allows for that.
    """
    if n == 1:
        return RankCost(flops, hbm, 0.0, 0.0)
    later, earlier = n - 1 - index, index
    if state < (n - 1) * tokens:
        sent, received = state * (later > 0), state * (earlier > 0)
    else:
        sent, received = tokens * later, tokens * earlier
    return RankCost(flops, hbm, sent, received, one_way=min(state / 2, tokens, max(sent, received)))
