"""From a ``SandboxSpec`` to bubblewrap's arguments, in the order in which bubblewrap applies them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evaluator.sandbox.policy import BASE_ENVIRONMENT, HOME, SANDBOX_NAME, SandboxSpec
from evaluator.sandbox.runtime import (
    CUDA_TREES,
    PROJECT_ROOT,
    SYSTEM_FILES,
    SYSTEM_TREES,
    Runtime,
)

ENTER_TARGET = "/sandbox/enter.py"
ENTER_SOURCE = Path(__file__).with_name("enter.py")
NOBODY = 65534  # uid and gid inside where a user namespace maps them

HIDING_BYTES = 4096  # of the empty tmpfs that covers something

NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--unshare-net")


@dataclass(frozen=True)
class Identity:
    """Who the job is, seen from the host: ``uid`` (None: the user who evaluates), and by which way it gets there.

    Without ``user_namespace`` bubblewrap runs as root and our first process inside switches to ``uid``; with it,
    bubblewrap itself runs as ``uid``, which inside is called nobody.
    """

    uid: int | None
    user_namespace: bool

    @property
    def inner_uid(self) -> int:
        return NOBODY if self.user_namespace or self.uid is None else self.uid


DataFd = Callable[[bytes], int]  # puts bytes into a file that bubblewrap reads, gives its descriptor


class Layout:
    """The file tree of a sandbox as bubblewrap's options, in the order in which it builds them up.

    Folders on the way to a mount are made for everybody to pass: bubblewrap's own would be for its owner alone.
    """

    def __init__(self) -> None:
        self.arguments: list[str] = []
        self._made: set[Path] = {Path("/")}
        self._bound: set[Path] = set()

    def _make_way(self, target: str | Path) -> None:
        for folder in reversed(Path(target).parents):
            if folder not in self._made and not any(folder.is_relative_to(tree) for tree in self._bound):
                self.folder(str(folder), "0755")

    def folder(self, target: str, mode: str) -> None:
        self.arguments += ["--perms", mode, "--dir", target]
        self._made.add(Path(target))

    def bind(self, source: str | Path, target: str | Path, option: str = "--ro-bind") -> None:
        self._make_way(target)
        self._bound.add(Path(target))
        self.arguments += [option, str(source), str(target)]

    def link(self, content: str | Path, target: str | Path) -> None:
        self._make_way(target)
        self.arguments += ["--symlink", str(content), str(target)]

    def text(self, fd: int, target: str, mode: str = "0444") -> None:
        self._make_way(target)
        self.arguments += ["--perms", mode, "--ro-bind-data", str(fd), target]

    def memory(self, target: str | Path, mode: str, size: int) -> None:
        """A tmpfs of at most ``size`` bytes."""
        self._make_way(target)
        self._made.add(Path(target))
        self.arguments += ["--perms", mode, "--size", str(size), "--tmpfs", str(target)]


def bwrap_arguments(spec: SandboxSpec, identity: Identity, runtime: Runtime, data_fd: DataFd) -> list[str]:
    """All options except those that carry descriptors of the launch itself (info, seccomp)."""
    layout = Layout()
    _system(layout, spec, data_fd, identity)
    _kernel_filesystems(layout, spec, data_fd)
    _runtime(layout, runtime)
    _job_binds(layout, spec)
    return [
        *NAMESPACES,
        *_user_options(identity),
        *("--die-with-parent", "--new-session", "--as-pid-1", "--clearenv", "--hostname", SANDBOX_NAME),
        *layout.arguments,
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"),
        *_environment(spec),
    ]


def _user_options(identity: Identity) -> list[str]:
    if not identity.user_namespace:
        return []  # started as root: no user namespace, our first process inside gives up everything
    return ["--unshare-user", "--disable-userns", "--uid", str(NOBODY), "--gid", str(NOBODY)]


def _system(layout: Layout, spec: SandboxSpec, data_fd: DataFd, identity: Identity) -> None:
    for tree in (*SYSTEM_TREES, *(CUDA_TREES if spec.seccomp_profile == "cuda" else ())):
        path = Path(tree)
        if path.is_symlink():
            layout.link(path.readlink(), tree)
        elif path.is_dir():
            layout.bind(tree, tree)
    for file in SYSTEM_FILES:
        if Path(file).exists():
            layout.bind(file, file)
    uid = identity.inner_uid
    made_up = {
        "/etc/passwd": f"{SANDBOX_NAME}:x:{uid}:{uid}::{HOME}:/usr/sbin/nologin\n",
        "/etc/group": f"{SANDBOX_NAME}:x:{uid}:\n",
        "/etc/hosts": f"127.0.0.1 localhost {SANDBOX_NAME}\n::1 localhost\n",
        "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    }
    for path_inside, text in made_up.items():
        layout.text(data_fd(text.encode()), path_inside)


def _kernel_filesystems(layout: Layout, spec: SandboxSpec, data_fd: DataFd) -> None:
    layout.arguments += ["--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"]
    if spec.seccomp_profile == "cpu":  # mapped as shared it is memory in nobody's figures, see seccomp.MMAP
        layout.text(data_fd(b""), "/dev/zero", "0000")
    for device in spec.devices:  # after --dev, which would cover them
        layout.arguments += ["--dev-bind", device, device]
    if spec.seccomp_profile == "cuda":  # the driver enumerates devices there
        layout.bind("/sys", "/sys")
    layout.memory("/tmp", "1777", spec.limits.tmp_bytes)  # noqa: S108
    layout.memory("/dev/shm", "1777", spec.limits.shm_bytes)  # noqa: S108
    layout.folder(HOME, "0777")


def _runtime(layout: Layout, runtime: Runtime) -> None:
    """The interpreter and its packages. The project's own folder is covered in case a tree before it contains it."""
    layout.bind(runtime.prefix, runtime.prefix)
    if any(PROJECT_ROOT.is_relative_to(tree) for tree in (*SYSTEM_TREES, *CUDA_TREES, runtime.prefix)):
        layout.memory(PROJECT_ROOT, "0755", HIDING_BYTES)
    for path in (*runtime.packages, *runtime.files):
        layout.bind(path, path)
    for content, place in runtime.links:
        layout.link(content, place)
    for entry in runtime.hidden:
        if entry.is_dir():
            layout.memory(entry, "0000", HIDING_BYTES)
        else:
            layout.bind(os.devnull, entry)
    layout.bind(ENTER_SOURCE, ENTER_TARGET)


def _job_binds(layout: Layout, spec: SandboxSpec) -> None:
    for bind in spec.binds:
        source = bind.source.resolve()
        if PROJECT_ROOT.is_relative_to(source):
            raise ValueError(f"binding {source} would show the judge's own files to the job")
        layout.bind(source, bind.target, "--bind" if bind.writable else "--ro-bind")


def _environment(spec: SandboxSpec) -> list[str]:
    path = f"{Path(sys.executable).parent}:/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin"
    arguments: list[str] = []
    for name, value in {"PATH": path, **BASE_ENVIRONMENT, **spec.environment}.items():
        arguments += ["--setenv", name, value]
    return arguments
