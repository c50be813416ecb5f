"""Row-sharded embedding lookup by two all-to-all exchanges; rows come back grouped by owner.

Legend: S rows per shard, N embedding width, m_r indices of rank r, W ranks.

    table (W S, N) = local_shard_0, local_shard_1, ..., one below the other; the owner of row v is rank v // S
    v_0, v_1, ... = the rank's indices with owner 0 in their order, then those with owner 1, and so on
    out[j] = table[v_j], bit for bit                              indices (m_r,), local_shard (S, N), out (m_r, N)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import element_size
from problems.suite.draws import bit_patterns
from problems.suite.families.exchange import distinct, travelling_rows
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal table; uniform indices, unsorted and with repeats.

    "skewed": rank 0 asks one peer only, the last rank everybody but itself; "ragged": numbers of indices differ, the
    last rank has none; "repeats": a rank asks for at most sixteen rows.
    """
    W, M, N = case.world_size, case["M"], case["N"]
    S = M
    ranks: list[Args] = []
    for r in range(W):
        count = M if case.draw != "ragged" else (0 if r == W - 1 else M - M // 3 * (r % 2) + r)
        indices = rng.integers(r, 0, W * S - 1, (count,))
        if case.draw == "skewed" and r == 0:
            indices = indices % S + S * (W - 1)
        elif case.draw == "skewed" and r == W - 1:
            indices = torch.where(indices // S == r, indices % S, indices)
        elif case.draw == "repeats":
            indices = indices[rng.integers(r, 0, min(16, count) - 1, (count,))]
        shape = (S, N)
        shard = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        ranks.append({"indices": indices, "local_shard": shard})
    return ranks


def solution(indices: torch.Tensor, local_shard: torch.Tensor) -> torch.Tensor:
    W, r = dist.get_world_size(), dist.get_rank()
    S, N = local_shard.shape
    owner = indices // S
    grouped = indices[torch.argsort(owner, stable=True)]
    counts = torch.bincount(owner, minlength=W)
    counts_served = torch.empty_like(counts)
    dist.all_to_all_single(counts_served, counts)
    asked, served = torch.stack([counts, counts_served]).tolist()  # one device synchronisation
    requests = indices.new_empty(sum(served))
    dist.all_to_all_single(requests, grouped, served, asked)
    rows = local_shard[(requests - r * S).clamp(0, S - 1)]
    out = local_shard.new_empty((len(indices), N))
    dist.all_to_all_single(out, rows, asked, served)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    table = torch.cat([a["local_shard"] for a in args])
    S = len(args[0]["local_shard"])
    expected = []
    for a in args:
        v = torch.cat([a["indices"][a["indices"].div(S, rounding_mode="floor") == q] for q in range(len(args))])
        expected.append(Expected(Leaf(table[v], case.dtype, Exact())))
    return expected


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; indices and distinct rows read, results written.

    Link: every distinct row that a rank needs from another one, once, read from the owner's memory: no indices travel.
    """
    W, (S, N) = len(args), args[0]["local_shard"].shape
    row = N * element_size(case.dtype)
    ids = [[a["indices"][a["indices"] // S == q] for a in args] for q in range(W)]
    hbm = [distinct(torch.cat(ids[r])) * row + len(a["indices"]) * (8.0 + row) for r, a in enumerate(args)]
    return travelling_rows(ids, row, flops=[{}] * W, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=10,
    slug="embedding_lookup",
    title="Row-sharded embedding lookup by two all-to-all exchanges",
    type="embedding",
    also=("collective",),
    domain="recommender",
    stage="forward",
    origin="generic row-wise sharded embedding lookup",
    difficulty=3,
    statement=(
        "An embedding table of W·S rows is split by rows: `local_shard` (S, N) holds rows r·S to (r+1)·S - 1 on rank "
        "r. Every rank has a list `indices` of global row numbers, unsorted and with repeats, and fetches these rows "
        "from their owners. The result on a rank is the rows for its own indices, bit for bit, **grouped by owner**: "
        "first the rows owned by rank 0 in the order in which their indices stand in the list, then those owned by "
        "rank 1, and so on. They are not put back into the order of the list. The number of indices may differ from "
        "rank to rank and may be zero."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 512, "N": 128},
    check_sizes={"M": 40, "N": 6},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so no row is a multiple of 16 bytes",
    linear=("local_shard",),
    draws={
        "skewed": "structured: one rank asks a single peer, another one asks everybody but itself",
        "ragged": "structured: numbers of indices differ, one rank has none",
        "repeats": "structured: a rank's list names at most sixteen rows",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    communication=(
        "all_to_all_single of W counts\nall_to_all_single with sizes, requested row numbers, int64\n"
        "all_to_all_single with sizes, rows"
    ),
    hazards=(
        "Rows are grouped by owner: out[j] = table[indices[j]] is wrong.",
        "Sizes of the exchange depend on the data: a plain implementation reads them on the host.",
        "Rows that are asked for several times could be fetched once.",
    ),
)
