"""Row-wise all-to-all with explicit split sizes: the exchange below every expert-parallel layer.

Legend: M rows of one rank, N columns, W ranks, s a source, d a destination, n[s][d] rows that s sends to d.

    local_tensor_s = rows for rank 0, rows for rank 1, ...; n[s][d] of them for rank d      (sum over d of n[s][d], N)
    output_d       = block from rank 0, block from rank 1, ...; n[s][d] rows from rank s    (sum over s of n[s][d], N)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import List, Optional, Union

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_to_all_cost, element_size
from problems.suite.draws import bit_patterns, uneven_split
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal rows; splits that add up to M on every source and differ by up to a factor of three."""
    W, M = case.world_size, case["M"]
    n = _splits(case, rng)
    ranks: list[Args] = []
    for r in range(W):
        shape = (sum(n[r]), case["N"])
        rows = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        sizes: Args = {"input_split_sizes": n[r], "output_split_sizes": [n[s][r] for s in range(W)]}
        if case.draw == "default":
            assert M % W == 0
            sizes = {"input_split_sizes": None, "output_split_sizes": None}
        ranks.append({"local_tensor": rows, **sizes, "group": None})
    return ranks


def _splits(case: Case, rng: Rng) -> list[list[int]]:
    """n[s][d], the same for all ranks since sender and receiver must agree."""
    W, M = case.world_size, case["M"]
    if case.draw in ("default", "even"):
        return [[M // W] * W for _ in range(W)]
    n = [uneven_split(rng, None, M, W) for _ in range(W)]
    if case.draw == "skewed":
        # The last rank receives nothing but what the first sends; the first sends everything there.
        for s in range(W):
            n[s][0] += n[s][-1]
            n[s][-1] = 0
        n[0] = [0] * (W - 1) + [M]
    return n


def solution(
    local_tensor: torch.Tensor,
    input_split_sizes: Optional[Union[List[int], torch.Tensor]] = None,
    output_split_sizes: Optional[Union[List[int], torch.Tensor]] = None,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    local_tensor = local_tensor.contiguous()
    if dist.get_world_size(group) == 1:
        return local_tensor
    if output_split_sizes is None:
        out = torch.empty_like(local_tensor)
    else:
        out = local_tensor.new_empty((sum(output_split_sizes), *local_tensor.shape[1:]))
    dist.all_to_all_single(out, local_tensor, output_split_sizes, input_split_sizes, group=group)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    W = len(args)
    blocks = []
    for a in args:
        sizes = a["input_split_sizes"] or [a["local_tensor"].shape[0] // W] * W
        blocks.append(a["local_tensor"].split(sizes))
    return [Expected(Leaf(torch.cat([blocks[s][d] for s in range(W)]), case.dtype, Exact())) for d in range(W)]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; every row read once and written once; rows that change rank cross the link."""
    W, row = len(args), case["N"] * element_size(case.dtype)
    n = [a["input_split_sizes"] or [a["local_tensor"].shape[0] // W] * W for a in args]
    hbm = [float((sum(n[r]) + sum(n[s][r] for s in range(W))) * row) for r in range(W)]
    return all_to_all_cost([[rows * row for rows in source] for source in n], flops={}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("N",))


PROBLEM = Problem(
    id=27,
    slug="moe_all2all_primitive",
    title="Row-wise all-to-all with explicit split sizes",
    type="collective",
    also=("expert",),
    domain="llm_training",
    stage="communication",
    origin="Together AI xorl, after ByteDance VeOmni moe_layer.py: comm.all_to_all",
    difficulty=1,
    statement=(
        "Cut `local_tensor` along dimension 0 into W consecutive blocks of `input_split_sizes` rows; block d goes to "
        "rank d. The result is one contiguous tensor: the blocks received, in the order of source ranks, "
        "`output_split_sizes[s]` rows from rank s, bit for bit. Sizes may be zero and differ from rank to rank; "
        "sender and receiver agree. Without size lists all blocks have M/W rows. `group` None means the world group; "
        "in a group of one rank the input itself is the result."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 1024, "N": 256},
    check_sizes={"M": 32, "N": 18},
    hidden_sizes=hidden_sizes,
    hidden_property="N is odd, so no row is a multiple of 16 bytes; splits are uneven",
    linear=("local_tensor",),
    draws={
        "default": "structured: no size lists given, equal blocks",
        "even": "structured: size lists with equal entries",
        "skewed": "structured: empty blocks; one rank sends everything to one peer",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    may_alias=("local_tensor",),
    communication="all_to_all_single with uneven sizes, (M, N), over the world group",
    hazards=(
        "Split sizes are uneven and may be zero; an implementation for equal blocks is wrong.",
        "The number of output rows depends on a list on the host: no device synchronisation is needed.",
    ),
)
