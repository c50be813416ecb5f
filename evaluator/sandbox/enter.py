"""First process of every sandbox: gives up all privilege, starts the job when the judge says so, reaps.

Runs inside, as pid 1, with the standard library alone (``python -I -S``). Its one argument is JSON:
``argv``, ``fds`` (descriptors the job keeps), ``control`` (descriptor of a Unix socket to the judge), ``life``
(descriptor of a pipe whose other end closes when the judge ends), ``uid`` and ``gid`` (or null where bubblewrap has
already set them), ``rlimits`` (name to value).

Dialogue on the control socket, held by the child that becomes the job: it sends one message "ready" with a descriptor
of this sandbox's /proc and the identity of its namespaces; waits for one byte; then either the socket closes (the job
runs) or an error text comes.
"""

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
from typing import Any, NoReturn

PR_SET_DUMPABLE, PR_CAPBSET_READ, PR_CAPBSET_DROP = 4, 23, 24
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
CAPABILITY_VERSION_3 = 0x20080522
COMMAND_NOT_STARTED = 127
HIGHEST_DESCRIPTOR = 1 << 20

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


def become_job(argv: list[str], fds: list[int], control: socket.socket) -> NoReturn:
    """Report ready, wait for the judge's word, and become the job; tell the judge if that fails."""
    proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    namespaces = {name: os.readlink(f"/proc/self/ns/{name}") for name in ("ipc", "mnt", "net", "pid", "uts", "user")}  # noqa: PTH115
    socket.send_fds(control, [json.dumps({"ready": namespaces}).encode()], [proc])
    if control.recv(1) != b"g":  # the judge is gone or refuses
        os._exit(COMMAND_NOT_STARTED)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, the job must find the default
    close_all_but(0, 1, 2, control.fileno(), *fds)
    control.set_inheritable(False)
    try:
        os.execvp(argv[0], argv)  # noqa: S606
    except OSError as error:
        control.send(f"{argv[0]}: {error.strerror}".encode())
    os._exit(COMMAND_NOT_STARTED)


def close_all_but(*kept: int) -> None:
    low = 0
    for fd in [*sorted(kept), HIGHEST_DESCRIPTOR]:
        if low < fd:  # Python takes an empty range at 0 for all descriptors
            os.closerange(low, fd)
        low = fd + 1


def reap(job: int, life: int) -> NoReturn:
    """Collect every orphan; end with the job's own status, or with the judge: the kernel then kills all inside."""
    woken, wake = os.pipe()
    for fd in (woken, wake):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    poll = select.poll()
    poll.register(life, 0)  # hang-up is always reported
    poll.register(woken, select.POLLIN)
    while True:
        while (ended := os.waitpid(-1, os.WNOHANG))[0] != 0:
            if ended[0] == job:
                code = os.waitstatus_to_exitcode(ended[1])
                os._exit(code if code >= 0 else 128 - code)
        if life in dict(poll.poll()):
            os._exit(COMMAND_NOT_STARTED)
        os.read(woken, 4096)


def main() -> NoReturn:
    config: dict[str, Any] = json.loads(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a pid 1 cannot be reached by signals that it does not handle
    set_limits(config["rlimits"])
    drop_privileges(config["uid"], config["gid"])
    prctl(PR_SET_DUMPABLE, 0)
    job = os.fork()
    if job == 0:
        become_job(config["argv"], config["fds"], socket.socket(fileno=config["control"]))
    # Holding nothing else, pid 1 keeps no pipe or socket of the job open. bubblewrap's own way of dying with its
    # parent does not get here: a signal from root without capabilities does not pass to another uid.
    close_all_but(config["life"])
    reap(job, config["life"])


if __name__ == "__main__":
    main()
