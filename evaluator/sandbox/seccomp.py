"""System calls that a job is denied, as tables, and the classic BPF program that the kernel runs for them.

A deny list, because torch, CUDA and compilers need hundreds of calls that change with their versions; it takes away
what escapes, hides memory from the watchdog, reaches across processes or wakes a stopped process. See seccomp(2).
"""

from __future__ import annotations

import errno
import platform
import signal
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from evaluator.sandbox.policy import SandboxUnavailable, SeccompProfile


@dataclass(frozen=True)
class Machine:
    """What differs between architectures: the audit number and the column of the tables below."""

    audit_arch: int
    column: int


MACHINES = {"x86_64": Machine(audit_arch=0xC000003E, column=0), "aarch64": Machine(audit_arch=0xC00000B7, column=1)}
X32_BIT = 0x40000000  # x86_64 calls of the x32 ABI carry it and would pass a list of plain numbers

# name: (number on x86_64, number on aarch64); None where the architecture has no such call.
Numbers = tuple[int | None, int | None]

OTHER_PROCESSES: Mapping[str, Numbers] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "kcmp": (312, 272),
}
DESCRIPTORS_OF_OTHERS: Mapping[str, Numbers] = {"pidfd_getfd": (438, 438)}  # CUDA shares memory between ranks by it
NAMESPACES_AND_MOUNTS: Mapping[str, Numbers] = {
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
}
KERNEL_SURFACE: Mapping[str, Numbers] = {
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_setup": (206, 0),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "syslog": (103, 116),
    "modify_ldt": (154, None),
    "uselib": (134, None),
    "ustat": (136, None),
    "sysfs": (139, None),
    "vhangup": (153, 58),
}
THE_MACHINE: Mapping[str, Numbers] = {
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "iopl": (172, None),
    "ioperm": (173, None),
}
MEMORY_OUTSIDE_THE_LIMITS: Mapping[str, Numbers] = {
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "memfd_secret": (447, 447),
}
ANONYMOUS_FILES: Mapping[str, Numbers] = {"memfd_create": (319, 279)}  # CUDA may need it
# A stopped job must stay stopped while the judge writes its inputs, so nothing in it may cause a SIGCONT. The kernel
# sends a signal of the job's choosing for a POSIX timer or a message queue.
KERNEL_SENT_SIGNALS: Mapping[str, Numbers] = {
    "timer_create": (222, 107),
    "mq_open": (240, 180),
    "mq_notify": (244, 184),
}

DENIED_ALWAYS = (
    OTHER_PROCESSES,
    NAMESPACES_AND_MOUNTS,
    KERNEL_SURFACE,
    THE_MACHINE,
    MEMORY_OUTSIDE_THE_LIMITS,
    KERNEL_SENT_SIGNALS,
)
DENIED: Mapping[SeccompProfile, tuple[Mapping[str, Numbers], ...]] = {
    "cpu": (*DENIED_ALWAYS, ANONYMOUS_FILES, DESCRIPTORS_OF_OTHERS),
    "cuda": DENIED_ALWAYS,
}

# Calls that send signals, by the index of the argument that says which.
SENDS_SIGNAL: Mapping[str, tuple[Numbers, int]] = {
    "kill": ((62, 129), 1),
    "tkill": ((200, 130), 1),
    "tgkill": ((234, 131), 2),
    "rt_sigqueueinfo": ((129, 138), 1),
    "rt_tgsigqueueinfo": ((297, 240), 2),
    "pidfd_send_signal": ((424, 424), 1),
}
# Calls of which only some arguments are denied.
CLONE: Numbers = (56, 220)
CLONE3: Numbers = (435, 435)
SOCKET: Numbers = (41, 198)
FCNTL: Numbers = (72, 25)
PRCTL: Numbers = (157, 167)
PERSONALITY: Numbers = (135, 92)
MMAP: Numbers = (9, 222)
IOCTL: Numbers = (16, 29)

# CLONE_NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET; NEWTIME shares a bit with the exit signal
# of clone(2), where it means nothing.
NEW_NAMESPACE_FLAGS = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
EXIT_SIGNAL_MASK = 0xFF
SHARED_AND_ANONYMOUS = 0x01 | 0x20  # MAP_SHARED or MAP_SHARED_VALIDATE, MAP_ANONYMOUS
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16
F_SETSIG = 10
PR_SET_PDEATHSIG = 1
PERSONALITY_QUERY = 0xFFFFFFFF
TIOCSTI = 0x5412

# Classic BPF, linux/bpf_common.h; offsets into struct seccomp_data, low half of 64-bit arguments (little endian).
_LOAD, _JEQ, _JGE, _JSET, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NR, _ARCH = 0, 4
_ALLOW, _KILL_PROCESS = 0x7FFF0000, 0x80000000


def _argument(index: int) -> int:
    return 16 + 8 * index


def _errno(number: int) -> int:
    return 0x00050000 | number


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)


def _when(number: int, *body: bytes) -> list[bytes]:
    """``body`` runs for call ``number``; it must return, or leave the call's number loaded again."""
    return [_instruction(_JEQ, number, 0, len(body)), *body]


def _deny_argument(number: int, index: int, values: tuple[int, ...], error: int) -> list[bytes]:
    """Deny call ``number`` if its argument is one of ``values``."""
    tests = [_instruction(_JEQ, value, len(values) - i, 0) for i, value in enumerate(values)]
    tests.append(_instruction(_RETURN, _ALLOW))
    return _when(number, _instruction(_LOAD, _argument(index)), *tests, _instruction(_RETURN, _errno(error)))


def _allow_argument(number: int, index: int, values: tuple[int, ...], error: int) -> list[bytes]:
    """Deny call ``number`` unless its argument is one of ``values``."""
    tests = [_instruction(_JEQ, value, len(values) - i, 0) for i, value in enumerate(values)]
    tests.append(_instruction(_RETURN, _errno(error)))
    return _when(number, _instruction(_LOAD, _argument(index)), *tests, _instruction(_RETURN, _ALLOW))


def _argument_rules(column: int, profile: SeccompProfile) -> list[bytes]:
    def number(numbers: Numbers) -> int:
        value = numbers[column]
        assert value is not None
        return value

    rules = _when(  # its flags lie in memory, out of a filter's reach; glibc falls back to clone on ENOSYS
        number(CLONE3), _instruction(_RETURN, _errno(errno.ENOSYS))
    )
    if profile == "cpu":
        # Shared pages without a file can be touched and then unmapped from every process: memory that is in nobody's
        # figures. CUDA may need them; there the machine's own figure is watched.
        rules += _when(
            number(MMAP),
            _instruction(_LOAD, _argument(3)),
            _instruction(_AND, SHARED_AND_ANONYMOUS),
            _instruction(_JEQ, SHARED_AND_ANONYMOUS, 0, 1),
            _instruction(_RETURN, _errno(errno.EPERM)),
            _instruction(_RETURN, _ALLOW),
        )
    rules += _when(
        number(CLONE),
        _instruction(_LOAD, _argument(0)),
        _instruction(_JSET, NEW_NAMESPACE_FLAGS, 2, 0),
        _instruction(_AND, EXIT_SIGNAL_MASK),  # sent to the parent when the child ends
        _instruction(_JEQ, int(signal.SIGCONT), 0, 1),
        _instruction(_RETURN, _errno(errno.EPERM)),
        _instruction(_RETURN, _ALLOW),
    )
    # Other families are not bounded by the network namespace (vsock reaches the hypervisor) or open kernel code.
    rules += _allow_argument(number(SOCKET), 0, (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK), errno.EAFNOSUPPORT)
    for numbers, index in SENDS_SIGNAL.values():
        rules += _deny_argument(number(numbers), index, (int(signal.SIGCONT),), errno.EPERM)
    rules += _deny_argument(number(FCNTL), 1, (F_SETSIG,), errno.EPERM)  # see KERNEL_SENT_SIGNALS
    rules += _allow_argument(number(PERSONALITY), 0, (PERSONALITY_QUERY,), errno.EPERM)
    rules += _deny_argument(number(IOCTL), 1, (TIOCSTI,), errno.EPERM)
    rules += _when(
        number(PRCTL),
        _instruction(_LOAD, _argument(0)),
        _instruction(_JEQ, PR_SET_PDEATHSIG, 1, 0),
        _instruction(_RETURN, _ALLOW),
        _instruction(_LOAD, _argument(1)),
        _instruction(_JEQ, int(signal.SIGCONT), 0, 1),
        _instruction(_RETURN, _errno(errno.EPERM)),
        _instruction(_RETURN, _ALLOW),
    )
    return rules


def program(profile: SeccompProfile, machine: str | None = None) -> bytes:
    """The filter as the kernel takes it: an array of ``struct sock_filter``.

    Raises SandboxUnavailable on an architecture without tables.
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        raise SandboxUnavailable(
            f"There is no system call filter for the architecture {machine}.",
            f"Use a host of one of these: {', '.join(MACHINES)}.",
        )
    target = MACHINES[machine]
    code = [
        _instruction(_LOAD, _ARCH),
        _instruction(_JEQ, target.audit_arch, 1, 0),
        _instruction(_RETURN, _KILL_PROCESS),
        _instruction(_LOAD, _NR),
    ]
    if machine == "x86_64":
        code += [_instruction(_JGE, X32_BIT, 0, 1), _instruction(_RETURN, _errno(errno.EPERM))]
    for table in DENIED[profile]:
        for numbers in table.values():
            number = numbers[target.column]
            if number is not None:
                code += _when(number, _instruction(_RETURN, _errno(errno.EPERM)))
    code += _argument_rules(target.column, profile)
    code.append(_instruction(_RETURN, _ALLOW))
    return b"".join(code)
