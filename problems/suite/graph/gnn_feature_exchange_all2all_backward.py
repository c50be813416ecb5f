"""GNN feature exchange, backward: an all-to-all by distance between ranks, then gradients added per seed.

Legend: U seeds of one rank, H features, W ranks, s a source, d a destination, n[s][d] rows that s sends to d.

    grad_output = c_0, ..., c_{W-1}, where c_i has counts_sent[i] = n[r][(r+i) mod W] rows and goes to (r+i) mod W
    m = m_0, ..., m_{W-1}, where m_i has counts_received[i] = n[(r+i) mod W][r] rows and comes from (r+i) mod W
    grad[u, :] = sum over all j with seed_inverse_ids[j] = u of m[j, :]                                 grad (U, H)

Always float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import List, Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Expected, Group, Leaf, Problem, RankCost, Rng, wide
from problems.suite.costs import all_to_all_cost
from problems.suite.draws import scaled_normal
from problems.suite.families.exchange import inputs_by_group, relative, row_counts
from problems.suite.groups import by_group, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal gradients, two rows per seed on average; counts that differ by up to a factor of three."""
    return inputs_by_group(case, rng, _group_inputs)


def _group_inputs(case: Case, rng: Rng, part: Sequence[int], group: Group | None) -> list[Args]:
    W, R, H = len(part), case["R"], case["H"]
    U = max(1, R // 2)
    cnt = row_counts(case.draw, rng, R, W)
    ranks: list[Args] = []
    for place, r in enumerate(part):
        received = [cnt[s][place] for s in range(W)]
        ids = rng.integers(r, 0, U - 1, (sum(received),))
        if case.draw == "skewed":
            # Half of all rows belong to four seeds, and the last quarter of the seeds has none.
            ids = ids % max(1, U * 3 // 4)
            ids = torch.where(rng.uniform(r, ids.shape) < 0.5, ids % 4, ids)
        ranks.append(
            {
                "grad_output": scaled_normal(rng, r, (R, H), case.draw),
                "seed_inverse_ids": ids,
                "seed_size": U,
                "counts_sent": relative(cnt[place], place),
                "counts_received": relative(received, place),
                "group": group,
            }
        )
    return ranks


def solution(
    grad_output: torch.Tensor,
    seed_inverse_ids: torch.Tensor,
    seed_size: int,
    counts_sent: List[int],
    counts_received: List[int],
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    W, r = dist.get_world_size(group), dist.get_rank(group)
    distance = [(peer - r) % W for peer in range(W)]  # of the peers in rank order, which is how NCCL wants them
    chunks = torch.split(grad_output, counts_sent)
    rows = torch.cat([chunks[i] for i in distance])
    send_sizes, receive_sizes = [counts_sent[i] for i in distance], [counts_received[i] for i in distance]
    received = rows.new_empty((sum(receive_sizes), *rows.shape[1:]))
    dist.all_to_all_single(received, rows, receive_sizes, send_sizes, group=group)
    # Bring the ids into the order of the rows, which is by rank, rather than the rows into that of the ids.
    id_chunks = torch.split(seed_inverse_ids, counts_received)
    ids = torch.cat([id_chunks[i] for i in distance])
    grad = grad_output.new_zeros((seed_size, *grad_output.shape[1:]))
    return grad.index_add_(0, ids, received)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return by_group(args, _gradients)


def _gradients(args: list[Args]) -> list[Expected]:
    W = len(args)
    chunks = [torch.split(wide(a["grad_output"]), a["counts_sent"]) for a in args]
    expected = []
    for r, a in enumerate(args):
        m = torch.cat([chunks[(r + i) % W][(W - i) % W] for i in range(W)])
        owner = torch.arange(a["seed_size"]).unsqueeze(1) == a["seed_inverse_ids"].unsqueeze(0)
        expected.append(Expected(Leaf(owner.double() @ m, torch.float32, Close(rms=1e-5))))
    return expected


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """One addition per element received; gradients, ids and the result once; every row that changes rank.

    Rows cannot be added before they travel, for only the receiver knows which belong together.
    """
    return by_group(args, _cost)


def _cost(args: list[Args]) -> list[RankCost]:
    W, H = len(args), args[0]["grad_output"].shape[1]
    sizes = [[4.0 * H * a["counts_sent"][(d - s) % W] for d in range(W)] for s, a in enumerate(args)]
    plain = all_to_all_cost(sizes, flops={}, hbm=[0.0] * W)
    ranks = []
    for a, link in zip(args, plain, strict=True):
        rows = len(a["seed_inverse_ids"])
        hbm = 4.0 * H * (len(a["grad_output"]) + a["seed_size"]) + 8 * rows
        ranks.append(RankCost({"fp32": float(rows * H)}, hbm, link.sent, link.received))
    return ranks


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("R", "H"))


PROBLEM = Problem(
    id=66,
    slug="gnn_feature_exchange_all2all_backward",
    title="GNN feature exchange, backward (shifted all-to-all, gradients added per seed)",
    type="graph",
    also=(),
    domain="graph",
    stage="backward",
    origin="DGL GraphBolt cooperative minibatching: CooperativeConvFunction.backward",
    difficulty=3,
    statement=(
        "Cut `grad_output` into W consecutive chunks of `counts_sent[i]` rows; chunk i goes to rank (r + i) mod W, "
        "where r is the own rank, so chunk 0 stays. Stack the chunks received, `counts_received[i]` rows from rank "
        "(r + i) mod W, in the order of i. The result (`seed_size`, H) has in row u the sum of all stacked rows j "
        "with `seed_inverse_ids[j] == u`; rows of seeds without any are zero. Both lists count by distance from the "
        "own rank, not by rank; sizes may be zero. Always float32; the order of summation is free. `group` None means "
        "the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"R": 1024, "H": 128},
    cpu_sizes={"R": 1024, "H": 64},
    check_sizes={"R": 48, "H": 6},
    hidden_sizes=hidden_sizes,
    hidden_property="H is odd, so no row is a multiple of 16 bytes; counts are uneven",
    linear=("grad_output",),
    draws={
        "even": "structured: equal counts, as in the public suite",
        "sparse": "structured: empty chunks; rank 0 sends to nobody",
        "skewed": "structured: half of the rows belong to four seeds, a quarter of the seeds has none",
        "subgroups": "structured: two exchanges, among the even ranks and among the odd ranks",
        "mixed": "stress: rows with amplitudes from 1e-2 to 1e2",
    },
    skip_draw=lacks_subgroups,
    communication="all_to_all_single with sizes, (R, H) in W chunks, float32, over the world group",
    hazards=(
        "Chunks are ordered by distance from the own rank: an ordinary all-to-all gives a permuted result.",
        "Rows of seeds without gradients must be zero: the result has to be cleared.",
        "Many rows may go to one seed: atomics contend.",
        "The run's float type is ignored: everything is float32.",
    ),
    run_dtypes=(torch.float32,),
)
