"""First process of every sandbox: gives up all privilege, waits for the judge's word, starts the job, reaps.

Runs inside, as pid 1, with the standard library alone (``python -I -S``). Its one argument is JSON:
``argv``, ``fds`` (descriptors the job keeps), ``control`` (descriptor of a Unix socket to the judge), ``uid`` and
``gid`` (or null where bubblewrap has already set them), ``rlimits`` (name to value).

Dialogue on the control socket: sends one message "ready" with a descriptor of this sandbox's /proc and the identity
of its namespaces; waits for one byte; then either the socket closes (the job runs) or an error text comes.
"""

import ctypes
import json
import os
import resource
import signal
import socket
import sys
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_READ, PR_CAPBSET_DROP = 1, 4, 23, 24
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
CAPABILITY_VERSION_3 = 0x20080522
COMMAND_NOT_STARTED = 127

libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, argument: int = 0) -> int:
    result: int = libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {argument}): {os.strerror(number)}")
    return result


def drop_privileges(uid: int | None, gid: int | None) -> None:
    """Become ``uid`` for good: no groups, no capability in any set, no way to gain one by exec."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    if uid is not None and gid is not None:
        for capability in range(64):
            try:
                prctl(PR_CAPBSET_READ, capability)
            except OSError:  # beyond the last capability of this kernel
                break
            prctl(PR_CAPBSET_DROP, capability)
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset: cannot empty the capability sets")
    prctl(PR_SET_NO_NEW_PRIVS, 1)


def set_limits(limits: dict[str, int]) -> None:
    with open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123 - if memory runs out, the job goes first
        file.write("1000")
    for name, value in limits.items():
        which = getattr(resource, name)
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))


def start_job(argv: list[str], fds: list[int], control: socket.socket) -> NoReturn:
    """Become the job; tell the judge if that fails."""
    try:
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # Python ignores or handles them, the job must find the default
        kept = sorted({0, 1, 2, control.fileno(), *fds})
        for low, high in zip(kept, [*kept[1:], resource.getrlimit(resource.RLIMIT_NOFILE)[0]], strict=True):
            os.closerange(low + 1, high)
        os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        control.send(f"{argv[0]}: {error.strerror}".encode())
    os._exit(COMMAND_NOT_STARTED)


def reap(job: int) -> NoReturn:
    """Collect every orphan; end with the job's own status, upon which the kernel kills whatever is left inside."""
    while True:
        pid, status = os.wait()
        if pid == job:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)


def main() -> NoReturn:
    config: dict[str, Any] = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # then the job cannot reach pid 1 with any signal
    control = socket.socket(fileno=config["control"])
    control.set_inheritable(False)
    set_limits(config["rlimits"])
    drop_privileges(config["uid"], config["gid"])
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # again: the change of uid has cleared it
    prctl(PR_SET_DUMPABLE, 0)
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    namespaces = {name: os.readlink(f"/proc/self/ns/{name}") for name in ("ipc", "mnt", "net", "pid", "uts", "user")}  # noqa: PTH115
    socket.send_fds(control, [json.dumps({"ready": namespaces}).encode()], [proc])
    os.close(proc)
    if control.recv(1) != b"g":  # the judge is gone or refuses
        os._exit(COMMAND_NOT_STARTED)
    job = os.fork()
    if job == 0:
        start_job(config["argv"], config["fds"], control)
    # Holding no descriptor, pid 1 keeps no pipe or socket of the job open.
    os.closerange(0, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    reap(job)


if __name__ == "__main__":
    main()
