"""The suite as the command line knows it: entries of the manifest, found by number or name."""

from __future__ import annotations

import difflib
import json
import re
from pathlib import Path
from typing import Any

MANIFEST = Path(__file__).resolve().parents[1] / "problems" / "suite" / "manifest.json"

Entry = dict[str, Any]


class Unknown(Exception):
    """What was asked for does not exist; the message says so and names what is near."""


def entries() -> list[Entry]:
    """All problems, in the order of their numbers."""
    problems: list[Entry] = json.loads(MANIFEST.read_text(encoding="utf-8"))["problems"]
    return sorted(problems, key=lambda entry: int(entry["id"]))


def find(wanted: str, problems: list[Entry]) -> Entry:
    """The problem of that number, slug or alias; "13_gemm_allreduce" counts as its slug. Raises Unknown."""
    text = wanted.strip().lower().replace("-", "_")
    if re.fullmatch(r"[0-9]+", text):
        return _by_number(int(text), problems)
    slug = re.sub(r"^[0-9]+_", "", text)
    for entry in problems:
        if slug == entry["slug"] or slug in entry["aliases"]:
            return entry
    names = {name: entry for entry in problems for name in (entry["slug"], *entry["aliases"])}
    near = (
        difflib.get_close_matches(slug, names, n=3, cutoff=0.5) or [name for name in names if slug and slug in name][:3]
    )
    raise Unknown(f"There is no problem called {wanted!r}.{_suggestion([names[name] for name in near])}")


def _by_number(number: int, problems: list[Entry]) -> Entry:
    for entry in problems:
        if entry["id"] == number:
            return entry
    near = sorted(problems, key=lambda entry: abs(entry["id"] - number))[:3]
    raise Unknown(f"There is no problem {number}.{_suggestion(near)}")


def _suggestion(near: list[Entry]) -> str:
    unique = {entry["id"]: entry for entry in near}
    if not unique:
        return " All of them: ./pkb problems"
    names = " or ".join(f"{entry['id']} {entry['slug']}" for entry in unique.values())
    return f" Did you mean {names}?"
