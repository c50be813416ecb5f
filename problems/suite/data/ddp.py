"""One data-parallel training step of a two-layer MLP with Adam, from rank 0's parameters and moments.

Legend: C samples of one rank, d_in and d_out features in and out, h hidden units, W ranks, q a rank, t = step. theta
stands for W1 (h, d_in), b1 (h,), W2 (d_out, h) and b2 (d_out,) of rank 0, m and v for its moments.

    loss_q = mean over all elements of (relu(X_q W1^T + b1) W2^T + b2 - y_q)^2
    g = sum over q of d loss_q / d theta / W
    m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
    theta = theta - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import broadcast_cost, element_size, reduce_cost
from problems.suite.families.adam import adam, true_adam
from problems.suite.families.mlp_training import (
    DRAWS,
    PARAMETERS,
    TOLERANCES,
    draw_hyper,
    draw_moments,
    draw_training,
    flat_gradients,
    flatten,
    hyper,
    second_moment_rule,
    training_flops,
    true_gradients,
    unflatten,
    widths,
)
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Samples of every rank; parameters and moments of rank 0, and other values on the others, which must not matter.

    The learning rate is 0.3 to 0.5 and the moments fit the gradients, so the step changes every output by a tenth of
    its size or more; with the published 0.001 and zero moments an unchanged parameter passes for an updated one.
    """
    ranks, sizes = draw_training(case, rng, widths(case.sizes))
    settings = draw_hyper(case, rng)
    for r, own in enumerate(ranks):
        pairs = [
            draw_moments(rng, r, torch.full(own[name].shape, size), case.dtype)
            for name, size in zip(PARAMETERS, sizes, strict=True)
        ]
        for kind, moments in zip(("exp_avg", "exp_avg_sq"), zip(*pairs, strict=True), strict=True):
            own |= {f"{kind}_{name}": x for name, x in zip(PARAMETERS, moments, strict=True)}
        own |= settings
    return ranks


def solution(
    X_local: Tensor,
    y_local: Tensor,
    W1: Tensor,
    b1: Tensor,
    W2: Tensor,
    b2: Tensor,
    exp_avg_W1: Tensor,
    exp_avg_b1: Tensor,
    exp_avg_W2: Tensor,
    exp_avg_b2: Tensor,
    exp_avg_sq_W1: Tensor,
    exp_avg_sq_b1: Tensor,
    exp_avg_sq_W2: Tensor,
    exp_avg_sq_b2: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> tuple[Tensor, ...]:
    shapes = [W1.shape, b1.shape, W2.shape, b2.shape]
    theta = flatten([W1, b1, W2, b2])  # (P,)
    m = flatten([exp_avg_W1, exp_avg_b1, exp_avg_W2, exp_avg_b2])
    v = flatten([exp_avg_sq_W1, exp_avg_sq_b1, exp_avg_sq_W2, exp_avg_sq_b2])
    for state in (theta, m, v):
        dist.broadcast(state, src=0)
    g = flat_gradients(X_local, y_local, theta, shapes)
    dist.all_reduce(g, op=dist.ReduceOp.SUM)
    g /= dist.get_world_size()
    theta, m, v = adam(theta, g, m, v, lr, beta1, beta2, eps, step)
    return (*unflatten(theta, shapes), *unflatten(m, shapes), *unflatten(v, shapes))


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    root = args[0]
    gradients = true_gradients(args, [root[name] for name in PARAMETERS])
    steps = [
        true_adam(root[name], g, root[f"exp_avg_{name}"], root[f"exp_avg_sq_{name}"], hyper(root))
        for name, g in zip(PARAMETERS, gradients, strict=True)
    ]
    parameters, first, second = zip(*steps, strict=True)
    rule = second_moment_rule(case.dtype)
    output = tuple(Leaf(x, case.dtype) for x in (*parameters, *first))
    return [Expected((*output, *(Leaf(x, case.dtype, rule) for x in second))) for _ in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """Flops of forward, backward and the update of all P parameters on every rank.

    HBM: samples read, 3 P elements written; 3 P read by rank 0 alone, since what other ranks hold is not used.
    Link, fewest bytes: rank 0 broadcasts theta, the gradients are reduced to rank 0, which updates both moments and
    broadcasts them; everyone then updates theta. That is a broadcast of 3 P elements and a reduction of P. Whatever the
    algorithm, rank 0 must give away 3 P and the others must receive 3 P: theta, and the two moments after the step.
    """
    W, e = case.world_size, element_size(case.dtype)
    P = sum(args[0][name].numel() for name in PARAMETERS)
    flops = training_flops(case, args[0], P)
    read = (args[0]["X_local"].numel() + args[0]["y_local"].numel()) * e
    hbm = [float(read + (6 if r == 0 else 3) * P * e) for r in range(W)]
    down = broadcast_cost(W, 3.0 * P * e, 0, flops=flops, hbm=hbm)
    up = reduce_cost(W, float(P * e), 0, flops=flops, hbm=hbm)
    floor = 3.0 * P * e if W > 1 else 0.0
    return [
        RankCost(flops, d.hbm, d.sent + u.sent, d.received + u.received, one_way=floor)
        for d, u in zip(down, up, strict=True)
    ]


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=40,
    slug="ddp",
    title="Data-parallel training step of a two-layer MLP with Adam",
    type="data",
    also=(),
    domain="llm_training",
    stage="optimizer",
    origin="semantics of PyTorch DistributedDataParallel, on a small model of our own",
    difficulty=4,
    statement=(
        "One training step of out = relu(X·W1ᵀ + b1)·W2ᵀ + b2 with the mean squared error over the C·d_out elements of "
        "a rank. `X_local` (C, d_in) and `y_local` (C, d_out) are the rank's own samples. Parameters W1 (h, d_in), b1 "
        "(h,), W2 (d_out, h), b2 (d_out,) and their Adam moments are those **of rank 0**; what other ranks pass for "
        "them must not matter. The gradients of the local losses are averaged over all ranks; then one step of Adam "
        "without weight decay: m = beta1·m + (1 - beta1)·g, v = beta2·v + (1 - beta2)·g², parameter minus "
        "lr·(m/(1 - beta1^step))/(sqrt(v/(1 - beta2^step)) + eps). The result on every rank is a tuple of 12 tensors: "
        "four parameters, four first moments, four second moments, all updated, in the run dtype. Arguments keep their "
        "values."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 512, "N": 256},
    check_sizes={"M": 256, "N": 40},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so no row is a multiple of 16 bytes",
    draws=DRAWS,
    communication=(
        "broadcast of (P,) parameters from rank 0\n"
        "broadcast of (P,) first moments and of (P,) second moments from rank 0\n"
        "all_reduce SUM of (P,) gradients"
    ),
    hazards=(
        "The moments are not needed before the update, so their broadcast can overlap with forward and backward.",
        "Three quarters of what the reference sends is rank 0's state; its cost decides, not the gradients'.",
        "In bf16 each of the eight stored steps of Adam rounds; computing a step in fp32 throughout is welcome.",
        "In fp16 an eps of 1e-8 is zero.",
    ),
    tolerances=TOLERANCES,
)
