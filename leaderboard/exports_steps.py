"""The steps of an agentic run as files: CSV, JSON and Parquet of what its charts show. See docs/exports.md."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from django.conf import settings
from django.urls import reverse

from leaderboard import profiles
from leaderboard.exports import FORMAT
from leaderboard.models import EvaluationScore

# Columns of every format, in the order of ``profiles.Step``.
COLUMNS = pa.schema(
    [
        ("step", pa.int64()),
        ("answered", pa.int64()),
        ("correct", pa.int64()),
        ("faster", pa.int64()),
        ("ever_correct", pa.int64()),
        ("ever_faster", pa.int64()),
        ("cost_usd", pa.float64()),
        ("cost_tokens", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Writer:
    content_type: str
    write: Callable[[EvaluationScore], bytes]


def rows(score: EvaluationScore) -> list[dict[str, Any]]:
    """One row a step, in their order."""
    return [step._asdict() for step in profiles.steps(score.profile)]


def as_csv(score: EvaluationScore) -> bytes:
    """One line a step; empty where there is no value."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, COLUMNS.names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(score))
    return buffer.getvalue().encode()


def as_json(score: EvaluationScore) -> bytes:
    """One object: what the steps are of, and ``steps``."""
    return json.dumps({**_head(score), "steps": rows(score)}, ensure_ascii=False).encode()


def as_parquet(score: EvaluationScore) -> bytes:
    """The steps; the head of the JSON export stands in the metadata under ``pkb``."""
    schema = COLUMNS.with_metadata({"pkb": json.dumps(_head(score), ensure_ascii=False)})
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows(score), schema=schema), sink, compression="zstd")
    return sink.getvalue()


def _head(score: EvaluationScore) -> dict[str, Any]:
    evaluation, run = score.evaluation, score.evaluation.run
    return {
        "format": FORMAT,
        "address": f"{settings.SITE_URL}{reverse('run', args=[run.public_id])}?on={evaluation.public_id}",
        "run": run.public_id,
        "evaluation": evaluation.public_id,
        "model": run.model.public_name,
        "target": evaluation.target.name,
        "suite": evaluation.suite.version,
        "protocol": evaluation.protocol_version,
        "scoring": score.scoring_version,
        "scored_at": score.updated_at.isoformat(),
        "problems": score.problems,
        "cost_usd": None if run.cost_usd is None else float(run.cost_usd),
        "cost_tokens": run.cost_tokens,
    }


WRITERS = {
    "csv": Writer("text/csv; charset=utf-8", as_csv),
    "json": Writer("application/json", as_json),
    "parquet": Writer("application/vnd.apache.parquet", as_parquet),
}
