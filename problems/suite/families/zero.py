"""Training steps with Adam's moments sharded over the ranks (ZeRO): what the stages have in common.

Legend as in mlp_training; part = P / W parameters of one rank's shard.
"""

from __future__ import annotations

import torch

from problems.suite.base import Args, Case, Close, Expected, Leaf, RankCost, Rng, wide
from problems.suite.costs import broadcast_cost, element_size
from problems.suite.families.adam import true_adam
from problems.suite.families.mlp_training import (
    PARAMETERS,
    draw_hyper,
    draw_moments,
    draw_training,
    hyper,
    second_moment_rule,
    training_flops,
    true_gradients,
    widths,
)


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Samples and moment shards of every rank; parameters of rank 0, and other values on the others, to be ignored.

    The learning rate is 0.3 to 0.5 and the moments fit the gradients, so the step changes every output by a tenth of
    its size or more; with the published 0.001 and zero moments an unchanged parameter passes for an updated one.
    """
    W = case.world_size
    ranks, sizes = draw_training(case, rng, widths(case.sizes, W))
    settings = draw_hyper(case, rng)
    size = torch.cat([torch.full((ranks[0][name].numel(),), s) for name, s in zip(PARAMETERS, sizes, strict=True)])
    for r, (own, shard) in enumerate(zip(ranks, size.chunk(W), strict=True)):
        own["exp_avg_part"], own["exp_avg_sq_part"] = draw_moments(rng, r, shard, case.dtype)
        own |= settings
    return ranks


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    parameters = [wide(args[0][name]) for name in PARAMETERS]
    flat, gradient = (torch.cat([x.flatten() for x in xs]) for xs in (parameters, true_gradients(args, parameters)))
    first, second = (torch.cat([wide(a[name]) for a in args]) for name in ("exp_avg_part", "exp_avg_sq_part"))
    flat, first, second = true_adam(flat, gradient, first, second, hyper(args[0]))
    updated = torch.split(flat, [p.numel() for p in parameters])
    leaves = [Leaf(x.reshape(p.shape), case.dtype) for x, p in zip(updated, parameters, strict=True)]
    rule = second_moment_rule(case.dtype)

    def shards(x: torch.Tensor, own: Close) -> list[Leaf]:
        return [Leaf(shard, case.dtype, own) for shard in x.chunk(len(args))]

    return [Expected((*leaves, m, v)) for m, v in zip(shards(first, Close()), shards(second, rule), strict=True)]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """Flops of forward and backward on every rank, and of the update of P/W parameters.

    HBM: samples and two moment shards read, P + 2 P/W elements written; P read by rank 0 alone.
    Link, point to point: a broadcast of P elements, a reduce-scatter and an all-gather of (W-1)/W P each. With
    in-switch reduction and multicast 2 P remain: rank 0 sends theta, its gradients for the other shards and its updated
    shard; the others receive theta, the reduced gradients of their shard and the updated shards of the others.
    """
    W, e = case.world_size, element_size(case.dtype)
    P = sum(args[0][name].numel() for name in PARAMETERS)
    part = P // W
    flops = training_flops(case, args[0], part)
    read = (args[0]["X_local"].numel() + args[0]["y_local"].numel() + 2 * part) * e
    hbm = [float(read + ((2 if r == 0 else 1) * P + 2 * part) * e) for r in range(W)]
    scattered = 2.0 * (W - 1) * part * e
    floor = 2.0 * P * e if W > 1 else 0.0
    return [
        RankCost(flops, d.hbm, d.sent + scattered, d.received + scattered, one_way=floor)
        for d in broadcast_cost(W, float(P * e), 0, flops=flops, hbm=hbm)
    ]
