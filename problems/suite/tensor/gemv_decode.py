"""Output head at decoding time: vocabulary-sharded matrix-vector products, then all-gather of the logits.

Legend: T tokens, K hidden features, V_l vocabulary entries of one rank, W ranks, s a rank.

    logits[:, s V_l : (s+1) V_l] = hidden @ weight_s^T + bias_s
    hidden (T, K), weight_s (V_l, K), bias_s (V_l), logits (T, W V_l)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, wide
from problems.suite.costs import all_gather_cost, dtype_name, element_size
from problems.suite.draws import scaled_normal
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Hidden states and bias standard normal, weights scaled so that the products have standard deviation 1 too.

    "tokens": five tokens more, so that the gathered shards have to be interleaved.
    """
    T, K, V_l = case["T"] + (5 if case.draw == "tokens" else 0), case["K"], case["V_l"]
    hidden = scaled_normal(rng, None, (T, K), "normal" if case.draw == "tokens" else case.draw).to(case.dtype)
    ranks: list[Args] = []
    for r in range(case.world_size):
        weight, bias = rng.normal(r, (V_l, K), std=K**-0.5), rng.normal(r, (V_l,))
        shards = {"weight_shard": weight.to(case.dtype), "bias_shard": bias.to(case.dtype)}
        ranks.append({"hidden_states": hidden.clone(), **shards})
    return ranks


def solution(
    hidden_states: torch.Tensor,
    weight_shard: torch.Tensor,
    bias_shard: torch.Tensor,
) -> torch.Tensor:
    local = torch.matmul(hidden_states, weight_shard.t()) + bias_shard  # (T, V_l)
    shards = [torch.empty_like(local) for _ in range(dist.get_world_size())]
    dist.all_gather(shards, local)
    return torch.cat(shards, dim=1)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    weight, bias = (torch.cat([wide(a[name]) for a in args]) for name in ("weight_shard", "bias_shard"))
    logits = torch.einsum("tk,vk->tv", wide(args[0]["hidden_states"]), weight) + bias
    return [Expected(Leaf(logits, case.dtype)) for _ in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 T K V_l flops; own weights and bias, hidden states and all logits once; an all-gather of T W V_l elements."""
    W, e = case.world_size, element_size(case.dtype)
    (tokens, K), V_l = args[0]["hidden_states"].shape, len(args[0]["bias_shard"])
    hbm = float((V_l * K + tokens * K + V_l + tokens * W * V_l) * e)
    return all_gather_cost(W, tokens * W * V_l * e, flops={dtype_name(case.dtype): 2.0 * tokens * K * V_l}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    sizes = jitter(public, secret, odd=("K", "V_l"))
    return sizes | {"T": int(torch.randint(2, 9, (1,), generator=secret))}


PROBLEM = Problem(
    id=46,
    slug="gemv_decode",
    title="Output head at decoding time: vocabulary-sharded GEMV, then all-gather of the logits",
    type="tensor",
    also=("embedding",),
    domain="llm_inference",
    stage="forward",
    origin="vocab-parallel output head as in Megatron-LM and vLLM decoding",
    difficulty=2,
    statement=(
        "The vocabulary is split over the ranks: `weight_shard` (V_l, K) and `bias_shard` (V_l) belong to the rank's "
        "entries r·V_l to (r+1)·V_l - 1. `hidden_states` (T, K), one token or a few, are the same on all ranks. The "
        "result on every rank is the logits over the whole vocabulary, (T, W·V_l) in the dtype of the inputs: hidden "
        "states times the transposed weights, accumulated in float32, plus the bias, the ranks' shards side by side."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"T": 1, "K": 1024, "V_l": 1024},
    cpu_sizes={"T": 1, "K": 1024, "V_l": 1024},
    check_sizes={"T": 2, "K": 64, "V_l": 96},
    hidden_sizes=hidden_sizes,
    hidden_property="two to eight tokens, K and the shard of the vocabulary are odd",
    linear=("hidden_states", "bias_shard"),
    draws={
        "tokens": "structured: six tokens instead of one",
        "small": "stress: hidden states scaled by 1e-3, so that the bias decides",
        "large": "stress: hidden states scaled by 1e3",
        "mixed": "stress: tokens with amplitudes from 1e-2 to 1e2",
    },
    replicated=("hidden_states",),
    communication="all_gather of (T, V_l), concatenated along the vocabulary in rank order, over the world group",
    hazards=(
        "With several tokens the shards arrive one below the other and belong side by side.",
        "Reading the weights dominates; they must not be taken from cache in timing.",
        "The payload of the exchange is a few KiB: latency counts.",
    ),
)
