"""The process group: NCCL's operations, made of exchanges of bytes."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store, Work

from .lanes import EmulatedWork, Lane
from .reductions import DTYPES, check_reduction, reduce_parts
from .store import hand_over
from .transport import Transport, as_bytes, from_bytes, pieces_of, put

BACKEND = "emulated"


def register() -> None:
    """Makes the backend known to ``init_process_group``; again is harmless."""
    if BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, create, devices=["cpu", "cuda"])


def create(store: Store, rank: int, size: int, timeout: timedelta) -> EmulatedGroup:
    return EmulatedGroup(store, rank, size, timeout)


# Without its types: torch calls these methods in one form only, the stubs demand every overload.
_Base: Any = dist.ProcessGroup


class EmulatedGroup(_Base):  # type: ignore[misc]
    """Process group ``emulated`` of ``size`` ranks on one machine; tensors lie on the CPU or on a CUDA device.

    Operations of a group run in the order in which they are called, sends and receives in an order of their own per
    peer, as with NCCL. Raises RuntimeError for what NCCL refuses: tensors that are not contiguous or of other dtypes,
    sizes that do not fit, bitwise reductions, receiving from any source.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._rank = rank
        self._size = size
        hand_over(store, self)
        self._transport = Transport(PrefixStore("emulated", store), rank, size, timeout)
        self._lanes: dict[str, Lane] = {}
        self._own: queue.SimpleQueue[Tensor] = queue.SimpleQueue()  # what this rank sends to itself
        self._together: list[EmulatedWork] | None = None

    # What torch asks of a group written in Python

    def getBackendName(self) -> str:
        return BACKEND

    def rank(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    @property
    def pg_name(self) -> str:
        return dist.distributed_c10d._world.pg_names[self]

    @property
    def group_name(self) -> str:
        return self.pg_name

    def shutdown(self) -> None:
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()

    def abort(self) -> None:
        self.shutdown()

    def __repr__(self) -> str:
        return f"<EmulatedGroup rank {self._rank} of {self._size}>"

    def _start_coalescing(self, device: torch.device) -> None:
        self._together = []

    def _end_coalescing(self, device: torch.device) -> Work:
        works, self._together = self._together or [], None
        return self._submit("collectives", [], device, lambda: _wait_for(works))

    # Collectives

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> Work:
        """Reduction of the ranks' tensors, in place, the same on every rank."""
        (tensor,) = tensors
        operation = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        self._check([tensor])
        check_reduction(operation, tensor.dtype)

        def run() -> None:
            put(tensor, self._all_reduced(as_bytes(tensor), tensor, operation))

        return self._submit("collectives", [tensor], tensor.device, run)

    def allreduce_coalesced(self, tensors: list[Tensor], opts: Any = None) -> Work:
        return self._each([self.allreduce([tensor], opts) for tensor in tensors], tensors)

    def broadcast(self, tensors: list[Tensor], opts: Any) -> Work:
        (tensor,) = tensors
        self._check([tensor])
        root = opts.rootRank

        def run() -> None:
            if root == self._rank:
                self._transport.broadcast(as_bytes(tensor), tensor.nbytes, root)
            else:
                put(tensor, from_bytes(self._transport.broadcast(None, tensor.nbytes, root), tensor))

        return self._submit("collectives", [tensor], tensor.device, run)

    def reduce(self, tensors: list[Tensor], opts: Any) -> Work:
        """Reduction that only the root receives. NCCL leaves other ranks' tensors as they are."""
        (tensor,) = tensors
        self._check([tensor])
        check_reduction(opts.reduceOp, tensor.dtype)

        def run() -> None:
            total = self._all_reduced(as_bytes(tensor), tensor, opts.reduceOp)
            if opts.rootRank == self._rank:
                put(tensor, total)

        return self._submit("collectives", [tensor], tensor.device, run)

    def allgather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any = None) -> Work:
        """One tensor of every rank; sizes may differ between ranks if every rank's list says them."""
        (parts,), (tensor,) = outputs, inputs
        self._check([*parts, tensor])
        self._count("output", len(parts))
        if parts[self._rank].numel() != tensor.numel():
            raise RuntimeError(
                f"output_tensor_list[{self._rank}] has {parts[self._rank].numel()} elements, the tensor of this rank "
                f"{tensor.numel()}"
            )

        def run() -> None:
            sizes = [part.nbytes for part in parts]
            for part, data in zip(parts, self._transport.gather_all(as_bytes(tensor), sizes), strict=True):
                put(part, from_bytes(data, part))

        return self._submit("collectives", parts, tensor.device, run)

    def all_gather_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        """The ranks' equal tensors one after the other in ``output``, concatenated or stacked."""
        self._check([output, tensor])
        if output.numel() != tensor.numel() * self._size:
            raise RuntimeError(
                f"output tensor size must be equal to world_size times input tensor size: {output.numel()} elements "
                f"for {self._size} ranks of {tensor.numel()}"
            )

        def run() -> None:
            parts = self._transport.gather_all(as_bytes(tensor), [tensor.nbytes] * self._size)
            put(output, from_bytes(torch.cat(parts), output))

        return self._submit("collectives", [output], tensor.device, run)

    def all_gather_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        works = [self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)]
        return self._each(works, outputs)

    def gather(self, outputs: list[list[Tensor]], inputs: list[Tensor], opts: Any) -> Work:
        """One equal tensor of every rank, for the root only."""
        (tensor,) = inputs
        parts = outputs[0] if outputs else []
        self._check([*parts, tensor])
        root = opts.rootRank
        if root == self._rank:
            self._count("gather_list", len(parts))
            self._equal("gather_list", [*parts, tensor])

        def run() -> None:
            nothing = torch.empty(0, dtype=torch.uint8)
            pieces = [as_bytes(tensor) if p == root else nothing for p in range(self._size)]
            sizes = [tensor.nbytes if root == self._rank else 0] * self._size
            for part, data in zip(parts, self._transport.exchange(pieces, sizes), strict=False):
                put(part, from_bytes(data, part))

        return self._submit("collectives", parts, tensor.device, run)

    def scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any) -> Work:
        """One equal tensor for every rank, from the root."""
        (tensor,) = outputs
        parts = inputs[0] if inputs else []
        self._check([*parts, tensor])
        root = opts.rootRank
        if root == self._rank:
            self._count("scatter_list", len(parts))
            self._equal("scatter_list", [*parts, tensor])

        def run() -> None:
            nothing = torch.empty(0, dtype=torch.uint8)
            pieces = [as_bytes(part) for part in parts] if root == self._rank else [nothing] * self._size
            sizes = [tensor.nbytes if p == root else 0 for p in range(self._size)]
            put(tensor, from_bytes(self._transport.exchange(pieces, sizes)[root], tensor))

        return self._submit("collectives", [tensor], tensor.device, run)

    def reduce_scatter(self, outputs: list[Tensor], inputs: list[list[Tensor]], opts: Any = None) -> Work:
        """Reduction of every rank's r-th tensor for rank r; sizes may differ between the entries of the list."""
        (output,), (parts,) = outputs, inputs
        self._check([*parts, output])
        self._count("input_list", len(parts))
        operation = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        check_reduction(operation, output.dtype)
        if parts[self._rank].numel() != output.numel():
            raise RuntimeError(
                f"input_list[{self._rank}] has {parts[self._rank].numel()} elements, the output of this rank "
                f"{output.numel()}"
            )

        def run() -> None:
            put(output, self._reduced_share([as_bytes(part) for part in parts], output, operation))

        return self._submit("collectives", [output], output.device, run)

    def reduce_scatter_single(self, output: Tensor, tensor: Tensor, opts: Any = None) -> Work:
        """Reduction of the ranks' tensors, of which rank r receives the r-th equal share."""
        self._check([output, tensor])
        operation = opts.reduceOp if opts is not None else dist.ReduceOp.SUM
        check_reduction(operation, output.dtype)
        if tensor.numel() != output.numel() * self._size:
            raise RuntimeError(
                f"input tensor must be the same size as output size times world size: {tensor.numel()} elements for "
                f"{self._size} ranks of {output.numel()}"
            )

        def run() -> None:
            pieces = pieces_of(as_bytes(tensor), [output.nbytes] * self._size)
            put(output, self._reduced_share(pieces, output, operation))

        return self._submit("collectives", [output], output.device, run)

    def reduce_scatter_single_coalesced(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        works = [self.reduce_scatter_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)]
        return self._each(works, outputs)

    def all_to_all_single(
        self,
        output: Tensor,
        tensor: Tensor,
        output_split_sizes: list[int] | None,
        input_split_sizes: list[int] | None,
        opts: Any = None,
    ) -> Work:
        """Rows of ``tensor`` for every rank, in equal shares or by split sizes along the first dimension."""
        self._check([output, tensor])
        sent = self._splits("input", tensor, input_split_sizes)
        received = self._splits("output", output, output_split_sizes)

        def run() -> None:
            pieces = pieces_of(as_bytes(tensor), sent)
            put(output, from_bytes(torch.cat(self._transport.exchange(pieces, received)), output))

        return self._submit("collectives", [output], tensor.device, run)

    def alltoall(self, outputs: list[Tensor], inputs: list[Tensor], opts: Any = None) -> Work:
        """The p-th input for rank p, of any size; the p-th output has the size of what rank p sends here."""
        self._check([*outputs, *inputs])
        self._count("input_tensor_list", len(inputs))
        self._count("output_tensor_list", len(outputs))

        def run() -> None:
            pieces = [as_bytes(tensor) for tensor in inputs]
            for output, data in zip(
                outputs, self._transport.exchange(pieces, [output.nbytes for output in outputs]), strict=True
            ):
                put(output, from_bytes(data, output))

        return self._submit("collectives", outputs, inputs[0].device, run)

    def barrier(self, opts: Any = None) -> Work:
        """Blocks the host until every rank is here and, with CUDA, has finished its work: as NCCL's does."""
        if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        work = self._submit("collectives", [], torch.device("cpu"), self._transport.barrier)
        work.wait()
        return work

    # Point to point

    def send(self, tensors: list[Tensor], peer: int, tag: int = 0) -> Work:
        """To one peer, in order; tags mean nothing to NCCL and are not looked at."""
        (tensor,) = tensors
        self._check([tensor])

        def run() -> None:
            if peer == self._rank:
                self._own.put(as_bytes(tensor).clone())
            else:
                self._transport.send(as_bytes(tensor), peer)

        return self._submit(f"send to {peer}", [tensor], tensor.device, run)

    def recv(self, tensors: list[Tensor], peer: int, tag: int = 0) -> Work:
        (tensor,) = tensors
        self._check([tensor])

        def run() -> None:
            data = self._own.get() if peer == self._rank else self._transport.receive(tensor.nbytes, peer)
            put(tensor, from_bytes(data, tensor))

        return self._submit(f"receive from {peer}", [tensor], tensor.device, run)

    def recv_anysource(self, tensors: list[Tensor], tag: int = 0) -> Work:
        raise RuntimeError("NCCL does not support receiving from any source: name the rank")

    # Names that torch used before 2.12

    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    # Parts

    def _submit(
        self, lane: str, tensors: Sequence[Tensor], device: torch.device, run: Callable[[], None]
    ) -> EmulatedWork:
        if lane not in self._lanes:
            self._lanes[lane] = Lane(f"{BACKEND}: {lane}")
        work = self._lanes[lane].submit(tensors, device, run)
        if self._together is not None:
            self._together.append(work)
        return work

    def _each(self, works: Sequence[Work], tensors: Sequence[Tensor]) -> Work:
        """One handle for works of one lane: the last ends last."""
        if not works:
            return self._submit("collectives", tensors, torch.device("cpu"), lambda: None)
        device = tensors[-1].device
        return self._submit("collectives", tensors, device, lambda: _wait_for(works))

    def _all_reduced(self, mine: Tensor, like: Tensor, operation: Any) -> Tensor:
        """Flat reduction over all ranks: every rank reduces its share of the elements, then all shares are gathered."""
        item = like.element_size()
        share = -(-like.numel() // self._size) * item
        padded = torch.zeros(share * self._size, dtype=torch.uint8)
        padded[: mine.numel()] = mine
        if not share:
            return from_bytes(mine, like)
        reduced = self._reduced_share(pieces_of(padded, [share] * self._size), like, operation)
        everything = self._transport.gather_all(reduced.view(torch.uint8), [share] * self._size)
        return from_bytes(torch.cat(everything)[: mine.numel()], like)

    def _reduced_share(self, pieces: Sequence[Tensor], like: Tensor, operation: Any) -> Tensor:
        """Exchanges ``pieces``, one for each rank, and reduces what all ranks sent here; flat, dtype of ``like``."""
        parts = self._transport.exchange(pieces, [pieces[self._rank].numel()] * self._size)
        return reduce_parts([from_bytes(part, like) for part in parts], operation)

    def _check(self, tensors: Sequence[Tensor]) -> None:
        """Raises RuntimeError for tensors that NCCL would refuse."""
        for tensor in tensors:
            if not tensor.is_contiguous():
                raise RuntimeError(f"Tensors must be contiguous: shape {tuple(tensor.shape)}, stride {tensor.stride()}")
            if tensor.is_sparse or tensor.layout is not torch.strided:
                raise RuntimeError("Tensors must be dense")
            if tensor.dtype not in DTYPES:
                raise RuntimeError(f"NCCL does not carry {tensor.dtype}")
            if tensor.device != tensors[0].device:
                raise RuntimeError(f"Tensors must lie on one device: {tensors[0].device} and {tensor.device}")

    def _count(self, what: str, count: int) -> None:
        if count != self._size:
            raise RuntimeError(f"{what} holds {count} tensors; it must hold one for each of the {self._size} ranks")

    def _equal(self, what: str, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            if tensor.shape != tensors[0].shape or tensor.dtype != tensors[0].dtype:
                raise RuntimeError(f"tensors of {what} must all have the shape and dtype of this rank's tensor")

    def _splits(self, what: str, tensor: Tensor, sizes: Sequence[int] | None) -> list[int]:
        """Bytes per rank of the rows of ``tensor``. Raises RuntimeError if the sizes do not make up its rows."""
        rows = tensor.shape[0] if tensor.dim() else 1
        if not sizes:
            if rows % self._size:
                raise RuntimeError(f"{what} has {rows} rows, which {self._size} ranks do not divide evenly")
            sizes = [rows // self._size] * self._size
        if len(sizes) != self._size:
            raise RuntimeError(f"Number of {what} splits is {len(sizes)}, not the group's size {self._size}")
        if sum(sizes) != rows:
            raise RuntimeError(f"Split sizes doesn't match total dim 0 size: {what} {sum(sizes)} of {rows}")
        row = tensor.nbytes // rows if rows else 0
        return [size * row for size in sizes]


def _wait_for(works: Sequence[Work]) -> None:
    """Waits on a lane for what ran on others; errors of theirs are raised here."""
    for work in works:
        if isinstance(work, EmulatedWork):
            work.ended.wait()
            if work.error is not None:
                raise work.error
