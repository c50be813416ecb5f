"""When operations run: one after the other on each lane, beside the host and in the order of the caller's stream."""

from __future__ import annotations

import ctypes
import queue
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import Work

STREAM_WAIT_GEQ = 0  # CU_STREAM_WAIT_VALUE_GEQ


@lru_cache(maxsize=1)
def driver() -> ctypes.CDLL:
    """The CUDA driver library. Raises OSError where there is none."""
    return ctypes.CDLL("libcuda.so.1")


class Gate:
    """A word in pinned memory at which a CUDA stream waits without occupying the device or the host."""

    def __init__(self) -> None:
        self.word = torch.zeros(1, dtype=torch.int32).pin_memory()
        self.value = ctypes.c_int32.from_address(self.word.data_ptr())

    def hold(self, stream: torch.cuda.Stream) -> None:
        """Lets what is put on ``stream`` from now on wait until the gate opens. Raises RuntimeError if refused."""
        status = driver().cuStreamWaitValue32_v2(
            ctypes.c_void_p(stream.cuda_stream),
            ctypes.c_uint64(self.word.data_ptr()),
            ctypes.c_uint32(1),
            ctypes.c_uint(STREAM_WAIT_GEQ),
        )
        if status != 0:
            raise RuntimeError(f"cuStreamWaitValue32 answered {status}: this device cannot wait for a word in memory")

    def open(self) -> None:
        self.value.value = 1


class EmulatedWork(Work):
    """Handle of one operation. ``wait`` means what NCCL's does: the current CUDA stream waits, on the CPU the host."""

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        super().__init__()
        self.tensors = list(tensors)
        self.device = device
        self.gate = Gate() if device.type == "cuda" else None
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self.future: torch.futures.Future[Any] = torch.futures.Future()

    def finish(self, error: BaseException | None) -> None:
        """Called once by the lane when the results are in place, or cannot be."""
        self.error = error
        if self.gate is not None:
            self.gate.open()
        self.ended.set()
        if error is None:
            self.future.set_result(self.tensors)
        else:
            self.future.set_exception(RuntimeError(str(error)))

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Raises what the operation raised, if it has ended (on CUDA it may still be under way)."""
        if self.gate is not None and not self.ended.is_set():
            self.gate.hold(torch.cuda.current_stream(self.device))
            return True
        seconds = timeout.total_seconds() if timeout else None
        if not self.ended.wait(seconds or None):
            raise RuntimeError(f"the operation did not end within {seconds:g} s")
        if self.error is not None:
            raise self.error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self.ended.is_set()

    def is_success(self) -> bool:
        return self.ended.is_set() and self.error is None

    def exception(self) -> BaseException | None:
        return self.error

    def result(self) -> list[Tensor]:
        return self.tensors

    def get_future(self) -> torch.futures.Future[Any]:
        return self.future


class Lane:
    """A thread that runs what is submitted, in order, like the stream that NCCL runs a communicator's work on."""

    def __init__(self, name: str) -> None:
        self.waiting: queue.SimpleQueue[tuple[EmulatedWork, Any, Callable[[], None]] | None] = queue.SimpleQueue()
        self.streams: dict[torch.device, torch.cuda.Stream] = {}
        self.thread = threading.Thread(target=self.run, name=name, daemon=True)
        self.thread.start()

    def submit(self, tensors: Sequence[Tensor], device: torch.device, action: Callable[[], None]) -> EmulatedWork:
        """Runs ``action`` after everything before it on this lane and, on CUDA, on the caller's current stream.

        ``action`` reads and writes ``tensors`` with ordinary torch operations and returns when they are issued.
        Raises RuntimeError while a CUDA graph is captured, since bytes that pass the host cannot be in one.
        """
        event = None
        if device.type == "cuda":
            if torch.cuda.is_current_stream_capturing():
                raise RuntimeError("a collective of the emulated backend cannot be captured in a CUDA graph")
            event = torch.cuda.Event()  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(device))
        work = EmulatedWork(tensors, device)
        self.waiting.put((work, event, action))
        return work

    def run(self) -> None:
        while (item := self.waiting.get()) is not None:
            work, event, action = item
            error: BaseException | None = None
            try:
                with torch.no_grad():
                    self.perform(work.device, event, action)
            except BaseException as raised:  # belongs to the caller, who gets it from wait()
                error = raised
            work.finish(error)
            del item, work, event, action  # a tensor lives no longer than its operation

    def perform(self, device: torch.device, event: Any, action: Callable[[], None]) -> None:
        if device.type != "cuda":
            action()
            return
        torch.cuda.set_device(device)
        if device not in self.streams:
            self.streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream = self.streams[device]
        with torch.cuda.stream(stream):
            stream.wait_event(event)
            action()
            stream.synchronize()

    def close(self) -> None:
        """Ends the thread after what was submitted before."""
        self.waiting.put(None)
