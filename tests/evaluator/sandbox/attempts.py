"""Small hostile programs, and the sandbox that runs many of them, each in a process of its own.

A program is a function body. What it returns, or the error that it meets, is its outcome, as a short text: ``EPERM``
for an OSError, the type's name for another exception, ``signal 9`` if it was killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass

from evaluator.sandbox import ResourceLimits, Sandbox, SandboxSpec, python_command
from evaluator.sandbox.policy import MiB

PRELUDE = """
import ctypes, errno, json, os, signal, socket, subprocess, sys, threading, time, traceback

libc = ctypes.CDLL(None, use_errno=True)

def call(function, *arguments):
    result = function(*arguments)
    if result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result

def syscall(number, *arguments):
    return call(libc.syscall, ctypes.c_long(number), *(ctypes.c_long(a) for a in arguments))

def outcome(program):
    try:
        scope = dict(globals())
        exec("def attempt():\\n" + "\\n".join("    " + line for line in program.splitlines()), scope)
        return str(scope["attempt"]())
    except OSError as error:
        return errno.errorcode.get(error.errno, "OSError")
    except BaseException as error:
        return type(error).__name__

def in_process(program):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        with os.fdopen(write, "w") as file:
            file.write(outcome(program))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return text if status == 0 else f"signal {-status}"
"""
RUN_ALL = """
for name, program in json.load(os.fdopen(int(sys.argv[1]))).items():
    print("outcome " + json.dumps([name, in_process(program)]), flush=True)
"""

# Small, so that filling and exceeding them is quick.
LIMITS = ResourceLimits(
    processes=64,
    memory_bytes=512 * MiB,
    shm_bytes=16 * MiB,
    tmp_bytes=16 * MiB,
    open_files=128,
    file_bytes=8 * MiB,
)


@dataclass(frozen=True)
class Attempt:
    """``program`` must come out as one of ``expected``."""

    name: str
    program: str
    expected: tuple[str, ...]


def run_attempts(attempts: Iterable[Attempt]) -> dict[str, str]:
    """Outcome of every attempt by its name, all run in one sandbox."""
    programs = json.dumps({attempt.name: attempt.program for attempt in attempts})
    fd = os.memfd_create("programs")
    try:
        os.write(fd, programs.encode())
        os.lseek(fd, 0, os.SEEK_SET)
        command = python_command("-c", PRELUDE + RUN_ALL, str(fd))
        with Sandbox.start(SandboxSpec(argv=command, pass_fds=(fd,), limits=LIMITS)) as sandbox:
            status = sandbox.wait(60)
            output = sandbox.output()
    finally:
        os.close(fd)
    assert status == 0, f"the battery itself ended with {status}, {sandbox.violation}: {output[-2000:]}"
    told = [json.loads(line.removeprefix("outcome ")) for line in output.splitlines() if line.startswith("outcome ")]
    return dict(told)
