"""Where a rank's tensors lie and how its clock runs: in the shared region, or on a device with a copy of it."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

from .scramble import scramble
from .values import Region

FLUSH_MULTIPLE = 2  # of the device's last-level cache, written before every call
LEAD_CYCLES = 2_000_000
"""Clock cycles (a millisecond, about) for which the device is kept busy before a call. A process that has stood still
takes some tenths of a millisecond to queue its first launches; queued ahead, they are no part of the call's time."""
IDLE_FENCES = 5
SCHEDULE_BLOCKING_SYNC = 0x04  # CU_CTX_SCHED_BLOCKING_SYNC
FENCE_SLACK = 20e-6
"""Seconds by which a fence behind the end of a call may take longer than on an idle device."""

# Taken before any submission is imported, so that a later change of these names does not reach what is below.
_perf_counter = time.perf_counter
_set_device = getattr(torch._C, "_cuda_setDevice", None)  # None where torch is built without CUDA
_synchronize = getattr(torch._C, "_cuda_synchronize", None)
_sleep = torch.cuda._sleep
_Event = torch.cuda.Event
_all_reduce = dist.all_reduce
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

    def lead(self) -> None:
        """Nothing is queued."""

    def timer(self) -> Callable[[], float]:
        """Starts a clock; what is returned stops it and gives the seconds."""
        began = _perf_counter()
        return lambda: _perf_counter() - began


class Cuda(Host):
    """A rank on one CUDA device. What its clock takes is the time between two events on its stream.

    ``meets``: all ranks meet on their devices before the first event, in the process group of the world. Else the
    first rank's time would hold how much later the last one began. ``shared``: other ranks use the same device, and
    nobody's time counts.
    """

    def __init__(self, index: int, *, meets: bool, shared: bool) -> None:
        super().__init__(mirrored=True)
        self.device = torch.device("cuda", index)
        if shared:
            _wait_asleep(index)
        torch.cuda.set_device(self.device)
        cache: int = torch.cuda.get_device_properties(self.device).L2_cache_size
        self.scratch = torch.empty(FLUSH_MULTIPLE * cache, dtype=torch.uint8, device=self.device)
        self.meeting = torch.zeros(1, device=self.device) if meets else None
        self.idle_fence = min(self._fence_seconds() for _ in range(IDLE_FENCES))

    def fence(self) -> None:
        """Waits until the device has done everything, on whatever stream."""
        assert _set_device is not None and _synchronize is not None
        _set_device(self.device.index)  # the submission may have chosen another
        _synchronize()

    def flush(self) -> None:
        """Leaves nothing of the inputs in the device's last-level cache."""
        self.scratch.zero_()

    def lead(self) -> None:
        """Keeps the device busy, so that the host can queue what comes."""
        _sleep(LEAD_CYCLES)  # type: ignore[no-untyped-call]

    def timer(self) -> Callable[[], float]:
        """Starts the clock on the current stream; what another stream still does after its end counts as well."""
        begin, end = _Event(enable_timing=True), _Event(enable_timing=True)  # type: ignore[no-untyped-call]
        stream = torch.cuda.current_stream(self.device)
        if self.meeting is not None:
            _all_reduce(self.meeting)
        begin.record(stream)

        def stop() -> float:
            end.record(stream)
            end.synchronize()
            after = self._fence_seconds() - self.idle_fence
            seconds = float(begin.elapsed_time(end)) / 1e3
            return seconds + after if after > FENCE_SLACK else seconds

        return stop

    def _fence_seconds(self) -> float:
        began = _perf_counter()
        self.fence()
        return _perf_counter() - began


def _wait_asleep(index: int) -> None:
    """Lets this process sleep while it waits for the device, where it would otherwise spin on a CPU.

    To be called before the device is used. Raises RuntimeError if the driver refuses.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    device = ctypes.c_int()
    for status in (
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(device), index),
        driver.cuDevicePrimaryCtxSetFlags_v2(device, SCHEDULE_BLOCKING_SYNC),
    ):
        if status != 0:
            raise RuntimeError(f"the driver answered {status} when it was asked to wait asleep")


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
        numbers: list[int] = command["numbers"]
        shared = len(set(numbers)) < len(numbers)
        return Cuda(numbers[rank], meets=command["process_group"] == "nccl", shared=shared)
    return Host(mirrored=command["mirrored"])


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    reach = 1
    for size in reversed(shape):
        strides.append(reach)
        reach *= size
    return tuple(reversed(strides))
