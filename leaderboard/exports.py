"""The rows of a board as files: CSV, JSON and Parquet of exactly what is selected. docs/exports.md describes them.

All are written while they are sent, a few hundred rows at a time, so that their size does not matter to the server.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from django.conf import settings
from django.urls import reverse

from evaluator.contract import PROTOCOL_VERSION
from leaderboard import scoring
from leaderboard.models import TypeScore
from leaderboard.pages.board import Board, Row
from leaderboard.scoring import ProblemOutcome

FORMAT = 1
CHUNK = 200  # rows read and written at a time

# Columns of every format, in their order, with their types. Shares are in 0..1, speedups are ratios.
FLAT = pa.schema(
    [
        ("rank", pa.int64()),
        ("rank_low", pa.int64()),
        ("rank_high", pa.int64()),
        ("model", pa.string()),
        ("organisation", pa.string()),
        ("open_weights", pa.bool_()),
        ("team", pa.string()),
        ("run", pa.string()),
        ("evaluation", pa.string()),
        ("baseline", pa.bool_()),
        ("track", pa.string()),
        ("backend", pa.string()),
        ("precision", pa.string()),
        ("provenance", pa.string()),
        ("target", pa.string()),
        ("suite", pa.string()),
        ("protocol", pa.string()),
        ("problems", pa.int64()),
        ("correct", pa.int64()),
        ("correctness_rate", pa.float64()),
        ("correctness_low", pa.float64()),
        ("correctness_high", pa.float64()),
        ("faster", pa.int64()),
        ("fast_1", pa.float64()),
        ("speedup", pa.float64()),
        ("speedup_low", pa.float64()),
        ("speedup_high", pa.float64()),
        ("speedup_correct_only", pa.float64()),
        ("utilisation", pa.float64()),
        ("compatible_correct", pa.int64()),
        ("compatible_faster", pa.int64()),
        ("compatible_speedup", pa.float64()),
        ("cost_usd", pa.float64()),
        ("cost_tokens", pa.int64()),
        ("submitted_at", pa.string()),
        ("scored_at", pa.string()),
        ("scoring", pa.string()),
    ]
)
OUTCOME = pa.struct(
    [
        ("problem", pa.int64()),
        ("code", pa.string()),
        ("decision", pa.string()),
        ("speedup", pa.float64()),
        ("counts", pa.bool_()),
        ("low", pa.float64()),
        ("utilisation", pa.float64()),
        ("compatible_correct", pa.bool_()),
        ("compatible_speedup", pa.float64()),
        ("samples", pa.int64()),
        ("correct_samples", pa.int64()),
        ("faster_samples", pa.int64()),
        ("standing", pa.string()),
    ]
)
NESTED = FLAT.append(pa.field("outcomes", pa.list_(OUTCOME)))


@dataclass(frozen=True)
class Writer:
    content_type: str
    stream: Callable[[Board], Iterator[bytes]]


def rows(board: Board) -> Iterator[list[Row]]:
    """Baselines first, then every row of the board in its order, in portions."""
    baselines = board.baselines()
    if baselines:
        yield baselines
    for start in range(0, len(board.order), CHUNK):
        yield board.rows(start, start + CHUNK)


def flat(row: Row) -> dict[str, Any]:
    """The columns of ``FLAT``, of the whole suite or of the part that is selected, as the page shows them."""
    score, run, evaluation, shown, place = row.score, row.run, row.score.evaluation, row.shown, row.place
    return {
        "rank": place and place.rank,
        "rank_low": place and place.low,
        "rank_high": place and place.high,
        "model": run.model.public_name,
        "organisation": run.model.public_organisation,
        "open_weights": run.model.open_weights,
        "team": run.team.name,
        "run": run.public_id,
        "evaluation": evaluation.public_id,
        "baseline": run.model.is_baseline,
        "track": run.track,
        "backend": run.backend,
        "precision": run.precision,
        "provenance": run.provenance,
        "target": evaluation.target.name,
        "suite": evaluation.suite.version,
        "protocol": evaluation.protocol_version,
        "problems": shown.problems,
        "correct": shown.correct,
        "correctness_rate": shown.rate,
        "correctness_low": shown.low,
        "correctness_high": shown.high,
        "faster": shown.faster,
        "fast_1": shown.fast_1,
        "speedup": shown.speedup,
        "speedup_low": shown.speedup_low,
        "speedup_high": shown.speedup_high,
        "speedup_correct_only": shown.speedup_correct_only,
        "utilisation": shown.utilisation,
        "compatible_correct": shown.compatible_correct,
        "compatible_faster": shown.compatible_faster,
        "compatible_speedup": shown.compatible_speedup,
        "cost_usd": None if run.cost_usd is None else float(run.cost_usd),
        "cost_tokens": run.cost_tokens,
        "submitted_at": run.created_at.isoformat(),
        "scored_at": score.updated_at.isoformat(),
        "scoring": score.scoring_version,
    }


def nested(row: Row) -> dict[str, Any]:
    """``flat``, and what every figure of the row comes from."""
    return {**flat(row), "outcomes": [{"problem": n, **parts._asdict()} for n, parts in _vector(row).items()]}


def full(row: Row) -> dict[str, Any]:
    """``nested``, and the figures that do not fit into one column: curves, pass@k, by type."""
    by_type: dict[str, list[dict[str, Any]]] = {view: [] for view in TypeScore.View.values}
    for score in row.score.types.all():
        by_type[score.view].append({name: getattr(score, name) for name in _TYPE_FIELDS})
    return {
        **nested(row),
        "fast_p": row.score.fast_p,
        "pass_at_k": row.score.pass_at_k,
        "fast_1_at_k": row.score.fast_1_at_k,
        "by_primary_type": by_type[TypeScore.View.PRIMARY],
        "by_every_type": by_type[TypeScore.View.ALSO],
    }


_TYPE_FIELDS = (
    "type",
    "problems",
    "correct",
    "faster",
    "correctness_rate",
    "fast_1",
    "speedup",
    "speedup_correct_only",
    "utilisation",
)


def _vector(row: Row) -> dict[int, ProblemOutcome]:
    return dict(sorted(row.score.vector.items()))


def csv_stream(board: Board) -> Iterator[bytes]:
    """One line a row; empty where there is no value."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, FLAT.names, lineterminator="\n")
    writer.writeheader()
    yield _drain(buffer)
    for portion in rows(board):
        writer.writerows(flat(row) for row in portion)
        yield _drain(buffer)


def json_stream(board: Board) -> Iterator[bytes]:
    """One object: what was selected, the problems of the suite, and the rows."""
    head = json.dumps(_head(board), ensure_ascii=False)
    yield f'{head[:-1]}, "rows": ['.encode()
    separator = "\n"
    for portion in rows(board):
        for row in portion:
            yield (separator + json.dumps(full(row), ensure_ascii=False)).encode()
            separator = ",\n"
    yield b"\n]}\n"


def parquet_stream(board: Board) -> Iterator[bytes]:
    """One row group a portion; the head of the JSON export stands in the metadata under ``pkb``."""
    sink = io.BytesIO()
    schema = NESTED.with_metadata({"pkb": json.dumps(_head(board), ensure_ascii=False)})
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for portion in rows(board):
            writer.write_table(pa.Table.from_pylist([nested(row) for row in portion], schema=schema))
            yield _drain_bytes(sink)
    yield _drain_bytes(sink)


def _head(board: Board) -> dict[str, Any]:
    selection = board.selection
    return {
        "format": FORMAT,
        "address": f"{settings.SITE_URL}{reverse('leaderboard')}?{selection.query(page=1)}",
        "as_of": board.as_of and board.as_of.isoformat(),
        "scoring": scoring.SCORING_VERSION,
        "protocol": PROTOCOL_VERSION,
        "rule": scoring.RANKING_RULE,
        "scope": sorted(board.scope.numbers),
        "problems": [
            {"number": p.number, "slug": p.slug, "type": p.type, "also": p.also, "difficulty": p.difficulty}
            for p in board.problems
        ],
    }


def _drain(buffer: io.StringIO) -> bytes:
    text = buffer.getvalue()
    buffer.seek(0)
    buffer.truncate()
    return text.encode()


def _drain_bytes(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data


WRITERS = {
    "csv": Writer("text/csv; charset=utf-8", csv_stream),
    "json": Writer("application/json", json_stream),
    "parquet": Writer("application/vnd.apache.parquet", parquet_stream),
}
