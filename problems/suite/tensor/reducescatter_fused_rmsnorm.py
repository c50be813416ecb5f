"""Reduce-scatter (mean) of a vector, then RMSNorm of the own chunk.

Legend: R rows and H hidden features of a chunk, W ranks, q a rank, r the own rank, x_q the rank's rs_input_1d.

    a = chunk r of the sum over q of x_q, divided by W                               x_q (W R H), a (R, H)
    out[i, j] = a[i, j] / sqrt(mean over j of a[i, j]² + eps) * gamma[j]             gamma (H), out (R, H)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import element_size, reduce_scatter_cost
from problems.suite.shapes import jitter

EPSILON = 1e-5


def _chunk_shape(case: Case) -> tuple[int, int]:
    """(R, H): few wide rows for few ranks, never more than 128 features."""
    W = case.world_size
    return max(2, max(case["M"], W) // max(W, 4)), max(32, min(case["N"], 128))


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Rows of amplitude 1e-3 to 1, so that their mean squares span epsilon; half of the values are common to all ranks.

    Without epsilon, RMSNorm would not notice a missing division by W.
    """
    W, (R, H) = case.world_size, _chunk_shape(case)
    amplitude = 10.0 ** (-3.0 * rng.uniform(None, (W, R, 1))) * {"small": 1e-2, "large": 100.0}.get(case.draw, 1.0)
    common, gamma = rng.normal(None, (W, R, H)), 1.0 + 0.5 * rng.normal(None, (H,))
    ranks: list[Args] = []
    for r in range(W):
        x = (amplitude * (common + rng.normal(r, (W, R, H)))).to(case.dtype)
        epsilon = 0.1 if case.draw == "epsilon" else EPSILON
        ranks.append({"rs_input_1d": x.flatten(), "gamma": gamma.to(case.dtype), "eps": epsilon})
    return ranks


def solution(
    rs_input_1d: Tensor,
    gamma: Tensor,
    eps: float,
) -> Tensor:
    W = dist.get_world_size()
    chunk = rs_input_1d.new_empty(rs_input_1d.numel() // W)
    dist.reduce_scatter_tensor(chunk, rs_input_1d, op=dist.ReduceOp.SUM)
    chunk.div_(W)
    x = chunk.view(-1, gamma.numel()).float()  # (R, H)
    inverse = torch.rsqrt(x.pow(2).mean(dim=-1, keepdim=True) + eps)
    return (x * inverse * gamma.float()).to(rs_input_1d.dtype)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    W = len(args)
    mean = torch.stack([wide(a["rs_input_1d"]) for a in args]).mean(dim=0).reshape(W, -1, len(args[0]["gamma"]))
    expected = []
    for rows, a in zip(mean, args, strict=True):
        root = (rows.square().sum(dim=1, keepdim=True) / rows.shape[1] + a["eps"]).sqrt()
        expected.append(Expected(Leaf(rows / root * wide(a["gamma"]), case.dtype)))
    return expected


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """(W-1) R H additions and 5 R H flops for mean and norm; input, gamma and result once; a reduce-scatter."""
    W, e = case.world_size, element_size(case.dtype)
    chunk, hidden = args[0]["rs_input_1d"].numel() // W, args[0]["gamma"].numel()
    hbm = float((W * chunk + hidden + chunk) * e)
    return reduce_scatter_cost(W, W * chunk * e, flops={"fp32": (W + 4.0) * chunk}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter({"M": public["M"], "N": 128}, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=45,
    slug="reducescatter_fused_rmsnorm",
    title="Reduce-scatter (mean) fused with RMSNorm",
    type="tensor",
    also=("sequence",),
    domain="llm_training",
    stage="forward",
    origin="sequence-parallel reduce-scatter followed by RMSNorm",
    difficulty=2,
    statement=(
        "Every rank holds a vector `rs_input_1d` of W chunks of R·H elements. Chunk r of the element-wise mean over "
        "all ranks (the sum divided by the world size) goes to rank r, is read as (R, H), and every row is divided by "
        "the root of its mean square plus `eps` and multiplied by `gamma` (H), which is the same on all ranks. The "
        "norm is computed in float32; the result (R, H) is in the dtype of the input."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 1024, "N": 1024},
    check_sizes={"M": 64, "N": 40},
    hidden_sizes=hidden_sizes,
    hidden_property="rows have an odd number of features below 128, so no row is a multiple of 16 bytes",
    linear=("gamma",),
    draws={
        "epsilon": "structured: an epsilon of 0.1",
        "small": "stress: values scaled by 1e-2, so that epsilon decides in most rows",
        "large": "stress: values scaled by 100",
    },
    replicated=("gamma",),
    communication="reduce_scatter SUM, (W·R·H,) -> (R·H,), over the world group",
    hazards=(
        "The division by W shows only through epsilon, in rows of small amplitude; inputs have such rows.",
        "bf16 partial sums rounded at every hop lose precision; fp32 accumulation is welcome.",
        "The payload is small, so latency counts.",
    ),
    tolerances=calibrated(bf16=1.21e-2, fp16=2e-3),
)
