"""The files that may be evaluated where no sandbox can be made: those of the folder ``demo`` of this project.

Shared by both sides, like the contract: the site refuses other files at the preview, the judge refuses them again.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "demo"
SETTING = "PKB_ONLY_DEMONSTRATION"
REFUSAL = (
    "This site runs on a machine that cannot put walls around foreign code (user namespaces are forbidden there), so "
    "it evaluates only the demonstration files that come with it. docs/operations.md says how to allow user namespaces."
)


def only() -> bool:
    """True if the operator, or ./run for want of a sandbox, restricted this host to the demonstration files."""
    return os.environ.get(SETTING, "").lower() in {"1", "yes", "true", "on"}


@cache
def digests() -> frozenset[str]:
    """sha256 of every demonstration file; empty where the folder was not installed (GPU hosts)."""
    return frozenset(hashlib.sha256(file.read_bytes()).hexdigest() for file in FOLDER.rglob("*.py"))


def is_demonstration(source: str) -> bool:
    """True if the text is, byte for byte, one of the demonstration files."""
    return hashlib.sha256(source.encode()).hexdigest() in digests()
