"""Extensions that a submission builds: one compiler run for all ranks of a job, and errors that can be read.

Ranks that call ``torch.utils.cpp_extension.load_inline`` or ``load`` with the same arguments take turns: the first
builds, the others load its object. A build that failed fails in the others at once, with the same words. What the
first launch has built is kept for later ones by the fork server (``zygote``); nothing goes from one job to another.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

MODULE = "torch.utils.cpp_extension"
BUILDERS = ("load_inline", "load")
INFLUENCES = ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CPATH", "CUDA_HOME", "TORCH_CUDA_ARCH_LIST", "NVCC_FLAGS")
"""Variables that change what a compiler makes."""

MAX_ERRORS = 3
CONTEXT_LINES = 4
MAX_WORDS = 1_700  # of a build error; the judge takes 2,000 characters of a message
_ERROR = re.compile(r"\berror\b|^FAILED:|\bundefined reference\b|ptxas fatal|nvcc fatal", re.IGNORECASE)
_PREFIX = re.compile(r"^(?:Error building extension '[^']*': )+")
_FOLDER = re.compile(r"[\w./-]*/torch_extensions/[\w.-]+/")
_NOISE = re.compile(r"^\[\d+/\d+\] |^ninja: |^FAILED: |^/\S+/(?:nvcc|c\+\+|g\+\+|clang\+\+) |^(?:c\+\+|g\+\+|nvcc) ")


class Hook(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads ``torch.utils.cpp_extension`` as it is and then puts the builders here in the place of its own."""

    def __init__(self) -> None:
        self._spec: importlib.machinery.ModuleSpec | None = None

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        self._spec = importlib.util.find_spec(name)
        return importlib.util.spec_from_loader(name, self, origin=self._spec.origin if self._spec else None)

    def exec_module(self, module: ModuleType) -> None:
        assert self._spec is not None and self._spec.loader is not None
        module.__file__ = self._spec.origin
        module.__spec__ = self._spec
        self._spec.loader.exec_module(module)
        share(module)


def hook() -> None:
    """From now on extensions are built in turns. To be called in each rank before the submission is imported."""
    if MODULE in sys.modules:
        share(sys.modules[MODULE])
    else:
        sys.meta_path.insert(0, Hook())


def share(module: Any) -> None:
    """Replaces the builders of the module by ones that take turns."""
    for name in BUILDERS:
        setattr(module, name, _in_turn(getattr(module, name), module))


def _in_turn(build: Callable[..., Any], cpp_extension: Any) -> Callable[..., Any]:
    @functools.wraps(build)
    def builder(name: str, *args: Any, **options: Any) -> Any:
        root = Path(os.environ["TORCH_EXTENSIONS_DIR"])
        root.mkdir(parents=True, exist_ok=True)
        known = root / f".{key_of(build.__name__, name, args, options)}.json"
        with _turn(root / ".turn"):
            if known.exists():
                return _known(known, cpp_extension)
            try:
                module = build(name, *args, **options)
            except RuntimeError as error:
                words = f"Error building extension {name!r}: {condensed(str(error))}"
                known.write_text(json.dumps({"error": words}))
                raise RuntimeError(words) from None
            place = getattr(module, "__file__", None)
            if isinstance(module, ModuleType) and place:
                known.write_text(json.dumps({"name": module.__name__, "folder": str(Path(place).parent)}))
            return module

    return builder


def _known(record: Path, cpp_extension: Any) -> Any:
    """What another rank has built: its object, or its error."""
    built = json.loads(record.read_text())
    if "error" in built:
        raise RuntimeError(built["error"])
    return cpp_extension._import_module_from_library(built["name"], built["folder"], True)


def key_of(builder: str, name: str, args: tuple[Any, ...], options: dict[str, Any]) -> str:
    """sha256 over everything that a rank hands to the builder and to the compilers."""
    environment = {variable: os.environ.get(variable) for variable in INFLUENCES}
    text = repr((builder, name, args, sorted(options.items(), key=lambda item: item[0]), environment))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


@contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Waits for the other ranks of this machine. The lock of a process that is gone is gone with it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def condensed(output: str) -> str:
    """The first errors of a compiler with the lines below them, without command lines and ninja's own messages."""
    told = _FOLDER.sub("", _PREFIX.sub("", output)).splitlines()
    lines = [line.rstrip() for line in told if line.strip() and not _NOISE.match(line)]
    places = [place for place, line in enumerate(lines) if _ERROR.search(line)][:MAX_ERRORS]
    kept: list[str] = []
    end = 0
    for place in places:
        kept += lines[max(place, end) : place + CONTEXT_LINES]
        end = place + CONTEXT_LINES
    text = "\n".join(kept or lines[-2 * CONTEXT_LINES :])
    return text if len(text) <= MAX_WORDS else text[: MAX_WORDS - 1] + "…"
