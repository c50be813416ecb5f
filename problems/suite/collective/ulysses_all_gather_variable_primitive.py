"""All-gather of tensors whose size may differ from rank to rank along one dimension.

Legend: M_s rows of rank s, N columns, W ranks.

    out = x_0, x_1, ..., x_(W-1) joined along gather_dim, bit for bit           x_s (M_s, N), out (sum of M_s, N)

The sizes of the other ranks are unknown until they are exchanged. The payloads go by one broadcast per rank, which is
what NCCL makes of an all-gather of uneven sizes and what every other backend can do as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import element_size
from problems.suite.draws import bit_patterns
from problems.suite.families.uneven_gather import uneven_gather
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values; M/2 to M rows on each rank."""
    W, M, N = case.world_size, case["M"], case["N"]
    rows = [max(1, size) for size in rng.integers(None, M // 2, M, (W,)).tolist()]
    if case.draw == "even":
        rows = [M] * W
    elif case.draw == "single":
        rows[-1] = 1
    group = even_and_odd(W) if case.draw == "subgroups" else None
    ranks: list[Args] = []
    for r in range(W):
        shape = (N, rows[r]) if case.draw == "columns" else (rows[r], N)
        x = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        ranks.append({"x": x, "gather_dim": int(case.draw == "columns"), "group": group})
    return ranks


def solution(x: torch.Tensor, gather_dim: int, group: Optional[dist.ProcessGroup] = None) -> torch.Tensor:
    x = x.contiguous()
    W = dist.get_world_size(group)
    if W == 1:
        return x
    own_shape = torch.tensor(x.shape, dtype=torch.int64, device=x.device)
    shapes = own_shape.new_empty(W * x.dim())
    dist.all_gather_into_tensor(shapes, own_shape, group=group)
    pieces = [x.new_empty(shape) for shape in shapes.view(W, x.dim()).tolist()]
    pieces[dist.get_rank(group)] = x
    sent = [dist.broadcast(piece, group=group, group_src=s, async_op=True) for s, piece in enumerate(pieces)]
    for work in sent:
        work.wait()
    return torch.cat(pieces, dim=gather_dim)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def joined(group: list[Args]) -> list[Expected]:
        whole = torch.cat([a["x"] for a in group], dim=group[0]["gather_dim"])
        return [Expected(Leaf(whole, case.dtype, Exact())) for _ in group]

    return by_group(args, joined)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; own rows read, all rows written.

    Link: every rank receives what it does not have; the W - 1 copies of everything are sent as in ``uneven_gather``. No
    algorithm goes below the larger of what a rank receives and what it has to give away once. The sizes (8 bytes for
    each dimension) are not counted.
    """

    def costs(group: list[Args]) -> list[RankCost]:
        sizes = [float(a["x"].numel() * element_size(case.dtype)) for a in group]
        return [
            RankCost({}, size + sum(sizes), link.sent, link.received, one_way=link.floor)
            for size, link in zip(sizes, uneven_gather(sizes), strict=True)
        ]

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=35,
    slug="ulysses_all_gather_variable_primitive",
    title="All-gather of tensors whose shape may differ per rank",
    type="collective",
    also=("sequence",),
    domain="llm_training",
    stage="communication",
    origin="Together AI xorl / ByteDance VeOmni ulysses.py: all_gather with variable sizes",
    difficulty=2,
    statement=(
        "Every rank holds a tensor `x`; all have the same number of dimensions and the same sizes except along "
        "`gather_dim`, where a rank knows only its own size. The result on every rank is one contiguous tensor: the "
        "tensors of all ranks concatenated along `gather_dim` in rank order, bit for bit. Input rows range from one "
        "to M. `group` None means the world group; in a group of one rank the contiguous input itself is the result."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 256, "N": 256},
    check_sizes={"M": 16, "N": 14},
    hidden_sizes=hidden_sizes,
    hidden_property="N is odd, so no row is a multiple of 16 bytes; the number of rows differs from rank to rank",
    linear=("x",),
    draws={
        "even": "structured: the same number of rows on every rank",
        "single": "structured: the last rank holds a single row",
        "columns": "structured: gather_dim 1, uneven numbers of columns",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    may_alias=("x",),
    skip_draw=lacks_subgroups,
    communication=(
        "all_gather of the shapes, int64\nbroadcast of every rank's tensor (M_s, N), that is an all_gather of uneven "
        "sizes"
    ),
    hazards=(
        "Sizes differ from rank to rank and must be exchanged; the shape of the output depends on data of other ranks.",
        "Reading the sizes on the host costs a synchronisation.",
    ),
)
