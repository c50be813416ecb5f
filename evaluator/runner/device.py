"""Where a rank's tensors lie and how its clock runs: in the shared region, or on a device with a copy of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .scramble import scramble
from .values import Region

FLUSH_MULTIPLE = 2  # of the device's last-level cache, written before every call

# Taken before any submission is imported, so that a later change of these names does not reach what is below.
_perf_counter = time.perf_counter
_synchronize = torch.cuda.synchronize
_Event = torch.cuda.Event
_frombuffer = torch.frombuffer
_storage_at = torch._C._construct_storage_from_data_pointer


class Host:
    """A rank on the CPU: arguments lie in the shared region itself, or ``mirrored`` in a copy; the host's clock."""

    device = torch.device("cpu")

    def __init__(self, *, mirrored: bool = False) -> None:
        self.mirrored = mirrored

    def source(self, descriptor: int) -> Region:
        return Mirror(descriptor, self.device) if self.mirrored else Region(descriptor)

    def fence(self) -> None:
        """Nothing runs beside the host."""

    def flush(self) -> None:
        """The judge's ring of slots is larger than the cache."""

    def timer(self) -> Callable[[], float]:
        """Starts a clock; what is returned stops it and gives the seconds."""
        began = _perf_counter()
        return lambda: _perf_counter() - began


class Cuda(Host):
    """A rank on one CUDA device. What its clock takes is the time between two events on its stream."""

    def __init__(self, index: int) -> None:
        super().__init__(mirrored=True)
        self.device = torch.device("cuda", index)
        torch.cuda.set_device(self.device)
        cache: int = torch.cuda.get_device_properties(self.device).L2_cache_size
        self.scratch = torch.empty(FLUSH_MULTIPLE * cache, dtype=torch.uint8, device=self.device)

    def fence(self) -> None:
        """Waits until the device has done everything."""
        _synchronize(self.device)

    def flush(self) -> None:
        """Leaves nothing of the inputs in the device's last-level cache."""
        self.scratch.zero_()

    def timer(self) -> Callable[[], float]:
        begin, end = _Event(enable_timing=True), _Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()

        def stop() -> float:
            end.record()
            self.fence()
            return float(begin.elapsed_time(end)) / 1e3

        return stop


class Mirror(Region):
    """An input region whose tensors lie on a device, at the same offsets in a copy of it.

    The judge writes scrambled slots into the shared memory; ``load`` brings one to the device, ``unlock`` makes it mean
    something, ``save`` brings what a call left of it back.
    """

    def __init__(self, descriptor: int, device: torch.device) -> None:
        super().__init__(descriptor)
        self.device = device
        self.host = _frombuffer(self.map, dtype=torch.uint8)
        self.copy = torch.zeros(self.size, dtype=torch.uint8, device=device)
        self.address = self.copy.data_ptr()
        if device.type == "cuda":
            # The bus then reads the pages without a detour; some virtual machines refuse that, and it takes one.
            torch.cuda.cudart().cudaHostRegister(self.host.data_ptr(), self.size, 0)  # type: ignore[no-untyped-call]

    def tensor(
        self, dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int] | None, offset: int
    ) -> torch.Tensor:
        """A tensor on the device with a storage of its own over the bytes from ``offset`` on."""
        empty = torch.empty(0, dtype=dtype, device=self.device)
        count = 1
        for size in shape:
            count *= size
        if count == 0:
            return empty.view(tuple(shape)) if len(shape) else empty
        storage = _storage_at(self.address + offset, self.device, count * dtype.itemsize)
        strides = tuple(stride) if stride is not None else _contiguous(shape)
        return empty.set_(storage, 0, tuple(shape), strides)

    def load(self, slots: Sequence[tuple[int, int]]) -> None:
        """Copies slots (start, bytes) to the device."""
        for start, size in slots:
            self.copy[start : start + size].copy_(self.host[start : start + size])

    def unlock(self, start: int, size: int, keys: tuple[int, int]) -> None:
        """Undoes the judge's scrambling of a slot, on the device."""
        scramble(self.copy[start : start + size], keys)

    def save(self, start: int, size: int) -> None:
        """Copies a slot back, so that the judge sees what the call has left of its arguments."""
        self.host[start : start + size].copy_(self.copy[start : start + size])


def make_device(command: dict[str, Any], rank: int) -> Host:
    """The device that the judge's launch command names for the rank."""
    if command["device"] == "cuda":
        return Cuda(command["numbers"][rank])
    return Host(mirrored=command["mirrored"])


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    reach = 1
    for size in reversed(shape):
        strides.append(reach)
        reach *= size
    return tuple(reversed(strides))
