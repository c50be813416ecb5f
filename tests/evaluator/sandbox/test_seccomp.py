"""The system call filter of both architectures, run by an interpreter of classic BPF instead of a kernel."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence

import pytest

from evaluator.sandbox import SandboxUnavailable, SeccompProfile, seccomp

ALLOW, KILL = "allow", "kill"
READ = {"x86_64": 0, "aarch64": 63}
COLUMNS = {name: machine.column for name, machine in seccomp.MACHINES.items()}


def decide(code: bytes, machine: str, number: int, arguments: Sequence[int] = (0,) * 6) -> str | int:
    """What the kernel would do with the call: "allow", "kill" or the errno that it gives."""
    data = struct.pack("<iIQ6Q", number, seccomp.MACHINES[machine].audit_arch, 0, *arguments)
    program = list(struct.iter_unpack("<HBBI", code))
    accumulator = position = 0
    while True:
        operation, if_true, if_false, value = program[position]
        position += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x06:
            action = value & 0xFFFF0000
            return {0x7FFF0000: ALLOW, 0x80000000: KILL, 0x00050000: value & 0xFFFF}[action]
        elif operation == 0x54:
            accumulator &= value
        else:
            holds = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}
            position += if_true if holds[operation] else if_false


@pytest.mark.parametrize("machine", COLUMNS)
@pytest.mark.parametrize("profile", ["cpu", "cuda"])
def test_tables_are_denied_and_the_rest_passes(machine: str, profile: SeccompProfile) -> None:
    code = seccomp.program(profile, machine)
    denied = {numbers[COLUMNS[machine]]: name for table in seccomp.DENIED[profile] for name, numbers in table.items()}
    for number, name in denied.items():
        if number is not None:
            assert decide(code, machine, number) == errno.EPERM, name
    special = {n[COLUMNS[machine]] for n in (seccomp.CLONE3, seccomp.SOCKET, seccomp.PERSONALITY)}
    for number in set(range(480)) - denied.keys() - special:
        assert decide(code, machine, number) == ALLOW, number


@pytest.mark.parametrize("machine", COLUMNS)
def test_what_cuda_may_need_is_denied_to_cpu_jobs_only(machine: str) -> None:
    for name, numbers in {**seccomp.ANONYMOUS_FILES, **seccomp.DESCRIPTORS_OF_OTHERS}.items():
        number = numbers[COLUMNS[machine]]
        assert number is not None
        assert decide(seccomp.program("cpu", machine), machine, number) == errno.EPERM, name
        assert decide(seccomp.program("cuda", machine), machine, number) == ALLOW, name


SIGCHLD, SIGTERM, SIGCONT = 17, 15, 18
PTHREAD_FLAGS = 0x003D0F00
VFORK_FLAGS = 0x00004100 | SIGCHLD
CASES = [
    ("fork", seccomp.CLONE, (0x01200011,), ALLOW),
    ("thread", seccomp.CLONE, (PTHREAD_FLAGS,), ALLOW),
    ("vfork", seccomp.CLONE, (VFORK_FLAGS,), ALLOW),
    *[
        (f"namespace {1 << bit:#x}", seccomp.CLONE, ((1 << bit) | SIGCHLD,), errno.EPERM)
        for bit in (17, *range(25, 31))
    ],
    ("fork that wakes its parent", seccomp.CLONE, (SIGCONT,), errno.EPERM),
    *[(name, numbers, (0,) * at + (SIGCONT,), errno.EPERM) for name, (numbers, at) in seccomp.SENDS_SIGNAL.items()],
    *[(f"{name} 15", numbers, (0,) * at + (SIGTERM,), ALLOW) for name, (numbers, at) in seccomp.SENDS_SIGNAL.items()],
    ("private pages", seccomp.MMAP, (0, 4096, 3, 0x22), ALLOW),
    ("pages of a file", seccomp.MMAP, (0, 4096, 3, 0x01), ALLOW),
    ("shared pages without a file", seccomp.MMAP, (0, 4096, 3, 0x21), errno.EPERM),
    ("the same, checked", seccomp.MMAP, (0, 4096, 3, 0x23), errno.EPERM),
    ("clone3", seccomp.CLONE3, (), errno.ENOSYS),
    ("unix socket", seccomp.SOCKET, (1, 5), ALLOW),
    ("tcp socket", seccomp.SOCKET, (2, 1), ALLOW),
    ("tcp6 socket", seccomp.SOCKET, (10, 1), ALLOW),
    ("route socket", seccomp.SOCKET, (16, 3), ALLOW),
    ("vsock socket", seccomp.SOCKET, (40, 1), errno.EAFNOSUPPORT),
    ("packet socket", seccomp.SOCKET, (17, 3), errno.EAFNOSUPPORT),
    ("dup by fcntl", seccomp.FCNTL, (3, 0), ALLOW),
    ("signal of a descriptor", seccomp.FCNTL, (3, 10), errno.EPERM),
    ("personality asked", seccomp.PERSONALITY, (0xFFFFFFFF,), ALLOW),
    ("personality set", seccomp.PERSONALITY, (0x0040000,), errno.EPERM),
    ("name by prctl", seccomp.PRCTL, (15,), ALLOW),
    ("parent-death SIGTERM", seccomp.PRCTL, (1, SIGTERM), ALLOW),
    ("parent-death SIGCONT", seccomp.PRCTL, (1, SIGCONT), errno.EPERM),
    ("terminal size", seccomp.IOCTL, (0, 0x5413), ALLOW),
    ("typing into a terminal", seccomp.IOCTL, (0, 0x5412), errno.EPERM),
]


@pytest.mark.parametrize("machine", COLUMNS)
@pytest.mark.parametrize(("name", "numbers", "arguments", "decision"), CASES, ids=[case[0] for case in CASES])
def test_calls_that_are_denied_by_their_arguments(
    machine: str, name: str, numbers: seccomp.Numbers, arguments: tuple[int, ...], decision: str | int
) -> None:
    number = numbers[COLUMNS[machine]]
    assert number is not None
    padded = (*arguments, *(0,) * (6 - len(arguments)))
    assert decide(seccomp.program("cpu", machine), machine, number, padded) == decision


def test_another_architecture_is_killed_and_x32_denied() -> None:
    code = seccomp.program("cpu", "x86_64")
    assert decide(code, "aarch64", READ["aarch64"]) == KILL
    assert decide(code, "x86_64", seccomp.X32_BIT | READ["x86_64"]) == errno.EPERM


def test_an_architecture_without_tables_is_refused() -> None:
    with pytest.raises(SandboxUnavailable, match="no system call filter for the architecture s390x"):
        seccomp.program("cpu", "s390x")
