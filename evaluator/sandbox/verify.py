"""What is really in force around a started job, read from the host's side before the job may run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from evaluator.contract import Isolation
from evaluator.sandbox.cgroup import Cgroup
from evaluator.sandbox.command import NOBODY, Identity
from evaluator.sandbox.policy import GiB, MiB, ResourceLimits, SandboxUnavailable

CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
SECCOMP_FILTER = "2"


def verify_isolation(
    pids: tuple[int, ...],
    identity: Identity,
    namespaces: Mapping[str, str],
    limits: ResourceLimits,
    cgroup: Cgroup | None,
) -> Isolation:
    """Read the processes of a sandbox from outside. Raises SandboxUnavailable where a wall is missing.

    ``pids``: pid 1 inside and the process that becomes the job, from which all others will come. ``namespaces``:
    name to identity, as our own program saw them inside.
    """
    problems = [problem for pid in pids for problem in _privileges(pid, identity)]
    for name, inside in namespaces.items():
        shared = inside == str(Path(f"/proc/self/ns/{name}").readlink())
        if shared and (name != "user" or identity.user_namespace):
            problems.append(f"it shares the {name} namespace of the host")
    if problems:
        raise SandboxUnavailable(
            f"The sandbox is not closed: {', '.join(problems)}.", "Foreign files are not run on this host."
        )
    return Isolation(
        mode="bwrap-user" if identity.user_namespace else "bwrap-root",
        uid=_single_uid(_status(pids[-1])),
        network=True,
        seccomp=True,
        cgroup=cgroup is not None,
        limits=_limits_in_force(pids[-1], limits, cgroup),
    )


def _privileges(pid: int, identity: Identity) -> list[str]:
    """What the process may that it must not."""
    status = _status(pid)
    uid = _single_uid(status)
    problems = [f"{name} is {status.get(name)}" for name in CAPABILITY_SETS if int(status.get(name, "1"), 16) != 0]
    if uid == 0 or (identity.uid is not None and uid != identity.uid):
        problems.append(f"it runs as uid {uid}")
    if identity.user_namespace:
        mapping = Path(f"/proc/{pid}/uid_map").read_text(encoding="ascii").split()
        if len(mapping) != 3 or mapping[0] != str(NOBODY) or mapping[2] != "1":
            problems.append(f"its uid map is {' '.join(mapping)}")
    if identity.uid is not None and status.get("Groups"):
        problems.append(f"it has the groups {status['Groups']}")
    if status.get("NoNewPrivs") != "1":
        problems.append("it may gain privileges")
    if status.get("Seccomp") != SECCOMP_FILTER:
        problems.append("its system calls are not filtered")
    return problems


def _status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _single_uid(status: Mapping[str, str]) -> int:
    """The uid, if real, effective, saved and file system uid are the same; else 0, which no sandbox may have."""
    uids = set(status.get("Uid", "0").split())
    return int(uids.pop()) if len(uids) == 1 else 0


def _limits_in_force(pid: int, limits: ResourceLimits, cgroup: Cgroup | None) -> dict[str, str]:
    """Limit to "value (what enforces it)"."""
    rows = Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines()
    counted = any(row.startswith("Max processes") and row.split()[2] == str(limits.processes + 2) for row in rows)
    controllers = cgroup.controllers if cgroup else ()
    pids, memory = (", cgroup" if name in controllers else "" for name in ("pids", "memory"))
    return {
        "processes": f"{limits.processes} ({'rlimit, ' if counted else ''}watchdog{pids})",
        "memory": f"{limits.memory_bytes / GiB:g} GiB (watchdog{memory})",
        "/dev/shm": f"{limits.shm_bytes / MiB:g} MiB (tmpfs)",  # noqa: S108
        "/tmp": f"{limits.tmp_bytes / MiB:g} MiB (tmpfs)",  # noqa: S108
        "open files": f"{limits.open_files} a process (rlimit)",
        "file size": f"{limits.file_bytes / MiB:g} MiB (rlimit)",
        "output": f"{limits.output_bytes / MiB:g} MiB (watchdog)",
        "stopping": "cgroup" if cgroup else "signals",
    }
