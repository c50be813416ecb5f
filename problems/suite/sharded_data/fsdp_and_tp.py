"""SwiGLU MLP forward, sharded in two dimensions: FSDP gathers weights, tensor parallelism splits the inner dimension.

Legend: B rows of one batch part, D features, E inner dimension; W = n_tp n_fsdp ranks; rank r has the tensor-parallel
index t = r mod n_tp and the FSDP index f = r // n_tp; x_local (B, D) is the same on the ranks of one f.

    W1 (D, E / n_tp) = the W1_shards (D / n_fsdp, E / n_tp) of all f with the own t, joined along rows; W2 likewise
    W3 (E / n_tp, D) = the W3_shards (E / n_tp, D / n_fsdp) of all f with the own t, joined along columns
    partial = (silu(x W1) * (x W2)) W3,    silu(a) = a / (1 + exp(-a))
    y = sum of partial over the ranks with the own f                           (B, D)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.draws import scaled_normal
from problems.suite.shapes import jitter


def mesh(case: Case) -> tuple[int, int]:
    """(n_tp, n_fsdp): the smallest n_tp of at least 2 that leaves n_fsdp at least 2; else all ranks gather weights."""
    W = case.world_size
    if case.draw == "tensor_only":
        return W, 1
    if case.draw == "fsdp_only":
        return 1, W
    n_tp = next((t for t in range(2, W) if W % t == 0 and W // t >= 2), 1)
    return (W // n_tp, n_tp) if case.draw == "transposed" else (n_tp, W // n_tp)


def inputs(case: Case, rng: Rng) -> list[Args]:
    """x standard normal; weights scaled so that both products have standard deviation 1 and y about 1.2.

    D is rounded up to a multiple of n_tp and n_fsdp, E to one of n_tp; B = rows / n_fsdp, rounded up. Every rank draws
    its own blocks of the weights.
    """
    n_tp, n_fsdp = mesh(case)
    least = math.lcm(n_tp, n_fsdp)
    D, inner = -(-case["D"] // least) * least, -(-case["E"] // n_tp)
    B = -(-case["rows"] // n_fsdp)
    x = scaled_normal(rng, None, (n_fsdp, B, D), case.draw)
    steep = 4.0 if case.draw == "steep" else 1.0
    ranks: list[Args] = []
    for r in range(case.world_size):
        shard = (D // n_fsdp, inner)
        ranks.append(
            {
                "x_local": x[r // n_tp].to(case.dtype),
                "W1_shard": rng.normal(r, shard, std=steep * D**-0.5).to(case.dtype),
                "W2_shard": rng.normal(r, shard, std=D**-0.5).to(case.dtype),
                "W3_shard": rng.normal(r, (inner, D // n_fsdp), std=2.0 * (inner * n_tp) ** -0.5).to(case.dtype),
                "n_tp": n_tp,
                "n_fsdp": n_fsdp,
            }
        )
    return ranks


@cache
def mesh_groups(n_tp: int, n_fsdp: int) -> tuple[dist.ProcessGroup, dist.ProcessGroup]:
    """The own tensor-parallel and FSDP group, made once; every rank takes part in making all of them."""
    rank = dist.get_rank()
    tp_groups = [dist.new_group(list(range(f * n_tp, (f + 1) * n_tp))) for f in range(n_fsdp)]
    fsdp_groups = [dist.new_group(list(range(t, n_tp * n_fsdp, n_tp))) for t in range(n_tp)]
    return tp_groups[rank // n_tp], fsdp_groups[rank % n_tp]


def gather_rows(shard: Tensor, n_fsdp: int, group: dist.ProcessGroup) -> Tensor:
    whole = shard.new_empty((n_fsdp * shard.shape[0], shard.shape[1]))
    dist.all_gather_into_tensor(whole, shard.contiguous(), group=group)
    return whole


def gather_columns(shard: Tensor, n_fsdp: int, group: dist.ProcessGroup) -> Tensor:
    blocks = [torch.empty_like(shard) for _ in range(n_fsdp)]
    dist.all_gather(blocks, shard.contiguous(), group=group)
    return torch.cat(blocks, dim=1)


@torch.no_grad()
def solution(
    x_local: Tensor,
    W1_shard: Tensor,
    W2_shard: Tensor,
    W3_shard: Tensor,
    n_tp: int,
    n_fsdp: int,
) -> Tensor:
    assert dist.get_world_size() == n_tp * n_fsdp
    tp_group, fsdp_group = mesh_groups(n_tp, n_fsdp)
    W1 = gather_rows(W1_shard, n_fsdp, fsdp_group)  # (D, E / n_tp)
    W2 = gather_rows(W2_shard, n_fsdp, fsdp_group)
    W3 = gather_columns(W3_shard, n_fsdp, fsdp_group)  # (E / n_tp, D)
    y = (F.silu(x_local @ W1) * (x_local @ W2)) @ W3
    dist.all_reduce(y, op=dist.ReduceOp.SUM, group=tp_group)
    return y


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    n_tp, n_fsdp = args[0]["n_tp"], args[0]["n_fsdp"]
    y: list[torch.Tensor | float] = [0.0] * n_fsdp
    for t in range(n_tp):
        # The blocks of the inner dimension with index t, over all FSDP indices.
        column = [args[f * n_tp + t] for f in range(n_fsdp)]
        W1, W2 = (torch.cat([wide(a[name]) for a in column]) for name in ("W1_shard", "W2_shard"))
        W3 = torch.cat([wide(a["W3_shard"]) for a in column], dim=1)
        for f, a in enumerate(column):
            gate = wide(a["x_local"]) @ W1
            y[f] = y[f] + (gate * torch.sigmoid(gate) * (wide(a["x_local"]) @ W2)) @ W3
    return [Expected(Leaf(torch.as_tensor(y[r // n_tp]), case.dtype)) for r in range(len(args))]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """6 B D E/n_tp flops of products, 6 per element of the activation; x, the gathered weights and y once.

    Link: the weight shards of the other n_fsdp - 1 ranks with the own t, and an all-reduce of y over n_tp ranks, which
    in the switch takes B D elements each way.
    """
    a, e = args[0], element_size(case.dtype)
    n_tp, n_fsdp = a["n_tp"], a["n_fsdp"]
    (B, D), (rows, inner) = a["x_local"].shape, a["W1_shard"].shape
    gathered = 3.0 * (n_fsdp - 1) * rows * inner * e
    reduced = 2.0 * (n_tp - 1) / n_tp * B * D * e
    wire, floor = gathered + reduced, gathered + min(reduced, float(B * D * e))
    flops = {dtype_name(case.dtype): 6.0 * B * D * inner}
    flops["fp32"] = flops.get("fp32", 0.0) + 6.0 * B * inner
    hbm = float((2 * B * D + 3 * D * inner) * e)
    return [RankCost(flops, hbm, wire, wire, one_way=floor)] * case.world_size


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("rows", "D", "E"))


def skip_draw(case: Case) -> bool:
    # Products of two activations leave the range of fp16: 1e-6 is subnormal, and 400 squared overflows.
    return case.dtype == torch.float16 and case.draw in ("small", "mixed")


PROBLEM = Problem(
    id=48,
    slug="fsdp_and_tp",
    title="SwiGLU MLP forward with 2-D sharding: FSDP weight gather plus tensor-parallel all-reduce",
    type="sharded_data",
    also=("tensor",),
    domain="llm_training",
    stage="forward",
    origin="PyTorch FSDP with Megatron tensor parallelism on a LLaMA-style MLP",
    difficulty=4,
    statement=(
        "W = `n_tp` · `n_fsdp` ranks; rank r has the tensor-parallel index t = r mod n_tp and the FSDP index "
        "f = r // n_tp. The weights W1 and W2 (D, E) and W3 (E, D) are cut in both dimensions: `W1_shard` and "
        "`W2_shard` (D/n_fsdp, E/n_tp) are block (f, t), `W3_shard` (E/n_tp, D/n_fsdp) is block (t, f). `x_local` "
        "(B, D) holds the batch rows of index f, the same on its n_tp ranks. The result is the MLP of these rows, "
        "y = (silu(x W1) * (x W2)) W3, (B, D) in the dtype of the inputs, the same on the ranks of one f. Products "
        "accumulate in float32. The reference gathers the weights over the ranks with the same t, computes a partial "
        "product with its part of E, and adds the partial products over the ranks with the same f. It makes its "
        "process groups on the first call with a pair (n_tp, n_fsdp) and keeps them. Both numbers are arguments and "
        "must be obeyed; either may be 1."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"rows": 2048, "D": 256, "E": 1024},
    cpu_sizes={"rows": 128, "D": 128, "E": 256},
    check_sizes={"rows": 64, "D": 64, "E": 96},
    hidden_sizes=hidden_sizes,
    hidden_property="odd sizes, rounded up to what the ranks must divide; rows are no multiples of 16 bytes",
    linear=("W2_shard",),
    draws={
        "tensor_only": "structured: n_fsdp is 1, no weights are gathered",
        "fsdp_only": "structured: n_tp is 1, nothing is added over ranks",
        "transposed": "structured: n_tp and n_fsdp change places",
        "steep": "stress: gate inputs with a standard deviation of 4",
        "small": "stress: x scaled by 1e-3, where SiLU is nearly linear",
        "mixed": "stress: rows of x with amplitudes from 1e-2 to 1e2",
    },
    skip_draw=skip_draw,
    replicated=("x_local",),
    communication=(
        "all_gather of W1 and W2 shards along rows over the n_fsdp ranks of one t, (D/n_fsdp, E/n_tp) each\n"
        "all_gather of W3 shards along columns over the same ranks\n"
        "all_reduce SUM of (B, D) over the n_tp ranks of one f"
    ),
    hazards=(
        "With 2 ranks n_tp is 1: there is no tensor-parallel traffic at all.",
        "W3 is joined along columns, W1 and W2 along rows.",
        "Process groups must not be made on every call.",
        "The gather of weights can overlap with products of those that have come.",
    ),
    tolerances=calibrated(bf16=1.59e-2, fp16=2.3e-3),
)
