"""One FSDP training step of a two-layer MLP: gather parameters, forward, backward, reduce-scatter gradients, AdamW.

Legend: C samples of one rank, d_in and d_out features in and out, h hidden units, W ranks, q a rank, t = step. theta
(P,) is W1 (h, d_in), b1 (h,), W2 (d_out, h) and b2 (d_out,), one after the other; rank r holds its elements r P/W to
(r+1) P/W - 1 and their moments m and v.

    loss_q = mean over all elements of (relu(X_q W1^T + b1) W2^T + b2 - y_q)^2
    g = own elements of (sum over q of d loss_q / d theta) / W                                            (P/W,)
    m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
    theta = theta - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps) - lr weight_decay theta
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.families.adam import adam, true_adam
from problems.suite.families.mlp_training import (
    DRAWS,
    PARAMETERS,
    TOLERANCES,
    divisibility,
    draw_hyper,
    draw_moments,
    draw_training,
    flat_gradients,
    flatten,
    hyper,
    second_moment_rule,
    true_gradients,
    widths,
)
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Samples, and shards of normal parameters and of moments that fit the gradients.

    Learning rates of 0.3 to 0.5 and decays of 0.2 to 0.4 change every output by a tenth of its size or more; the
    published ones are within the tolerance of an unchanged shard, and most of the published shards are zero.
    """
    W, (d_in, h, d_out) = case.world_size, widths(case.sizes, case.world_size)
    trained, sizes = draw_training(case, rng, (d_in, h, d_out))
    parameters = [trained[0][name] for name in PARAMETERS]
    shards = flatten(parameters).chunk(W)
    size = torch.cat([torch.full((p.numel(),), s) for p, s in zip(parameters, sizes, strict=True)]).chunk(W)
    settings = draw_hyper(case, rng)
    decay = 0.0 if case.draw == "no_decay" else 0.2 + 0.2 * float(rng.uniform(None, ()))
    ranks: list[Args] = []
    for r in range(W):
        m, v = draw_moments(rng, r, size[r], case.dtype)
        ranks.append(
            {
                "X_local": trained[r]["X_local"],
                "y_local": trained[r]["y_local"],
                "flat_param_shard": shards[r].clone(),
                "param_shapes": ((h, d_in), (h,), (d_out, h), (d_out,)),
                "exp_avg_shard": m,
                "exp_avg_sq_shard": v,
                **{name: settings[name] for name in ("lr", "beta1", "beta2", "eps")},
                "weight_decay": decay,
                "step": settings["step"],
            }
        )
    return ranks


def solution(
    X_local: Tensor,
    y_local: Tensor,
    flat_param_shard: Tensor,
    param_shapes: Sequence[tuple[int, ...]],
    exp_avg_shard: Tensor,
    exp_avg_sq_shard: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> tuple[Tensor, Tensor, Tensor]:
    assert step >= 1
    W = dist.get_world_size()
    theta = flat_param_shard.new_empty(W * flat_param_shard.numel())  # (P,)
    dist.all_gather_into_tensor(theta, flat_param_shard)
    gradients = flat_gradients(X_local, y_local, theta, [torch.Size(shape) for shape in param_shapes])
    g = torch.empty_like(flat_param_shard)
    dist.reduce_scatter_tensor(g, gradients, op=dist.ReduceOp.SUM)
    g /= W
    updated, m, v = adam(flat_param_shard, g, exp_avg_shard, exp_avg_sq_shard, lr, beta1, beta2, eps, step)
    # Decoupled decay, by the value from before the step.
    updated -= lr * weight_decay * flat_param_shard
    return updated, m, v


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    theta = torch.cat([wide(a["flat_param_shard"]) for a in args])
    first, second = (torch.cat([wide(a[name]) for a in args]) for name in ("exp_avg_shard", "exp_avg_sq_shard"))
    shapes = [torch.Size(shape) for shape in args[0]["param_shapes"]]
    pieces = theta.split_with_sizes([shape.numel() for shape in shapes])
    gradient = true_gradients(args, [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)])
    updated, first, second = true_adam(theta, flatten(gradient), first, second, hyper(args[0]))
    updated = updated - args[0]["lr"] * args[0]["weight_decay"] * theta
    rule = second_moment_rule(case.dtype)
    shards = zip(*(x.chunk(len(args)) for x in (updated, first, second)), strict=True)
    return [Expected((Leaf(p, case.dtype), Leaf(m, case.dtype), Leaf(v, case.dtype, rule))) for p, m, v in shards]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """4 C d_in h + 6 C h d_out flops of forward and backward, 18 for each own parameter.

    HBM: samples, three shards in, three out, and the gathered parameters once. Link: an all-gather and a reduce-scatter
    of P elements. With multicast and in-switch reduction a rank sends its shard once and the gradients of the others'
    shards, and receives the others' shards and the reduced gradients of its own: P each way.
    """
    a, W, e = args[0], case.world_size, element_size(case.dtype)
    (h, d_in), _, (d_out, _), _ = a["param_shapes"]
    C, part = a["X_local"].shape[0], a["flat_param_shard"].numel()
    flops = {dtype_name(case.dtype): 4.0 * C * d_in * h + 6.0 * C * h * d_out}
    flops["fp32"] = flops.get("fp32", 0.0) + 18.0 * part
    hbm = float(e * (C * (d_in + d_out) + 6 * part + W * part))
    wire = 2.0 * (W - 1) * part * e
    return [RankCost(flops, hbm, wire, wire, one_way=min(wire, float(W * part * e)))] * W


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    # With N a multiple of 8, P can be made a multiple of any power of two.
    return jitter(public, secret, odd=("M",), multiple={"N": 8})


PROBLEM = Problem(
    id=47,
    slug="fsdp_step_e2e",
    title="One full FSDP training step of a two-layer MLP (gather, forward, backward, reduce-scatter, AdamW)",
    type="sharded_data",
    also=("data",),
    domain="llm_training",
    stage="optimizer",
    origin="PyTorch FSDP / ZeRO-3 step on a small MLP",
    difficulty=5,
    statement=(
        "One training step of out = relu(X·W1ᵀ + b1)·W2ᵀ + b2 with the mean squared error over the C·d_out elements of "
        "a rank. `param_shapes` gives the shapes (h, d_in), (h,), (d_out, h), (d_out,) of W1, b1, W2, b2, which one "
        "after the other have P elements; rank r holds elements r·P/W to (r+1)·P/W - 1 as `flat_param_shard`, and "
        "their Adam moments `exp_avg_shard` and `exp_avg_sq_shard`. A shard boundary may fall inside any tensor. "
        "`X_local` (C, d_in) and `y_local` (C, d_out) are the rank's own samples. The gradients of the local losses "
        "are averaged over the ranks. Own elements: m = beta1·m + (1 - beta1)·g, v = beta2·v + (1 - beta2)·g², "
        "parameter minus lr·(m/(1 - beta1^step))/(sqrt(v/(1 - beta2^step)) + eps) minus lr·weight_decay times the "
        "parameter from before the step. The result is the tuple (theta, m, v) of the rank's own new shards, (P/W,) "
        "each, in the run dtype, without gradients. `step` counts from 1. Arguments keep their values."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 256, "N": 128},
    check_sizes={"M": 256, "N": 40},
    hidden_sizes=hidden_sizes,
    hidden_property="M is odd and h is not a power of two; shard boundaries lie inside W1 and W2",
    draws={**DRAWS, "no_decay": "structured: weight_decay is 0"},
    world_size_rule=divisibility,
    communication="all_gather of (P/W,) parameters\nreduce_scatter SUM of (P,) gradients",
    hazards=(
        "The decay uses the parameter from before the step.",
        "Shard boundaries fall inside tensors.",
        "In bf16 each stored step of Adam rounds; computing a step in fp32 throughout is welcome.",
        "h grows until W divides P, so shapes may depend on the number of ranks.",
        "In fp16 an eps of 1e-8 is zero.",
    ),
    tolerances=TOLERANCES,
)
