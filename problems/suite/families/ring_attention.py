"""Ring attention: queries stay, keys and values travel round the ring, partial softmaxes are merged.

Legend: B batch, S local sequence, H heads, D head dimension, n ranks of the ring, r the own index, a and b indices of
blocks, i a query, j a key.

    scores_ij = scale q_i . k_j                                                  q, k, v (B, S, H, D) on each rank
    out_i = sum over j of exp(scores_ij - lse_i) v_j,  lse_i = log of the sum over j of exp(scores_ij)
    over all keys of the ring, blocks joined in rank order; causal: only keys at or before the query's position
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import RankCost
from problems.suite.shapes import jitter


def start_shift(
    tensors: list[torch.Tensor], group: Optional[dist.ProcessGroup]
) -> tuple[list[torch.Tensor], list[dist.Work]]:
    """Starts to send tensors to the next rank of the ring and to receive those of the previous one."""
    n, r = dist.get_world_size(group), dist.get_rank(group)
    received = [torch.empty_like(tensor) for tensor in tensors]
    transfers = []
    for tensor, buffer in zip(tensors, received, strict=True):
        transfers.append(dist.P2POp(dist.isend, tensor, group=group, group_peer=(r + 1) % n))
        transfers.append(dist.P2POp(dist.irecv, buffer, group=group, group_peer=(r - 1) % n))
    return received, dist.batch_isend_irecv(transfers)


def attend_block(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, masked: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention to one block of keys in fp32: output (B, S, H, D), log-sum-exp (B, S, H, 1)."""
    q, k, v = (x.float().transpose(1, 2) for x in (q, k, v))  # (B, H, S, D)
    scores = scale * torch.matmul(q, k.transpose(-1, -2))
    if masked:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    lse = scores.logsumexp(dim=-1, keepdim=True)
    out = torch.matmul((scores - lse).exp(), v)
    return out.transpose(1, 2), lse.transpose(1, 2)


def ring_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool, group: Optional[dist.ProcessGroup]
) -> torch.Tensor:
    """Attention of the own queries to the keys of the whole ring, (B, S, H, D) in the dtype of ``q``."""
    n, r = dist.get_world_size(group), dist.get_rank(group)
    k, v = k.contiguous(), v.contiguous()
    for step in range(n):
        if step + 1 < n:
            upcoming, transfers = start_shift([k, v], group)  # on their way while this block is worked on
        # Under the causal mask the blocks of later ranks, held at steps above r, only pass through.
        if step == 0:
            out, lse = attend_block(q, k, v, scale, causal)
        elif not causal or step <= r:
            block_out, block_lse = attend_block(q, k, v, scale, False)
            out = out - torch.sigmoid(block_lse - lse) * (out - block_out)
            lse = lse - F.logsigmoid(lse - block_lse)
        if step + 1 < n:
            for transfer in transfers:
                transfer.wait()
            k, v = upcoming
    return out.to(q.dtype)


def exact_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """For oracles and inputs: softmax attention over a whole sequence, output (B, T, H, D) and lse (B, H, T)."""
    scores = scale * torch.einsum("bihd,bjhd->bhij", q, k)
    if causal:
        position = torch.arange(q.shape[1])
        scores = scores.masked_fill(position[None, :] > position[:, None], -torch.inf)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v), scores.logsumexp(-1)


def attended_pairs(n: int, index: int, S: int, causal: bool) -> float:
    """Pairs of a query of that rank and a key that it sees, for one head of one sequence."""
    return float(S * S * index + S * (S + 1) // 2 if causal else n * S * S)


def ring_cost(n: int, index: int, unit: float, causal: bool, *, flops: Mapping[str, float], hbm: float) -> RankCost:
    """Keys and values go to the ranks that need them; ``unit`` is the bytes of one tensor (B, S, H, D).

    No algorithm does with less than one unit each way: a rank either receives keys and values, two units, or lets
    others work for it and exchanges queries for partial results, one unit out and one in.
    """
    sent = 2.0 * unit * (n - 1 - index if causal else n - 1)
    received = 2.0 * unit * (index if causal else n - 1)
    return RankCost(flops, hbm, sent, received, one_way=unit if n > 1 else 0.0)


def hidden_attention_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    """Batch B odd and head dimension D a multiple of 8 near the public ones, sequence T one to four times as long."""
    sizes = jitter(public, secret, odd=("B",), multiple={"D": 8}, keep=("H", "T"))
    T = public["T"]
    return sizes | {"T": int(torch.randint(T, 4 * T, (1,), generator=secret)) | 1}


HIDDEN_PROPERTY = "the batch is odd, the head dimension no power of two, the sequence longer than the public one"
