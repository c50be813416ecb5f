"""Looks into files: text or not, Python or not. Never imports or runs them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PARSER = Path(__file__).with_name("parser_process.py")
PARSER_SECONDS = 30.0  # of wall clock for one parser process
PARSER_STARTS = 4  # processes for one upload; a source that kills its parser costs one
_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)", re.ASCII)  # as PEP 263 has it
_UTF8 = {"utf-8", "utf8", "utf-8-sig"}


@dataclass(frozen=True)
class Text:
    """A file that is text: with what it is, byte-order mark removed."""

    text: str
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trouble:
    """Why a file is refused, with its place if it has one; lines and columns count from 1."""

    code: str
    sentence: str
    line: int | None = None
    column: int | None = None


def decode(path: str, data: bytes) -> Text | Trouble:
    """The file's text, or why it is none that Python could read."""
    if not path.lower().endswith(".py"):
        return Trouble("not_python_name", "Not a Python file: its name does not end in .py.")
    found = text_of(data)
    if isinstance(found, Trouble):
        return found
    for number, start in enumerate(found.text.split("\n", 2)[:2], start=1):
        cookie = _COOKIE.match(start)
        if cookie and cookie[1].lower().replace("_", "-") not in _UTF8:
            sentence = f"Line {number} declares the encoding {cookie[1]}; files must be UTF-8. Remove that line."
            return Trouble("not_utf8", sentence, number)
    return found


def text_of(data: bytes) -> Text | Trouble:
    """``data`` as text in UTF-8, or why it is none."""
    if not data.strip():
        return Trouble("empty", "The file is empty.")
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return Trouble("not_utf8", "The file is encoded as UTF-16; save it as UTF-8.")
    if b"\0" in data:
        line = data[: data.index(b"\0")].count(b"\n") + 1
        return Trouble("binary", f"The file is not text: line {line} holds a zero byte.", line)
    warnings = ()
    if data.startswith(b"\xef\xbb\xbf"):
        data, warnings = data[3:], ("The byte-order mark at its start was removed.",)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        sentence = f"Not encoded as UTF-8: byte 0x{data[error.start]:02x} in line {line}. Save it as UTF-8."
        return Trouble("not_utf8", sentence, line)
    return Text(text, warnings)


def parse(sources: Sequence[str]) -> list[Trouble | None]:
    """For each source None, or why it is not a Python file that defines ``solution``.

    Parsing happens in another process with limits of memory and time: there are short sources that exhaust either.
    """
    results: list[Trouble | None] = []
    for _ in range(PARSER_STARTS):
        answers = _ask_parser(sources[len(results) :])
        results.extend(_trouble(answer) for answer in answers)
        if len(results) == len(sources):
            return results
        # The parser died or hung at the first source that it did not answer for.
        results.append(Trouble("unparsable", "The file cannot be parsed within 2 GB and 20 seconds; simplify it."))
    rest = Trouble("not_looked_at", "Not looked at: other files of this upload cannot be parsed. Send it without them.")
    return results + [rest] * (len(sources) - len(results))


def _ask_parser(sources: Sequence[str]) -> list[dict[str, object]]:
    if not sources:
        return []
    command = [sys.executable, "-I", "-S", "-W", "ignore", str(PARSER)]
    try:
        done = subprocess.run(
            command, input=json.dumps(list(sources)).encode(), capture_output=True, timeout=PARSER_SECONDS, check=False
        )
        output = done.stdout
    except subprocess.TimeoutExpired as hung:
        output = hung.stdout or b""
    lines = output.split(b"\n")[:-1]  # what follows the last newline is not complete
    return [json.loads(line) for line in lines]


def _trouble(answer: dict[str, object]) -> Trouble | None:
    if answer.get("missing"):
        return Trouble("no_solution", "The file defines no `solution`; a submission must define solution(...).")
    if "error" not in answer:
        return None
    line, column = answer["line"], answer["column"]
    assert isinstance(line, int | None) and isinstance(column, int | None)
    place = f" in line {line}, column {column}" if line is not None else ""
    return Trouble("syntax_error", f"Not valid Python{place}: {answer['error']}.", line, column)
