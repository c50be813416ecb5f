"""One training step of a two-layer MLP with Adam, ZeRO stage 2: every rank gets and applies a shard.

Legend: C samples of one rank, d_in and d_out features in and out, h hidden units, W ranks, q a rank, t = step. theta
(P,) is W1 (h, d_in), b1 (h,), W2 (d_out, h) and b2 (d_out,) of rank 0, one after the other. Rank r owns elements
r P/W to (r+1) P/W - 1 and holds their moments m and v.

    loss_q = mean over all elements of (relu(X_q W1^T + b1) W2^T + b2 - y_q)^2
    g = sum over q of d loss_q / d theta / W                                                              (P,)
    own P/W elements:
        m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2
        theta = theta - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
    all ranks then hold the whole new theta
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from problems.suite.base import Problem
from problems.suite.families.adam import adam
from problems.suite.families.mlp_training import (
    DRAWS,
    ONE_64TH,
    TOLERANCES,
    divisibility,
    flat_gradients,
    flatten,
    unflatten,
)
from problems.suite.families.zero import cost, inputs, oracle
from problems.suite.shapes import jitter


def solution(
    X_local: Tensor,
    y_local: Tensor,
    W1: Tensor,
    b1: Tensor,
    W2: Tensor,
    b2: Tensor,
    exp_avg_part: Tensor,
    exp_avg_sq_part: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    W, r, part = dist.get_world_size(), dist.get_rank(), exp_avg_part.numel()
    shapes = [W1.shape, b1.shape, W2.shape, b2.shape]
    theta = flatten([W1, b1, W2, b2])  # (P,)
    assert theta.numel() == W * part
    dist.broadcast(theta, src=0)
    g = flat_gradients(X_local, y_local, theta, shapes)
    g_part = torch.empty_like(exp_avg_part)
    dist.reduce_scatter_tensor(g_part, g, op=dist.ReduceOp.SUM)
    g_part /= W
    own = theta[r * part : (r + 1) * part]
    own, m, v = adam(own, g_part, exp_avg_part, exp_avg_sq_part, lr, beta1, beta2, eps, step)
    dist.all_gather_into_tensor(theta, own)
    W1, b1, W2, b2 = unflatten(theta, shapes)
    return W1, b1, W2, b2, m, v


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    # With N a multiple of 8, P can be made a multiple of any power of two.
    return jitter(public, secret, odd=("M",), multiple={"N": 8})


PROBLEM = Problem(
    id=42,
    slug="zero2_optimizer_shard_grad",
    title="ZeRO-2 training step: sharded Adam states and reduce-scattered gradients",
    type="sharded_data",
    also=("data",),
    domain="llm_training",
    stage="optimizer",
    origin="semantics of DeepSpeed ZeRO stage 2, on a small model of our own",
    difficulty=4,
    statement=(
        "One training step of out = relu(X·W1ᵀ + b1)·W2ᵀ + b2 with the mean squared error over the C·d_out elements of "
        "a rank. `X_local` (C, d_in) and `y_local` (C, d_out) are the rank's own samples. Parameters W1 (h, d_in), b1 "
        "(h,), W2 (d_out, h), b2 (d_out,) are those **of rank 0**; what other ranks pass must not matter. Flattened in "
        "this order they have P elements, and W divides P. `exp_avg_part` and `exp_avg_sq_part` (P/W,) are the Adam "
        "moments of elements r·P/W to (r+1)·P/W - 1; a shard boundary may fall inside any tensor. The gradients of the "
        "local losses are averaged over all ranks, and a rank needs those of its own elements only. Each is updated "
        "by Adam without weight decay: m = beta1·m + (1 - beta1)·g, v = beta2·v + (1 - beta2)·g², parameter minus "
        "lr·(m/(1 - beta1^step))/(sqrt(v/(1 - beta2^step)) + eps). The result is the tuple (W1, b1, W2, b2, m, v): all "
        "updated parameters, on every rank, and the rank's own two moment shards, in the run dtype. Arguments keep "
        "their values."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 512, "N": 256},
    check_sizes={"M": 320, "N": 40},
    hidden_sizes=hidden_sizes,
    hidden_property="M is odd and h is not a power of two; shard boundaries lie inside W1 and W2",
    draws=DRAWS,
    world_size_rule=divisibility,
    communication=(
        "broadcast of (P,) parameters from rank 0\n"
        "reduce_scatter SUM of (P,) gradients to (P/W,)\n"
        "all_gather of (P/W,) updated parameters"
    ),
    hazards=(
        "The mathematics is that of ZeRO-1; only where the gradients are kept differs.",
        "In bf16 each of the eight stored steps of Adam rounds; computing a step in fp32 throughout is welcome.",
        "h grows until W divides P, so shapes may depend on the number of ranks.",
        "In fp16 an eps of 1e-8 is zero.",
    ),
    tolerances=TOLERANCES,
    waivers={"missing_chunk/bf16/8": ONE_64TH},
)
