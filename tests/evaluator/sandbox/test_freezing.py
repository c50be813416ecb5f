"""A job is stopped while the judge writes its inputs: not one instruction of it may run in that time."""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evaluator.sandbox import Sandbox
from tests.evaluator.sandbox.jobs import start

pytestmark = pytest.mark.sandbox

ROUNDS = 50  # a hole in the stopping shows only now and then
COUNT = """
import mmap, os, signal, struct, sys, time
counter = mmap.mmap(int(sys.argv[1]), 4096)
def count(place):
    n = 0
    while True:
        n += 1
        struct.pack_into("<Q", counter, 8 * place, n)
"""
SPINNERS = """
for place in range(3):
    if os.fork() == 0:
        count(place)
count(3)
"""
THREADS = """
import threading
for place in range(3):
    threading.Thread(target=count, args=(place,)).start()
count(3)
"""
# Every process lives for a moment only: it counts and leaves its place to a child.
FORK_CHAIN = """
n = 0
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    n += 1
    struct.pack_into("<Q", counter, 0, n)
    if os.fork() != 0:
        os._exit(0)
"""
# Ends hold stopped process groups together: when one ends, the kernel wakes the group that it leaves behind.
ORPHANER = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True:
    if os.fork() == 0:
        if os.fork() == 0:
            os.setpgid(0, 0)
            for n in range(1000):
                struct.pack_into("<Q", counter, 0, time.monotonic_ns())
            os._exit(0)
        os._exit(0)
"""
KEEP_FIRST = "if os.fork() == 0:\n    while True: time.sleep(600)\nos.setsid() if os.fork() == 0 else time.sleep(600)\n"


@contextmanager
def counters(program: str) -> Iterator[tuple[Sandbox, mmap.mmap]]:
    fd = os.memfd_create("counters")
    os.ftruncate(fd, 4096)
    with mmap.mmap(fd, 4096) as counter, start(COUNT + program, str(fd), fds=(fd,)) as sandbox:
        os.close(fd)
        deadline = time.monotonic() + 10
        while sum(struct.unpack_from("<4Q", counter)) < 1000 and time.monotonic() < deadline:
            time.sleep(0.01)
        yield sandbox, counter


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(SPINNERS, id="processes"),
        pytest.param(THREADS, id="threads"),
        pytest.param(KEEP_FIRST + FORK_CHAIN, id="chain of forks"),
        pytest.param(ORPHANER, id="groups woken by an end"),
    ],
)
def test_nothing_moves_in_a_frozen_job(program: str) -> None:
    with counters(program) as (sandbox, counter):
        moved = highest = 0
        for _ in range(ROUNDS):
            sandbox.freeze()
            before = bytes(counter)
            time.sleep(0.004)
            assert bytes(counter) == before
            sandbox.thaw()
            time.sleep(0.004)
            moved += bytes(counter) != before
            highest = max(highest, sum(struct.unpack_from("<4Q", counter)))  # pack_into writes zeros first
        assert moved > 0, "the job never went on"
        assert highest > 1000


def test_a_frozen_job_can_be_killed() -> None:
    with counters(SPINNERS) as (sandbox, _):
        sandbox.freeze()
        members = sandbox.members()
        sandbox.kill()
    assert members
    assert not any(Path(f"/proc/{pid}").exists() for pid in members)


def test_one_process_is_held_while_the_others_run_on() -> None:
    """What a soak does to a rank; a thaw of the whole job lets it go as well."""
    with counters(SPINNERS) as (sandbox, counter):
        # The counter of the first child is its own alone; inner pids rise in the order of the forks.
        first = sorted(sandbox.inner_pids().values())[1]
        sandbox.hold(first)
        deadline = time.monotonic() + 30
        while True:
            before = struct.unpack_from("<4Q", counter)
            time.sleep(0.02)
            moved = [new != old for old, new in zip(before, struct.unpack_from("<4Q", counter), strict=True)]
            if moved == [False, True, True, True]:
                break
            assert time.monotonic() < deadline, moved
        sandbox.let_go(first)
        while struct.unpack_from("<Q", counter)[0] == before[0]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        sandbox.hold(2**22 + 1)  # nobody has that number
