"""MAGI-1 context-shuffle overlapped attention: ranged keys, queries and outputs in a pipeline of all-to-alls.

Legend: R ranges, n rows of a range on one rank, W ranks, Hq and Hkv heads, d head dimension, c rows of a range that
serve as keys (clip), s a source rank, g(j) = j Hkv / Hq the key head of query head j.

    stream = for each range in turn: the first c of the W n rows of rank 0, rank 1, ...           (R c, Hkv, d) for k, v
    out[i n + t, j] = sum over u of softmax over u (q[i n + t, j] . k[u, g(j)] / sqrt(d)) v[u, g(j)]
    for u from k_ranges[i, 0] to k_ranges[i, 1] - 1
    query, out (R n, Hq, d): own rows of every range; key_value (R n, Hkv, 2 d): key, then value
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, Tolerance, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Queries and values four times standard normal: a sharp softmax and outputs of order one.

    Ranges overlap and differ in length: range i sees the keys of ranges i - 1 and i, of 0 for i = 0. As in the public
    workload, more than four ranks get more heads and longer ranges, and float16 becomes bfloat16.
    """
    W, R, D = case.world_size, 1 if case.draw == "one_range" else case["R"], case["D"]
    group, n = (even_and_odd(W), W // 2) if case.draw == "subgroups" else (None, W)
    clip, Hq, Hkv = case["CLIP"], n * (case["Hq"] // n), case["Hkv"]
    if W > 4:
        clip, Hq = clip * 16 // 9, 2 * Hq
    if case.draw == "few_keys":
        Hkv = max(1, n // 2)
    elif Hkv % n != 0 and n % Hkv != 0:
        Hkv = n
    rows = -(-clip // n)
    clipped: Optional[int] = clip
    if case.draw in ("unclipped", "one_range"):
        clip, clipped = n * rows, None
    dtype = torch.bfloat16 if case.dtype == torch.float16 else case.dtype
    ranges = _ranges(case, rng, R, clip)
    scale = 4.0 * {"small": 1e-3, "large": 1e3}.get(case.draw, 1.0)
    ranks: list[Args] = []
    for r in range(W):
        key_value = rng.normal(r, (R * rows, Hkv, 2 * D))
        key_value[..., D:] *= scale
        ranks.append(
            {
                "query": rng.normal(r, (R * rows, Hq, D), std=4.0).to(dtype),
                "key_value": key_value.to(dtype),
                "k_ranges": ranges.clone(),
                "cp_shuffle_num": R,
                "clip_token_nums": clipped,
                "group": group,
            }
        )
    return ranks


def _ranges(case: Case, rng: Rng, R: int, clip: int) -> torch.Tensor:
    if case.draw == "disjoint":
        return torch.tensor([[i * clip, (i + 1) * clip] for i in range(R)])
    if case.draw == "one_range":
        return torch.tensor([[1, clip - 1]])
    if case.draw == "ragged":
        # Any start; from a single key up to the whole rest of the stream.
        starts = rng.integers(None, 0, R * clip - 1, (R,)).tolist()
        lengths = [1, *rng.integers(None, 1, R * clip, (R - 1,)).tolist()]
        return torch.tensor([[s, min(R * clip, s + n)] for s, n in zip(starts, lengths, strict=True)])
    return torch.tensor([[max(0, i - 1) * clip, (i + 1) * clip] for i in range(R)])


def start_exchange(
    blocks: torch.Tensor, group: Optional[dist.ProcessGroup]
) -> tuple[torch.Tensor, Optional[dist.Work]]:
    """Starts to send block r of the first axis to rank r; the result will hold the blocks of all ranks."""
    blocks = blocks.contiguous()
    received = torch.empty_like(blocks)
    return received, dist.all_to_all_single(received, blocks, group=group, async_op=True)


def by_heads(x: torch.Tensor, W: int) -> torch.Tensor:
    """(rows, H, d) -> (W, rows, H/W, d), block r for the rank that gets head group r."""
    return x.reshape(x.shape[0], W, x.shape[1] // W, x.shape[2]).transpose(0, 1)


def solution(
    query: torch.Tensor,
    key_value: torch.Tensor,
    k_ranges: torch.Tensor,
    cp_shuffle_num: int,
    clip_token_nums: Optional[int] = None,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    W, R, d = dist.get_world_size(group), cp_shuffle_num, query.shape[2]
    heads, kv_heads = query.shape[1], key_value.shape[1]
    if query.shape[0] % R != 0 or heads % W != 0 or (kv_heads % W != 0 and W % kv_heads != 0):
        raise ValueError(f"{query.shape[0]} rows, {heads} and {kv_heads} heads do not fit {R} ranges and {W} ranks")
    rows = query.shape[0] // R
    clip = clip_token_nums or W * rows
    if kv_heads < W:
        key_value = key_value.repeat_interleave(W // kv_heads, dim=1)
    stream, keys_sent = start_exchange(by_heads(key_value, W), group)  # (W, R rows, Hkv/W, 2 d)
    queries = [by_heads(x, W) for x in query.chunk(R)]  # (W, rows, Hq/W, d) for each range
    current, query_sent = start_exchange(queries[0], group)
    for work in (keys_sent, query_sent):
        if work is not None:
            work.wait()
    stream = stream.view(W, R, rows, *stream.shape[2:]).transpose(0, 1).flatten(1, 2)  # (R, W rows, Hkv/W, 2 d)
    stream = stream[:, :clip].flatten(0, 1)  # (R clip, Hkv/W, 2 d)
    ranges = k_ranges.tolist()
    outputs: list[torch.Tensor] = []  # of the ranges done, still on the rank of their heads
    returned: list[torch.Tensor] = []  # of the ranges done, back on the rank of their rows: (W, rows, Hq/W, d)
    for i in range(R):
        # While a range is worked on, the next queries and the outputs before travel in one exchange.
        riding = ([queries[i + 1]] if i + 1 < R else []) + ([outputs[i - 1]] if i > 0 else [])
        if riding:
            arriving, sent = start_exchange(torch.cat(riding, dim=-1), group)
        k, v = stream[ranges[i][0] : ranges[i][1]].transpose(0, 1).chunk(2, dim=-1)  # (Hkv/W, keys, d)
        q = current.flatten(0, 1).transpose(0, 1)  # (Hq/W, W rows, d)
        out = F.scaled_dot_product_attention(q[None], k[None], v[None], enable_gqa=True)[0]
        outputs.append(out.transpose(0, 1).reshape(W, rows, heads // W, d))
        if riding:
            if sent is not None:
                sent.wait()
            arrived = list(arriving.chunk(len(riding), dim=-1))
            if i + 1 < R:
                current = arrived.pop(0)
            returned += arrived
    last, sent = start_exchange(outputs[-1], group)
    if sent is not None:
        sent.wait()
    returned.append(last)
    # Heads in the order of the ranks that worked on them.
    return torch.cat([x.transpose(0, 1).flatten(1, 2) for x in returned])


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def attention(group: list[Args]) -> list[Expected]:
        W, R, d = len(group), group[0]["cp_shuffle_num"], group[0]["query"].shape[2]
        rows, heads = group[0]["query"].shape[0] // R, group[0]["query"].shape[1]
        clip = group[0]["clip_token_nums"] or W * rows
        kv = [torch.cat([a["key_value"][i * rows : (i + 1) * rows] for a in group])[:clip] for i in range(R)]
        keys, values = (part.permute(1, 0, 2) for part in wide(torch.cat(kv)).chunk(2, dim=-1))  # (Hkv, R clip, d)
        key_head = torch.arange(heads) // (heads // keys.shape[0])
        queries = torch.stack([a["query"].view(R, rows, heads, d) for a in group], dim=1).flatten(1, 2)
        out = torch.empty(queries.shape, dtype=torch.float64)  # (R, W rows, heads, d)
        for i, (first, end) in enumerate(group[0]["k_ranges"].tolist()):
            for j in range(heads):
                k, v = keys[key_head[j], first:end], values[key_head[j], first:end]
                for start in range(0, W * rows, 2048):  # bounds the memory of the scores
                    q = wide(queries[i, start : start + 2048, j])
                    out[i, start : start + 2048, j] = (q @ k.T / d**0.5).softmax(-1) @ v
        own = out.view(R, W, rows, heads, d).unbind(1)
        return [Expected(Leaf(x.flatten(0, 1), a["query"].dtype)) for x, a in zip(own, group, strict=True)]

    return by_group(args, attention)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """4 d flops for each pair of a query and a key of its range, for each own query head; all tensors once.

    Link, the cheaper of two schemes: keys, values, queries and outputs change between rows and heads, (W-1)/W of them
    (a key head shared by several ranks counts for each); or all keys and values go to all ranks. No algorithm does with
    less than the keys and values of one other rank, or the queries out and their results in.
    """

    def costs(group: list[Args]) -> list[RankCost]:
        W, (rows, heads, d), kv_heads = len(group), group[0]["query"].shape, group[0]["key_value"].shape[1]
        dtype = group[0]["query"].dtype
        e, R = element_size(dtype), group[0]["cp_shuffle_num"]
        keys = sum(end - first for first, end in group[0]["k_ranges"].tolist())
        flops = {dtype_name(dtype): 4.0 * (rows // R) * keys * d * heads}
        hbm = float(rows * 2 * d * (heads + kv_heads) * e)
        shuffled = (W - 1) / W * rows * 2 * d * (heads + max(kv_heads, W)) * e
        gathered = float((W - 1) * rows * 2 * d * kv_heads * e)
        wire = min(shuffled, gathered)
        floor = min(wire, rows * d * min(heads, 2 * kv_heads) * e / W)
        return [RankCost(flops, hbm, wire, wire, one_way=floor)] * W

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("CLIP",), multiple={"D": 8}, keep=("R", "Hq", "Hkv"))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    heads = world_size * (sizes["Hq"] // world_size) * (2 if world_size > 4 else 1)
    kv_heads = sizes["Hkv"]
    if kv_heads % world_size != 0 and world_size % kv_heads != 0:
        kv_heads = world_size
    if heads > 0 and heads % max(kv_heads, world_size) == 0:
        return ""
    return f"The key heads of a rank must divide its query heads: {heads} and {kv_heads} heads over {world_size} ranks."


PROBLEM = Problem(
    id=77,
    slug="magi1_cso_async_attention",
    title="MAGI-1 context-shuffle overlapped attention (ranged KV, pipelined all-to-all)",
    type="sequence",
    also=("context",),
    domain="vision",
    stage="forward",
    origin="SandAI MAGI-1: context-shuffle overlap (CSO) attention",
    difficulty=5,
    statement=(
        "Rows come in R = `cp_shuffle_num` ranges; every rank holds n rows of each: `query` (R·n, Hq, d) and "
        "`key_value` (R·n, Hkv, 2·d), key before value. The key stream is built from all ranks: for each range the n "
        "rows of rank 0, rank 1, ..., of which only the first `clip_token_nums` are kept (None or 0: all W·n), ranges "
        "one after the other. The queries of range i attend to rows k_ranges[i, 0] to k_ranges[i, 1] - 1 of the "
        "stream, all of them, without mask; query head j uses key head j // (Hq/Hkv). Scores are scaled by 1/√d; "
        "softmax statistics are float32, the result is rounded to the dtype of `query`. The result on every rank is "
        "for its own rows: (R·n, Hq, d). Queries beyond the clip count like the others.\n\n`k_ranges` (R, 2), int64, "
        "is the same on all ranks; ranges may overlap and differ in length. Hkv is a multiple or a divisor of W. The "
        "reference works on heads: it exchanges keys once, and while a range is worked on, the queries of the next and "
        "the outputs of the previous one travel. In runs with float16 the tensors are bfloat16. `group` None means the "
        "world group; with a process group, W counts its members."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"R": 4, "CLIP": 12150, "Hq": 24, "Hkv": 8, "D": 128},
    cpu_sizes={"R": 4, "CLIP": 95, "Hq": 8, "Hkv": 4, "D": 32},
    check_sizes={"R": 4, "CLIP": 13, "Hq": 8, "Hkv": 4, "D": 8},
    hidden_sizes=hidden_sizes,
    hidden_property="the clip is odd, so the last rows of a range are no keys",
    draws={
        "disjoint": "structured: every range sees its own keys only, as in the public workload",
        "ragged": "structured: ranges of any start and length, one of a single key",
        "few_keys": "structured: fewer key heads than ranks",
        "unclipped": "structured: no clip, all rows are keys",
        "one_range": "structured: a single range without clip, first and last key left out",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "small": "stress: values scaled by 1e-3",
        "large": "stress: values scaled by 1e3",
    },
    world_size_rule=world_size_rule,
    skip_draw=lacks_subgroups,
    replicated=("k_ranges",),
    communication=(
        "all_to_all_single of keys and values, (W, R n, max(Hkv, W)/W, 2 d)\nR + 2 asynchronous all_to_all_single of "
        "(W, n, Hq/W, d) or twice as wide: queries and outputs of the ranges"
    ),
    hazards=(
        "Rows beyond the clip are queries but not keys.",
        "k_ranges lies on the device; reading it on the host synchronises.",
        "Work depends on the world size: more heads and longer ranges for more than four ranks.",
        "With two ranks, gathering keys and values takes fewer bytes than the exchange by heads.",
    ),
    tolerances={
        torch.float32: Tolerance(units=1e-4, relative=2e-5),
        torch.bfloat16: Tolerance(units=3e-2, relative=1e-2),
        torch.float16: Tolerance(units=3e-2, relative=1e-2),  # the tensors are bfloat16
    },
)
