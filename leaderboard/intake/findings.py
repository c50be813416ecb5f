"""What intake says of each file: one finding, with a sentence for people and a code for programs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any


class Status(StrEnum):
    """``accepted`` files become submissions, ``used`` ones say something of those, ``refused`` ones need a remedy,
    ``ignored`` ones were never meant."""

    ACCEPTED = "accepted"
    USED = "used"
    REFUSED = "refused"
    IGNORED = "ignored"


@dataclass(frozen=True)
class Finding:
    """One file as it was found. ``path`` is as sent, made printable; ``line`` and ``column`` count from 1.

    ``problem`` is the number of the problem that the file answers, where one was found. ``warnings`` are further
    sentences. Costs are those of the step, None where they were not given.
    """

    path: str
    status: Status
    code: str
    sentence: str
    problem: int | None = None
    slug: str = ""
    title: str = ""
    sample: int = 0
    step: int = 0
    backend: str = ""
    file_name: str = ""
    sha256: str = ""
    size: int | None = None
    line: int | None = None
    column: int | None = None
    warnings: tuple[str, ...] = ()
    cost_usd: Decimal | None = None
    cost_tokens: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data, as ``Upload.findings`` keeps it."""
        cost_usd = None if self.cost_usd is None else str(self.cost_usd)
        plain = {"status": self.status.value, "warnings": list(self.warnings), "cost_usd": cost_usd}
        return {**dataclasses.asdict(self), **plain}


def refused(path: str, code: str, sentence: str, **fields: Any) -> Finding:
    return Finding(printable(path), Status.REFUSED, code, sentence, **fields)


def ignored(path: str, code: str, sentence: str) -> Finding:
    return Finding(printable(path), Status.IGNORED, code, sentence)


def printable(text: str, limit: int = 300) -> str:
    """``text`` without control characters and what no database stores; shortened in the middle beyond ``limit``."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return clean if len(clean) <= limit else f"{clean[: limit // 2]}…{clean[-limit // 2 + 1 :]}"


def size_text(size: int) -> str:
    """Bytes for people: 12 bytes, 3.4 kB, 1.2 MB (decimal)."""
    if size < 1_000:
        return f"{size} bytes"
    return f"{size / 1_000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"
