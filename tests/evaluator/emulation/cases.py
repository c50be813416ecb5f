"""What a rank does in the tests of the emulated backend: every case on every group, against the sum over all ranks.

``python cases.py RANK SIZE STORE_FILE DEVICE RESULT_FILE`` runs as one of SIZE ranks and writes a JSON object
``{case: "" or what went wrong}``. Every rank can draw every rank's inputs, so each knows what it must receive.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor

DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
]
STUCK_SECONDS = 75
CASES: dict[str, Callable[[World], None]] = {}


class World:
    """One group as a case sees it: members' global ranks, this rank's place among them, where tensors lie."""

    def __init__(self, group: dist.ProcessGroup, members: list[int], rank: int, device: str) -> None:
        self.group = group
        self.members = members
        self.size = len(members)
        self.place = members.index(rank)
        self.device = device

    def draw(self, place: int, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, salt: int = 0) -> Tensor:
        """The tensor of the member at ``place``: small whole numbers, exact in every dtype."""
        generator = torch.Generator().manual_seed(1 + 1000 * salt + self.members[place])
        numbers = torch.randint(0, 2 if dtype is torch.bool else 5, shape, generator=generator)
        return numbers.to(dtype).to(self.device)

    def every(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, salt: int = 0) -> list[Tensor]:
        return [self.draw(place, shape, dtype, salt) for place in range(self.size)]

    def mine(self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, salt: int = 0) -> Tensor:
        return self.draw(self.place, shape, dtype, salt)

    def empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.full(shape, 77 if dtype is not torch.bool else 1, dtype=dtype, device=self.device)


def case(test: Callable[[World], None]) -> Callable[[World], None]:
    CASES[test.__name__] = test
    return test


def equal(got: Tensor, expected: Tensor, what: str = "") -> None:
    if got.shape != expected.shape or not torch.equal(got, expected.to(got.dtype)):
        raise AssertionError(f"{what}: got {got.flatten()[:8].tolist()}, expected {expected.flatten()[:8].tolist()}")


def refuses(words: str, call: Callable[[], object]) -> None:
    try:
        call()
    except RuntimeError as error:
        assert words in str(error), f"refused with other words: {error}"
    else:
        raise AssertionError(f"not refused, though it must be: {words}")


def total(parts: list[Tensor]) -> Tensor:
    stacked = torch.stack(parts)
    return stacked.any(0) if stacked.dtype is torch.bool else stacked.sum(0, dtype=stacked.dtype)


@case
def all_reduce_sum_of_every_dtype(w: World) -> None:
    for dtype in DTYPES:
        tensor = w.mine((3, 5), dtype)
        dist.all_reduce(tensor, group=w.group)
        equal(tensor, total(w.every((3, 5), dtype)), str(dtype))


@case
def all_reduce_other_operations(w: World) -> None:
    parts = torch.stack(w.every((7,), torch.float64))
    expected = {
        dist.ReduceOp.MAX: parts.amax(0),
        dist.ReduceOp.MIN: parts.amin(0),
        dist.ReduceOp.PRODUCT: parts.prod(0),
        dist.ReduceOp.AVG: (parts / w.size).sum(0),
    }
    for operation, result in expected.items():
        tensor = w.mine((7,), torch.float64)
        dist.all_reduce(tensor, operation, group=w.group)
        torch.testing.assert_close(tensor, result)
    scaled = w.mine((7,), torch.float64)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5), group=w.group)
    equal(scaled, parts.sum(0) * 0.5, "PREMUL_SUM")


@case
def all_reduce_rounds_at_every_step_like_a_ring_in_bf16(w: World) -> None:
    parts = [torch.full((4,), 256.0 if p == 0 else 1.0, dtype=torch.bfloat16, device=w.device) for p in range(w.size)]
    tensor = parts[w.place].clone()
    dist.all_reduce(tensor, group=w.group)
    equal(tensor, parts[0], "each 1 is lost to rounding")


@case
def all_reduce_of_nothing_and_of_a_scalar(w: World) -> None:
    dist.all_reduce(w.empty(0), group=w.group)
    scalar = torch.tensor(float(w.place), device=w.device)
    dist.all_reduce(scalar, group=w.group)
    equal(scalar, torch.tensor(float(sum(range(w.size))), device=w.device))


@case
def all_gather_equal_and_uneven(w: World) -> None:
    for dtype in DTYPES:
        shapes = [(place + 1, 3) for place in range(w.size)]
        parts = [w.empty(*shape, dtype=dtype) for shape in shapes]
        dist.all_gather(parts, w.mine(shapes[w.place], dtype), group=w.group)
        for place, part in enumerate(parts):
            equal(part, w.draw(place, shapes[place], dtype), f"uneven {dtype}")
    same = [w.empty(4) for _ in range(w.size)]
    dist.all_gather(same, w.mine((4,)), group=w.group)
    equal(torch.stack(same), torch.stack(w.every((4,))))


@case
def all_gather_with_an_empty_share(w: World) -> None:
    sizes = [0 if place == 0 else place for place in range(w.size)]
    parts = [w.empty(size) for size in sizes]
    dist.all_gather(parts, w.mine((sizes[w.place],)), group=w.group)
    equal(torch.cat(parts), torch.cat([w.draw(place, (size,)) for place, size in enumerate(sizes)]))


@case
def all_gather_into_tensor_concatenated_and_stacked(w: World) -> None:
    parts = w.every((2, 3), torch.bfloat16)
    joined = w.empty(2 * w.size, 3, dtype=torch.bfloat16)
    dist.all_gather_into_tensor(joined, parts[w.place], group=w.group)
    equal(joined, torch.cat(parts))
    stacked = w.empty(w.size, 2, 3, dtype=torch.bfloat16)
    dist.all_gather_into_tensor(stacked, parts[w.place], group=w.group)
    equal(stacked, torch.stack(parts))


@case
def reduce_scatter_in_both_forms(w: World) -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int32):
        whole = w.every((2 * w.size, 3), dtype)
        share = w.empty(2, 3, dtype=dtype)
        dist.reduce_scatter_tensor(share, whole[w.place], group=w.group)
        equal(share, total(whole)[2 * w.place : 2 * w.place + 2], "tensor")
    lists = [w.every((place + 1,), salt=place) for place in range(w.size)]  # lists[p][q]: from q for p, uneven over p
    output = w.empty(w.place + 1)
    dist.reduce_scatter(output, [lists[place][w.place] for place in range(w.size)], group=w.group)
    equal(output, total(lists[w.place]), "uneven list")


@case
def all_to_all_single_even_uneven_and_empty(w: World) -> None:
    tables = w.every((w.size * 2, 3), torch.bfloat16)
    output = w.empty(w.size * 2, 3, dtype=torch.bfloat16)
    dist.all_to_all_single(output, tables[w.place], group=w.group)
    equal(output, torch.cat([table[2 * w.place : 2 * w.place + 2] for table in tables]), "even")

    counts = [[(3 * p + q) % 4 for q in range(w.size)] for p in range(w.size)]  # counts[p][q]: rows from p to q
    rows = [w.draw(p, (sum(counts[p]), 2), torch.int64, salt=9) for p in range(w.size)]
    received = [counts[p][w.place] for p in range(w.size)]
    output = w.empty(sum(received), 2, dtype=torch.int64)
    dist.all_to_all_single(output, rows[w.place], received, counts[w.place], group=w.group)
    expected = [rows[p].split(counts[p])[w.place] for p in range(w.size)]
    equal(output, torch.cat(expected), "uneven")


@case
def all_to_all_lists_of_other_shapes(w: World) -> None:
    def piece(source: int, target: int) -> Tensor:
        return w.draw(source, (source + 1, target + 2), torch.float16, salt=target)

    outputs = [w.empty(p + 1, w.place + 2, dtype=torch.float16) for p in range(w.size)]
    dist.all_to_all(outputs, [piece(w.place, p) for p in range(w.size)], group=w.group)
    for p, output in enumerate(outputs):
        equal(output, piece(p, w.place))


@case
def broadcast_reduce_gather_scatter(w: World) -> None:
    for root in range(w.size):
        source = w.members[root]
        for dtype in DTYPES:
            tensor = w.mine((5,), dtype)
            dist.broadcast(tensor, src=source, group=w.group)
            equal(tensor, w.draw(root, (5,), dtype), f"broadcast {dtype}")
        tensor = w.mine((5,))
        dist.reduce(tensor, dst=source, group=w.group)
        equal(tensor, total(w.every((5,))) if w.place == root else w.mine((5,)), "reduce")
        parts = [w.empty(2, 2) for _ in range(w.size)] if w.place == root else None
        dist.gather(w.mine((2, 2)), parts, dst=source, group=w.group)
        if parts is not None:
            equal(torch.stack(parts), torch.stack(w.every((2, 2))), "gather")
        pieces = [w.draw(root, (3,), salt=p) for p in range(w.size)]
        output = w.empty(3)
        dist.scatter(output, pieces if w.place == root else None, src=source, group=w.group)
        equal(output, pieces[w.place], "scatter")


@case
def batch_isend_irecv_in_any_order(w: World) -> None:
    right, left = (w.place + 1) % w.size, (w.place - 1) % w.size
    first, second = w.empty(6), w.empty(2, 3, dtype=torch.bfloat16)
    operations = [
        dist.P2POp(dist.irecv, first, w.members[left], group=w.group),
        dist.P2POp(dist.irecv, second, w.members[left], group=w.group),
        dist.P2POp(dist.isend, w.mine((6,)), w.members[right], group=w.group),
        dist.P2POp(dist.isend, w.mine((2, 3), torch.bfloat16, salt=1), w.members[right], group=w.group),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    equal(first, w.draw(left, (6,)))
    equal(second, w.draw(left, (2, 3), torch.bfloat16, salt=1))


@case
def a_message_larger_than_any_buffer(w: World) -> None:
    right, left = (w.place + 1) % w.size, (w.place - 1) % w.size
    shape = (1 << 20,)
    received = w.empty(*shape)
    works = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, w.mine(shape), w.members[right], group=w.group),
            dist.P2POp(dist.irecv, received, w.members[left], group=w.group),
        ]
    )
    for work in works:
        work.wait()
    equal(received, w.draw(left, shape))


@case
def send_and_receive_and_to_oneself(w: World) -> None:
    if w.place == 0:
        dist.send(w.mine((4,)), w.members[1], group=w.group)
    elif w.place == 1:
        received = w.empty(4)
        dist.recv(received, w.members[0], group=w.group)
        equal(received, w.draw(0, (4,)))
    own = w.empty(3)
    w.group.send([w.mine((3,))], w.place, 0).wait()
    w.group.recv([own], w.place, 0).wait()
    equal(own, w.mine((3,)))


@case
def asynchronous_handles_keep_their_order(w: World) -> None:
    tensors = [w.mine((64,), salt=salt) for salt in range(6)]
    works = [dist.all_reduce(tensor, group=w.group, async_op=True) for tensor in tensors]
    gathered = w.empty(64 * w.size)
    works.append(dist.all_gather_into_tensor(gathered, tensors[0], group=w.group, async_op=True))
    for work in reversed(works):
        assert work is not None
        assert work.wait()
    if w.device == "cuda":
        torch.cuda.synchronize()
    assert all(work is not None and work.is_completed() for work in works)
    for salt, tensor in enumerate(tensors):
        equal(tensor, total(w.every((64,), salt=salt)))
    equal(gathered, tensors[0].repeat(w.size), "ran after the reduction it reads")


@case
def functional_collectives(w: World) -> None:
    import torch.distributed._functional_collectives as functional

    group = list(w.members)
    equal(functional.all_reduce(w.mine((4,)), "sum", w.group) + 0, total(w.every((4,))))
    equal(functional.all_gather_tensor(w.mine((2, 2)), 0, w.group) + 0, torch.cat(w.every((2, 2))))
    whole = w.every((w.size, 2))
    share = functional.reduce_scatter_tensor(whole[w.place], "sum", 0, w.group) + 0
    equal(share, total(whole)[w.place : w.place + 1], f"reduce_scatter {group}")


@case
def coalesced_all_gathers_and_reductions(w: World) -> None:
    tensors = [w.mine((3,), salt=1), w.mine((5,), salt=2)]
    with dist.distributed_c10d._coalescing_manager(w.group):
        for tensor in tensors:
            dist.all_reduce(tensor, group=w.group)
    for salt, tensor in enumerate(tensors, 1):
        equal(tensor, total(w.every(tuple(tensor.shape), salt=salt)))


@case
def objects_and_barrier(w: World) -> None:
    dist.barrier(group=w.group)
    if find_spec("numpy") is None:  # torch itself turns tensors into objects by way of numpy
        return
    found: list[object] = [None] * w.size
    dist.all_gather_object(found, {"place": w.place, "text": "x" * w.place}, group=w.group)
    assert found == [{"place": p, "text": "x" * p} for p in range(w.size)]


@case
def the_store_of_a_group_is_there_for_all_members(w: World) -> None:
    """Symmetric memory meets over it, in C++, and would follow a null pointer."""
    store = w.group.get_group_store()
    store.set(f"said by {w.place}", str(w.members[w.place]))
    said = [int(store.get(f"said by {place}")) for place in range(w.size)]
    assert said == w.members, f"{said} in the store of the group of {w.members}"


@case
def what_nccl_refuses_is_refused(w: World) -> None:
    wide = w.empty(4, 4)
    refuses("contiguous", lambda: dist.all_reduce(wide.t()[1:], group=w.group))
    refuses("does not carry", lambda: dist.all_reduce(wide.to(torch.int16), group=w.group))
    refuses("Cannot use ReduceOp.BAND", lambda: dist.all_reduce(wide.int(), dist.ReduceOp.BAND, group=w.group))
    refuses("Boolean", lambda: dist.all_reduce(wide.bool(), dist.ReduceOp.AVG, group=w.group))
    refuses("any source", lambda: w.group.recv_anysource([wide], 0))
    refuses("world_size times", lambda: dist.all_gather_into_tensor(w.empty(3), w.empty(4), group=w.group))
    refuses("Split sizes", lambda: dist.all_to_all_single(wide, wide, [1] * w.size, [9] * w.size, group=w.group))
    refuses("one for each", lambda: dist.all_to_all([w.empty(1)] * 9, [w.empty(1)] * 9, group=w.group))


def groups(rank: int, size: int, device: str) -> Iterator[tuple[str, World]]:
    """The whole world, its even and odd halves, and all but the first: every rank makes every group."""
    everyone = list(range(size))
    yield "world", World(dist.group.WORLD, everyone, rank, device)  # type: ignore[arg-type]
    for name, members in (("even", everyone[::2]), ("odd", everyone[1::2]), ("tail", everyone[1:])):
        group = dist.new_group(members)
        if rank in members:
            yield name, World(group, members, rank, device)


def main() -> None:
    rank, size, store, device, target = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    from evaluator.runner.emulation import BACKEND, register

    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(STUCK_SECONDS, exit=True)  # says where a rank hangs
    register()
    register()
    dist.init_process_group(
        BACKEND, store=dist.FileStore(store, size), rank=rank, world_size=size, timeout=timedelta(seconds=60)
    )
    assert dist.get_backend() == BACKEND
    results: dict[str, str] = {}
    for name, world in list(groups(rank, size, device)):
        for title, test in CASES.items():
            if title == "send_and_receive_and_to_oneself" and world.size < 2:
                continue
            try:
                test(world)
                error = ""
            except Exception:
                error = f"group {name}: {traceback.format_exc(limit=-3)}"
            results[title] = results.get(title, "") + error
    Path(target).write_text(json.dumps(results))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
