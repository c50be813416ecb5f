"""docs/integrity.md and the kernels say the same: every row is there, every file is in its rows, no file is missing."""

from __future__ import annotations

import re
from pathlib import Path

KERNELS = Path(__file__).parent / "kernels"
TABLE = (Path(__file__).parents[2] / "docs" / "integrity.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (C\d\d) \|.*\|([^|]+)\|([^|]+)\|$", re.MULTILINE)
ELSEWHERE = ("needs a GPU", "not the judge's", "see ")


def rows() -> dict[str, list[str]]:
    """Row of the table -> its files; none where it is said why."""
    found = {}
    for name, _, files in ROW.findall(TABLE):
        text = files.strip()
        found[name] = [] if text.startswith(ELSEWHERE) else text.split(", ")
    return found


def headers() -> dict[str, list[str]]:
    """Kernel -> the rows that its first lines name."""
    found = {}
    for path in KERNELS.glob("*.py"):
        match = re.search(r"^# row: (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
        if match:
            found[path.stem] = match[1].split()
    return found


def test_the_table_has_every_row_once() -> None:
    names = [name for name, _, _ in ROW.findall(TABLE)]
    assert names == [f"C{number:02}" for number in range(1, 64)]


def test_table_and_kernels_name_each_other() -> None:
    in_table = {(row, file) for row, files in rows().items() for file in files}
    in_kernels = {(row, file) for file, named in headers().items() for row in named}
    assert in_table - in_kernels == set(), "in the table, but not in the kernel's header"
    assert in_kernels - in_table == set(), "in a kernel's header, but not in the table"


def test_the_code_of_a_row_is_one_that_its_kernels_expect() -> None:
    codes = {name: set(re.findall(r"`(\w+)`", text)) for name, text, _ in ROW.findall(TABLE)}
    for row, files in rows().items():
        for file in files:
            source = (KERNELS / f"{file}.py").read_text(encoding="utf-8")
            expected = re.search(r"^# expect: (.+)$", source, re.MULTILINE)
            assert expected is not None
            wanted = set(expected[1].split("|"))
            harmless = wanted == {"correct"}  # a twin, or an attempt without effect
            assert harmless or not codes[row] or wanted & codes[row], (row, file, wanted)
