"""The life of one rank: process group, import of the submission, calls, until the judge ends it.

Told to the judge, each message with the nonce it answers: initialised, compiled, imported, ready, prepared, done, or
error with what went wrong. The judge decides by bytes and by its own clock; the order of
messages in this file is its protocol, not a wall.
"""

from __future__ import annotations

import ctypes
import datetime
import faulthandler
import gc
import importlib.util
import inspect
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, NoReturn, cast

import torch.distributed as dist

from . import building
from .device import Mirror, make_device
from .observing import Watch
from .values import Region, TooLarge, build, deliver
from .wire import BadFrame, receive, send

M_PERTURB = -6  # mallopt(3): fill allocated memory with a pattern
MAX_TRACEBACK = 8_000
PATIENCE = datetime.timedelta(hours=2)  # longer than any evaluation: the judge, not the backend, ends a wait


class Rank:
    """What a rank owns: its channel to the judge, its two regions, its groups."""

    def __init__(self, rank: int, command: dict[str, Any], descriptors: list[int]) -> None:
        channel, log, dump, source, target = descriptors
        self.rank = rank
        self.command = command
        self.path: str = command["path"]
        self.channel = socket.socket(fileno=channel)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        faulthandler.enable(file=dump)
        faulthandler.register(signal.SIGUSR1, file=dump, all_threads=True)
        self.device = make_device(command, rank)
        self.source = self.device.source(source)
        self.target = Region(target)
        self.slot: list[int] | None = None
        """Start and size of the last call's arguments in the source region, where it is a mirror."""
        os.close(source)
        os.close(target)
        self.mallopt = ctypes.CDLL(None).mallopt
        self.groups: list[Any] = []

    def connect(self) -> None:
        """Joins the process group and makes the groups that arguments may name, before foreign code runs anywhere."""
        os.sched_setaffinity(0, self.command["cpus"][self.rank])
        os.environ.update(self.command["environment"])
        os.environ.update(
            RANK=str(self.rank),
            LOCAL_RANK=str(self.rank),
            WORLD_SIZE=str(self.command["world_size"]),
            LOCAL_WORLD_SIZE=str(self.command["world_size"]),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(self.command["port"]),
        )
        backend = self.command["process_group"]
        if backend == "emulated":
            from . import emulation

            emulation.register()
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if backend == "nccl" else backend, init_method="env://", timeout=PATIENCE
        )
        for partition in self.command["partitions"]:
            mine = None
            for members in partition:
                group = dist.new_group(members, timeout=PATIENCE)
                mine = group if self.rank in members else mine
            self.groups.append(mine)
        dist.barrier()

    def serve(self) -> None:
        """Answers the judge until it closes the channel."""
        code: CodeType | None = None
        module: ModuleType | None = None
        solution: Callable[..., Any] | None = None
        arguments: list[Any] = []
        stock: list[list[Any]] = []
        replaced: list[Any] = []
        output: Any = None
        watch: Watch | None = None
        while (message := receive(self.channel)) is not None:
            nonce = message["nonce"]
            phase = message["do"]
            try:
                match phase:
                    case "compile":
                        code = compile(Path(self.path).read_bytes(), self.path, "exec")
                        answer: dict[str, Any] = {"is": "compiled"}
                    case "import":
                        assert code is not None
                        module = self.run_file(code)
                        answer = {"is": "imported"}
                    case "ready":
                        assert module is not None
                        solution = usable(module, message["arguments"])
                        gc.collect()
                        gc.freeze()
                        gc.disable()
                        answer = {"is": "ready"}
                    case "prepare":
                        output = None
                        arguments = self.arguments(message["arguments"])
                        replaced = [a for a, n in zip(arguments, message["arguments"], strict=True) if "replaced" in n]
                        gc.collect()
                        self.mallopt(M_PERTURB, message["perturb"])
                        answer = {"is": "prepared"}
                    case "load":
                        self.load(message["slots"])
                        answer = {"is": "loaded"}
                    case "call":
                        assert solution is not None
                        self.device.lead()
                        self.unlock(message)
                        stop = self.device.timer()
                        output = solution(*arguments)
                        own = stop()
                        answer = {"is": "done", "output": self.deliver(output, replaced), "seconds": own}
                    case "nothing":
                        own = self.device.timer()()
                        answer = {"is": "done", "output": {"t": "value", "v": None}, "seconds": own}
                    case "stock":
                        output, replaced, self.slot = None, [], None
                        stock = [*(stock if message["more"] else []), self.arguments(message["arguments"])]
                        answer = {"is": "prepared"}
                    case "train":
                        assert solution is not None
                        stop = self.device.timer()
                        for index in range(message["calls"]):
                            arguments = stock[index % len(stock)]
                            output = solution(*arguments)
                        own = stop()
                        replaced = [arguments[place] for place in message["replaced"]]
                        answer = {"is": "done", "output": self.deliver(output, replaced), "seconds": own}
                    case "again":
                        answer = {"is": "done", "output": self.deliver(output, replaced)}
                    case "watch":
                        watch = Watch(self.device.device)
                        answer = {"is": "watching"}
                    case "observe":
                        assert solution is not None and watch is not None
                        self.unlock(message)
                        self.device.fence()
                        with watch.call():
                            output = solution(*arguments)
                            self.device.fence()
                        answer = {"is": "done", "output": self.deliver(output, replaced)}
                    case "record":
                        assert watch is not None
                        self.target.write_text(watch.record(self.target.room))
                        answer = {"is": "recorded"}
                    case other:
                        raise ValueError(f"unknown message {other!r}")
            except TooLarge as error:
                answer = {"is": "done", "output": {"t": "other", "words": str(error)}}
            except BaseException as error:
                answer = {"is": "error", **describe(error, self.path)}
            try:
                send(self.channel, {**answer, "nonce": nonce})
            except BadFrame:
                large = {"t": "other", "words": "a structure too large to describe"}
                send(self.channel, {"is": "done", "output": large, "nonce": nonce})

    def arguments(self, nodes: list[dict[str, Any]]) -> list[Any]:
        """The arguments that the nodes describe."""
        return [build(node, self.source, self.groups) for node in nodes]

    def load(self, slots: list[list[int]]) -> None:
        """Brings slots (start, bytes) to the device, before the call that needs them and outside of its time."""
        assert isinstance(self.source, Mirror)
        self.source.load([(start, size) for start, size in slots])
        self.device.flush()
        self.device.fence()

    def unlock(self, message: dict[str, Any]) -> None:
        """Makes the arguments of a call readable where they lie in a mirror, in the order of the current stream."""
        self.slot = message.get("slot")
        if isinstance(self.source, Mirror) and self.slot:
            if message.get("load"):
                self.load([self.slot])
            first, second = message["keys"]
            start, size = self.slot
            self.source.unlock(start, size, (first, second))

    def deliver(self, output: Any, replaced: list[Any]) -> dict[str, Any]:
        """Copies and describes the output, and behind it the lists whose entries a problem lets be replaced.

        What the call left of its arguments goes back as well where they lie in a mirror.
        """
        if isinstance(self.source, Mirror) and self.slot:
            start, size = self.slot
            self.source.save(start, size)
        return deliver((output, *replaced) if replaced else output, self.target, self.source)

    def run_file(self, code: CodeType) -> ModuleType:
        """Runs the file as the module ``solution``. Raises whatever it raises."""
        building.hook()
        module = ModuleType("solution")
        module.__file__ = self.path
        module.__spec__ = importlib.util.spec_from_file_location("solution", self.path)
        sys.modules["solution"] = module
        exec(code, module.__dict__)  # noqa: S102  running the submission is what this process is for
        return module


class Unusable(Exception):
    """The file has no ``solution`` that the problem's arguments fit."""


def usable(module: ModuleType, arguments: list[str]) -> Callable[..., Any]:
    """The module's ``solution``. Raises Unusable if it is missing, no callable, or takes other arguments."""
    solution: Any = getattr(module, "solution", None)
    expected = f"solution({', '.join(arguments)})"
    if solution is None:
        raise Unusable(f"the file defines no solution; it must define {expected}")
    if not callable(solution):
        raise Unusable(f"solution is a {type(solution).__name__}, not a function; it must be {expected}")
    try:
        signature = inspect.signature(solution)
    except (TypeError, ValueError):
        return cast(Callable[..., Any], solution)  # built-in callables may have no signature: the first call will tell
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise Unusable(
            f"solution{signature} cannot take the problem's {len(arguments)} arguments ({', '.join(arguments)}), "
            f"which are passed by position: {error}"
        ) from None
    return cast(Callable[..., Any], solution)


def describe(error: BaseException, path: str) -> dict[str, Any]:
    """Type, text, errno and traceback of an exception, without the frames of this runner."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != path:
        trace = trace.tb_next
    try:
        text = "".join(traceback.format_exception(type(error), error, trace, limit=-12))
        message = str(error)
    except Exception as inner:  # an exception of the submission whose __str__ raises
        text = message = f"an exception whose text cannot be formed: {type(inner).__name__}"
    return {
        "type": type(error).__name__[:200],
        "message": message[:2_000],
        "traceback": text[-MAX_TRACEBACK:],
        "errno": error.errno if isinstance(error, OSError) and isinstance(error.errno, int) else None,
    }


def live(number: int, command: dict[str, Any], descriptors: list[int]) -> NoReturn:
    """Runs a rank in a forked process and ends the process, whatever happens."""
    status = 1
    try:
        rank = Rank(number, command, descriptors)
        nonce = command["nonce"]
        try:
            rank.connect()
        except Exception as error:
            send(rank.channel, {"is": "error", "nonce": nonce, **describe(error, command["path"])})
        else:
            send(rank.channel, {"is": "initialised", "nonce": nonce})
            rank.serve()
            status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
