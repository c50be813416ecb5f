"""When operations run: one after the other on each lane, beside the host and in the order of the caller's stream."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import Work

Item = tuple["EmulatedWork", torch.device, Any, Callable[[], None]]
"""Handle, device, event after which the tensors may be touched, what to do."""


class EmulatedWork(Work):
    """Handle of one operation.

    ``wait`` blocks the host until the results are in place, where NCCL's would let only the current stream wait: what
    an operation needs passes through this process, and a stream that waits for it can hold up the driver in that same
    process (a kernel that is loaded for the first time waits for all streams) and with it the operation. All that is
    put on any stream after ``wait`` comes after the operation, as with NCCL.
    """

    def __init__(self, tensors: Sequence[Tensor], device: torch.device) -> None:
        super().__init__()
        self.tensors = list(tensors)
        self.ended = threading.Event()
        self.error: BaseException | None = None
        devices: list[int | str | torch.device] | None = [device] if device.type == "cuda" else None
        self.future: torch.futures.Future[Any] = torch.futures.Future(devices=devices)

    def finish(self, error: BaseException | None) -> None:
        """Called once by the lane when the results are in place, or cannot be."""
        self.error = error
        try:
            if error is None:
                self.future.set_result(self.tensors)
            else:
                self.future.set_exception(RuntimeError(str(error)))
        except RuntimeError as refused:  # a future takes what it is given, or the operation has failed
            self.error = refused
        finally:
            self.ended.set()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Raises what the operation raised, RuntimeError if it does not end within ``timeout``."""
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
        self.waiting: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
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
            event = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            event.record(torch.cuda.current_stream(device))
        work = EmulatedWork(tensors, device)
        self.waiting.put((work, device, event, action))
        return work

    def run(self) -> None:
        while (item := self.waiting.get()) is not None:
            work, device, event, action = item
            error: BaseException | None = None
            try:
                with torch.no_grad():
                    self.perform(device, event, action)
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
        event.synchronize()  # by the host: copies that waited in the driver would hold up what is still to be issued
        with torch.cuda.stream(stream):
            action()
            stream.synchronize()

    def close(self) -> None:
        """Ends the thread after what was submitted before."""
        self.waiting.put(None)
