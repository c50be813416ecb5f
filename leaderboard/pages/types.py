"""The types of parallelism as pages show them: in a fixed order, each with its letters."""

from __future__ import annotations

from collections.abc import Iterable

from leaderboard.charts import TypeShare
from leaderboard.models import TypeScore
from problems.models import Type

LETTERS: dict[str, str] = {
    Type.COLLECTIVE: "Co",
    Type.TENSOR: "Te",
    Type.SEQUENCE: "Se",
    Type.CONTEXT: "Cx",
    Type.EXPERT: "Ex",
    Type.DATA: "Da",
    Type.SHARDED_DATA: "Sh",
    Type.PIPELINE: "Pi",
    Type.SPATIAL: "Sp",
    Type.EMBEDDING: "Em",
    Type.GRAPH: "Gr",
}


def heads() -> list[tuple[str, str]]:
    """(letters, label) of every type in order, for the head of a strip."""
    return [(LETTERS[value], label) for value, label in Type.choices]


def shares(rows: Iterable[TypeScore], view: str = TypeScore.View.PRIMARY) -> list[TypeShare]:
    """One share a type, in order, from the rows of the view; types without a row have no problem."""
    by_type = {row.type: row for row in rows if row.view == view}
    return [_share(value, label, by_type.get(value)) for value, label in Type.choices]


def _share(value: str, label: str, row: TypeScore | None) -> TypeShare:
    return TypeShare(value, LETTERS[value], label, row.correct if row else 0, row.problems if row else 0)


def legend() -> list[tuple[str, str, str]]:
    """(letters, label, slug) of every type in order."""
    return [(LETTERS[value], label, value) for value, label in Type.choices]
