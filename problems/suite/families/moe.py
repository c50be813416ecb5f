"""Mixture-of-experts layers with expert parallelism: the reference's steps, draws, oracle and costs.

Legend: M tokens of one rank, N hidden width, E experts, K picks per token, I inner width, G ranks of the group, L = E/G
experts per rank; expert x lives on member x // L of the group, and all experts of a rank share one network.

    p[t] = softmax over x of hidden[t] . gate_weight[x] + gate_bias[x];  S[t] = the K experts with the largest p[t, x]
    out[t] = sum over x in S[t] of p[t, x] * network_{x // L}(hidden[t])            (the weights are not renormalised)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Expected, Leaf, RankCost, Rng, calibrated, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.families.moe_routing import skewed_picks, transpose_chunks

NETWORK = ("gate_proj", "up_proj", "down_proj")

# About nine roundings to the run dtype lie on the way of an element: logits, probabilities, three products, silu, gate,
# weighting and sum.
TOLERANCES = calibrated(bf16=1.65e-2, fp16=2e-3)


def moe_layer(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: Optional[torch.Tensor],
    network: Callable[[torch.Tensor], torch.Tensor],
    num_experts: int,
    top_k: int,
    group: Optional[dist.ProcessGroup],
) -> torch.Tensor:
    """Route, dispatch to the experts' ranks, apply the rank's network, send back, combine: (tokens, N)."""
    G, r = dist.get_world_size(group), dist.get_rank(group)
    L = num_experts // G
    hidden = hidden_states.reshape(-1, hidden_states.shape[-1])
    p = torch.softmax(F.linear(hidden, gate_weight, gate_bias), dim=-1)
    weights, selected = torch.topk(p, top_k, dim=-1)

    # Who sends how many rows to which expert: C[s][x].
    counts = torch.bincount(selected.flatten(), minlength=num_experts)
    table = counts.new_empty(G * num_experts)
    dist.all_gather_into_tensor(table, counts, group=group)
    C = table.view(G, L * G).tolist()
    send_sizes = [sum(C[r][d * L : (d + 1) * L]) for d in range(G)]
    own = [C[s][r * L : (r + 1) * L] for s in range(G)]
    receive_sizes = [sum(sizes) for sizes in own]

    # Rows by expert, inside an expert by token.
    pick = torch.argsort(selected.flatten(), stable=True)
    token = pick // top_k
    rows = hidden[token]
    received = rows.new_empty((sum(receive_sizes), rows.shape[1]))
    dist.all_to_all_single(received, rows, receive_sizes, send_sizes, group=group)
    by_expert = transpose_chunks(received, own)
    computed = network(by_expert)
    by_source = transpose_chunks(computed, [list(sizes) for sizes in zip(*own, strict=True)])
    returned = torch.empty_like(rows)
    dist.all_to_all_single(returned, by_source, send_sizes, receive_sizes, group=group)

    weighted = returned * weights.flatten()[pick].unsqueeze(1)
    return torch.zeros_like(hidden).index_add_(0, token, weighted)


def layer_inputs(case: Case, rng: Rng, rank: int, E: int, K: int, I: int, *, idle: Sequence[int]) -> Args:  # noqa: E741
    """Hidden states whose routing has a margin, a router, and a network with outputs of order 1, all of one rank.

    The experts that a token wants (``skewed_picks``) get a logit of 0.3 to 0.9 and one 0.3 to 0.8 below it, all others
    less than -2.5: rounding cannot change the choice, both weights matter, and logits of that size lose little in bf16.
    Router rows are orthonormal, so that the hidden state which gives these logits is easy to find. "no_bias": a router
    without bias.
    """
    M, N = case["M"], case["N"]
    picks = skewed_picks(case.draw, rng, rank, M, E, K, idle=idle)
    logits = 2.0 * rng.uniform(rank, (M, E)).double() - 4.5
    first = 0.3 + 0.6 * rng.uniform(rank, (M, 1)).double()
    steps = torch.cat([torch.zeros(M, 1), 0.3 + 0.5 * rng.uniform(rank, (M, picks.shape[1] - 1))], dim=1).double()
    logits.scatter_(1, picks, first - steps.cumsum(1))
    Q = torch.linalg.qr(rng.normal(rank, (N, E)).double()).Q.t()
    bias = 0.5 * rng.normal(rank, (E,)).double() if case.draw != "no_bias" else None
    z = rng.normal(rank, (M, N)).double()
    hidden = z + (logits - (0.0 if bias is None else bias) - z @ Q.t()) @ Q
    shape = (2, M // 2, N) if case.draw == "three_dims" else (M, N)
    return {
        "hidden_states": hidden.view(shape).to(case.dtype),
        "gate_weight": Q.contiguous().to(case.dtype),
        "gate_bias": None if bias is None else bias.to(case.dtype),
        "gate_proj": random_linear(rng, rank, N, I, case.dtype),
        "up_proj": random_linear(rng, rank, N, I, case.dtype),
        "down_proj": random_linear(rng, rank, I, N, case.dtype, gain=8.0),
    }


def random_linear(
    rng: Rng, rank: int, width: int, out: int, dtype: torch.dtype, *, gain: float = 1.0
) -> torch.nn.Linear:
    """A linear layer in PyTorch's usual initialisation, the weight times ``gain``; records no gradient."""
    layer = torch.nn.Linear(width, out, dtype=dtype)
    weight, bias = (2.0 * rng.uniform(rank, shape) - 1.0 for shape in ((out, width), (out,)))
    layer.weight = torch.nn.Parameter((gain * weight / width**0.5).to(dtype), requires_grad=False)
    layer.bias = torch.nn.Parameter((bias / width**0.5).to(dtype), requires_grad=False)
    return layer


@dataclass(frozen=True)
class Routing:
    """The picks of one rank in float64: experts (M, K), their weights (M, K), and the member that owns each."""

    experts: torch.Tensor
    weights: torch.Tensor
    owners: torch.Tensor


def routing(a: Args, members: int) -> Routing:
    """Picks and weights of one rank's tokens, its group having so many members."""
    hidden = wide(a["hidden_states"]).flatten(0, -2)
    logits = hidden @ wide(a["gate_weight"]).t()
    if a["gate_bias"] is not None:
        logits = logits + wide(a["gate_bias"])
    weights, experts = logits.softmax(dim=1).topk(a["top_k"], dim=1)
    return Routing(experts, weights, experts // (a["num_experts"] // members))


def layer_oracle(
    case: Case, members: list[Args], apply: Callable[[Args, torch.Tensor], torch.Tensor]
) -> list[Expected]:
    """The equations of this module in float64 for the members of one group.

    ``apply(arguments of the owner, rows)`` is the network of a rank.
    """
    expected = []
    for own in members:
        picked = routing(own, len(members))
        hidden = wide(own["hidden_states"]).flatten(0, -2)
        out = torch.zeros_like(hidden)
        for d, owner in enumerate(members):
            share = (picked.weights * (picked.owners == d)).sum(dim=1)
            rows = share.nonzero().flatten()
            out[rows] += share[rows].unsqueeze(1) * apply(owner, hidden[rows])
        expected.append(Expected(Leaf(out, case.dtype)))
    return expected


def linear64(layer: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
    """The layer in float64."""
    y = x @ wide(layer.weight).t()
    return y if layer.bias is None else y + wide(layer.bias)


def swiglu64(a: Args, x: torch.Tensor) -> torch.Tensor:
    """down(silu(gate(x)) * up(x)) in float64."""
    g, u = linear64(a["gate_proj"], x), linear64(a["up_proj"], x)
    return linear64(a["down_proj"], g * torch.sigmoid(g) * u)


def layer_cost(case: Case, members: list[Args], extra: int = 0) -> list[RankCost]:
    """Least work of the layer for the members of one group; ``extra``: parameters beside the three linear layers.

    Router: 2 M N E flops; network: two flops for each weight and row. HBM: hidden states, router and the own network
    read, results written. Link, for every token owner s and expert rank d the cheaper of two ways: one row there and
    one back for every token of s with a pick on d (two picks on one rank share a row), or the network of d once to s,
    which then computes these rows itself. ``one_way``: with multicast a row or network leaves its rank once, and with
    in-switch reduction a token's rows come back as one.
    """
    e, N = element_size(case.dtype), members[0]["hidden_states"].shape[-1]
    visits = torch.stack([_visits(own, len(members)) for own in members])  # (owner s, expert rank d, token)
    rows = visits.sum(dim=2)
    network = torch.tensor([network_parameters(own, extra) for own in members])
    away = ~torch.eye(len(members), dtype=torch.bool)
    fetch = away & (network < 2 * rows * N)
    moved = rows * N * (away & ~fetch)
    travels = (visits & (away & ~fetch).unsqueeze(2)).any(dim=1).sum(dim=1) * N
    computed = (rows * ~fetch).sum(dim=0) + (rows * fetch).sum(dim=1)
    both_ways = moved.sum(dim=0) + moved.sum(dim=1)
    sent, received = both_ways + network * fetch.sum(dim=0), both_ways + (fetch * network).sum(dim=1)
    out_once = moved.sum(dim=0) + travels + network * fetch.any(dim=0)
    in_once = moved.sum(dim=0) + travels + (fetch * network).sum(dim=1)
    floor = torch.maximum(out_once, in_once)
    ranks = []
    for j, own in enumerate(members):
        M, E, size = visits.shape[2], own["num_experts"], int(network[j])
        products = size - sum(len(own[name].bias) for name in NETWORK)
        flops = 2.0 * M * N * E + 2.0 * products * int(computed[j])
        hbm = float(e * (2 * M * N + E * N + E + size))
        link = [float(x[j]) * e for x in (sent, received, floor)]
        ranks.append(RankCost({dtype_name(case.dtype): flops}, hbm, link[0], link[1], one_way=link[2]))
    return ranks


def _visits(a: Args, members: int) -> torch.Tensor:
    """Whether a token of the rank has a pick on a member: bool (members, tokens)."""
    owners = routing(a, members).owners
    return torch.stack([(owners == d).any(dim=1) for d in range(members)])


def network_parameters(a: Args, extra: int) -> int:
    """Parameters of one rank's network."""
    total = extra
    for name in NETWORK:
        total += a[name].weight.numel() + a[name].bias.numel()
    return total


def divides(world_size: int, experts: int) -> str:
    """ "" if that many ranks can share the experts evenly, else a sentence."""
    if experts % world_size == 0:
        return ""
    return f"The world size must divide the number of experts: {experts} mod {world_size} is not 0."


def wide_enough(sizes: Mapping[str, int], experts: int) -> str:
    """ "" if the router rows of the draw can be orthonormal, else a sentence."""
    if sizes["N"] >= experts:
        return ""
    return f"The hidden width must be at least the number of experts: {sizes['N']} is less than {experts}."
