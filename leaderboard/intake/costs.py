"""What the steps of an agent cost: ``costs.csv``, sent beside the files, with a line for each step on a problem.

    problem,step,cost_usd,cost_tokens
    13,0,0.42,18000

One of the last two columns may be missing, and a value empty. A file is taken whole or not at all: half of it misleads.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from pathlib import PurePosixPath

from leaderboard.intake import names, sources
from leaderboard.intake.findings import Finding, Status, printable, refused
from leaderboard.intake.reading import Entry
from leaderboard.intake.sources import Trouble

FILE_NAME = "costs.csv"
PLACE, AMOUNTS = ("problem", "step"), ("cost_usd", "cost_tokens")
MAX_USD = Decimal(100_000)  # for one step on one problem; whole runs over all problems cost less
MAX_TOKENS = 10**12
SMALLEST_USD = Decimal("0.000001")  # to which dollars are rounded: a call of a small model costs far less than a cent
MAX_NAMED = 10  # wrong lines that are named one by one
_STEP = re.compile(r"[0-9]{1,4}", re.ASCII)  # as many as the names of files take
_TOKENS = re.compile(r"(-?[0-9]+)(?:\.0+)?", re.ASCII)  # tables with gaps are often written with 18000.0

Place = tuple[int, int]
"""Number of the problem, step."""


@dataclass(frozen=True)
class Cost:
    """What a step cost; None where the file does not say."""

    usd: Decimal | None
    tokens: int | None


class _WrongLine(ValueError):
    """A line that cannot be used; the text is the sentence about it, without its number."""


def is_costs(path: str) -> bool:
    """Whether a file of an upload holds costs, and is no kernel."""
    return PurePosixPath(path.replace("\\", "/")).name.lower() == FILE_NAME


def assign(entries: Sequence[Entry], findings: Sequence[Finding], catalogue: names.Catalogue) -> list[Finding]:
    """``findings`` with what they cost, and one more for each file of costs. A wrong one harms no kernel."""
    places = {_place(finding) for finding in findings if _may_cost(finding)}
    known: dict[Place, Cost] = {}
    about_files = []
    for entry in entries:
        taken = _read(entry, places, known, catalogue)
        if isinstance(taken, Finding):
            about_files.append(taken)
            continue
        known |= taken
        sentence = f"Says what {len(taken)} step{'s' if len(taken) > 1 else ''} cost."
        about_files.append(Finding(printable(entry.path), Status.USED, "costs", sentence, size=len(entry.data)))
    priced = [_priced(finding, known) if _may_cost(finding) else finding for finding in findings]
    gaps = tuple(_gaps(priced))
    return [*priced, *(replace(f, warnings=gaps) if f.status is Status.USED else f for f in about_files)]


def _may_cost(finding: Finding) -> bool:
    """Runs with samples have no steps, so their files have no place that a line could name."""
    return finding.status is Status.ACCEPTED and finding.sample == 0


def _place(finding: Finding) -> Place:
    return finding.problem or 0, finding.step


def _priced(finding: Finding, known: Mapping[Place, Cost]) -> Finding:
    cost = known.get(_place(finding))
    return replace(finding, cost_usd=cost.usd, cost_tokens=cost.tokens) if cost else finding


def _gaps(findings: Sequence[Finding]) -> Iterator[str]:
    accepted = [finding for finding in findings if finding.status is Status.ACCEPTED]
    for name, unit in zip(AMOUNTS, ("US dollars", "tokens"), strict=True):
        without = [finding for finding in accepted if getattr(finding, name) is None]
        if 0 < len(without) < len(accepted):
            first = min(without, key=lambda finding: (finding.step, finding.problem))
            yield (
                f"{len(without)} of {len(accepted)} files have no cost in {unit}, first problem {first.problem} in "
                f"step {first.step}: the curve of costs ends before that step."
            )


def _read(
    entry: Entry, places: set[Place], known: Mapping[Place, Cost], catalogue: names.Catalogue
) -> dict[Place, Cost] | Finding:
    """The costs that a file gives, at least one; or why it is refused, with up to ``MAX_NAMED`` of its wrong lines."""
    text = sources.text_of(entry.data)
    if isinstance(text, Trouble):
        return refused(entry.path, text.code, text.sentence, line=text.line, size=len(entry.data))
    found: dict[Place, Cost] = {}
    wrong: list[tuple[int, str]] = []
    try:
        for number, row in _rows(text.text):
            try:
                place, cost = _line(row, catalogue)
                _check_place(place, places, {**known, **found})
            except _WrongLine as error:
                wrong.append((number, f"Line {number}: {error}"))
            else:
                found[place] = cost
    except (csv.Error, _WrongLine) as error:
        return refused(entry.path, "costs_columns", f"No table of costs: {error}", size=len(entry.data))
    if wrong:
        return _refused_lines(entry, wrong)
    if not found:
        return refused(entry.path, "costs_empty", "It names its columns, but no step.", size=len(entry.data))
    return found


def _refused_lines(entry: Entry, wrong: Sequence[tuple[int, str]]) -> Finding:
    (line, first), *others = wrong
    named = [sentence for _, sentence in others[: MAX_NAMED - 1]]
    if len(wrong) > MAX_NAMED:
        named.append(f"{len(wrong) - MAX_NAMED} more lines are wrong.")
    sentence = f"{first} None of its costs was taken."
    return refused(entry.path, "costs_line", sentence, line=line, size=len(entry.data), warnings=tuple(named))


def _rows(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Number of each line and its values by column. Raises ``_WrongLine`` if the columns are others, ``csv.Error``."""
    lines = csv.reader(io.StringIO(text, newline=""), strict=True)
    head = [name.strip().lower() for name in next(lines, [])]
    fits = len(set(head)) == len(head) and set(PLACE) < set(head) <= {*PLACE, *AMOUNTS}
    if not fits:
        wanted, has = ",".join((*PLACE, *AMOUNTS)), printable(",".join(head), 100)
        raise _WrongLine(f"its first line must be {wanted} (one of the last two may be missing), but is {has}.")
    for values in lines:
        if any(value.strip() for value in values):
            # Values beyond the columns and columns without a value are both told by the line itself.
            row = dict(zip(head, (value.strip() for value in values), strict=False))
            yield lines.line_num, row if len(values) == len(head) else {}


def _line(row: Mapping[str, str], catalogue: names.Catalogue) -> tuple[Place, Cost]:
    if not row:
        raise _WrongLine("it does not have one value for each column. Write 1234.5, not 1,234.5.")
    problem = catalogue.match(names.parse(f"{row['problem']}.py")).problem
    if problem is None:
        raise _WrongLine(f"{_quoted(row['problem'])} is no problem of this suite; give its number or its name.")
    if not _STEP.fullmatch(row["step"]):
        raise _WrongLine(f"the step {_quoted(row['step'])} is not a whole number from 0 to 9999.")
    cost = Cost(_usd(row.get("cost_usd", "")), _tokens(row.get("cost_tokens", "")))
    return (problem.number, int(row["step"])), cost


def _check_place(place: Place, places: set[Place], known: Mapping[Place, Cost]) -> None:
    problem, step = place
    if place not in places:
        raise _WrongLine(f"no accepted file of this upload answers problem {problem} in step {step}.")
    if place in known:
        raise _WrongLine(f"the cost of problem {problem} in step {step} was given before; give it once.")


def _usd(text: str) -> Decimal | None:
    if not text:
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite():
        raise _WrongLine(f"cost_usd is {_quoted(text)}, which is not a number. Write US dollars such as 0.0123.")
    if value < 0:
        raise _WrongLine(f"cost_usd is {_quoted(text)}; a cost is not negative. Leave it empty where it is not known.")
    if value > MAX_USD:
        raise _WrongLine(
            f"cost_usd is {_quoted(text)}; the limit for one step on one problem is {MAX_USD:,} US dollars."
        )
    return abs(value.quantize(SMALLEST_USD))


def _tokens(text: str) -> int | None:
    if not text:
        return None
    whole = _TOKENS.fullmatch(text)
    if whole is None:
        raise _WrongLine(f"cost_tokens is {_quoted(text)}, which is not a whole number. Write tokens such as 18000.")
    if text.startswith("-"):
        raise _WrongLine(
            f"cost_tokens is {_quoted(text)}; a cost is not negative. Leave it empty where it is not known."
        )
    if len(whole[1]) > len(str(MAX_TOKENS)) or int(whole[1]) > MAX_TOKENS:
        raise _WrongLine(f"cost_tokens is {_quoted(text)}; the limit for one step on one problem is {MAX_TOKENS:,}.")
    return int(whole[1])


def _quoted(text: str) -> str:
    return f"“{printable(text, 40)}”"
