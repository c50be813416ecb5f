"""docs/feedback.md says what there is: every code, every field, and examples that are real reports."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from evaluator import cli
from evaluator.contract import CaseResult, Code, PhaseResult, RankResult, Report

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "feedback.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```json (\w+)\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def first_cells(heading: str) -> set[str]:
    """What stands in code marks in the first column of the table whose head begins with ``heading``."""
    table = TEXT[TEXT.index(f"| {heading} |") :].partition("\n\n")[0]
    return {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def test_every_code_has_its_row_with_what_to_do_and_no_other_is_named() -> None:
    assert first_cells("code") == set(Code)


def test_every_field_of_a_report_has_its_row_and_no_other_is_named() -> None:
    assert first_cells("field") == set(Report.model_fields)


@pytest.mark.parametrize("model", [RankResult, CaseResult, PhaseResult])
def test_fields_of_parts_are_named_where_the_part_is(model: type) -> None:
    missing = [name for name in model.model_fields if f"`{name}`" not in TEXT]  # type: ignore[attr-defined]
    assert missing in ([], ["rank"])


@pytest.mark.parametrize(("name", "text"), EXAMPLES, ids=[name for name, _ in EXAMPLES])
def test_an_example_is_a_part_of_a_report_on_a_file_of_the_tests(name: str, text: str) -> None:
    example = json.loads(text)
    assert example.keys() <= Report.model_fields.keys()
    for rank in example["ranks"]:
        assert rank.keys() <= RankResult.model_fields.keys()
        RankResult.model_validate(rank)
    assert [PhaseResult.model_validate(phase).status for phase in example["phases"]] == ["failed"]
    source = (ROOT / "tests" / "evaluator" / "kernels" / f"{name}.py").read_text(encoding="utf-8")
    expected = re.search(r"^# expect: (.+)$", source, re.MULTILINE)
    assert expected is not None and re.fullmatch(expected.group(1), example["code"])
    assert re.fullmatch(r"[0-9a-f]{12}", example["failure_id"])


def test_the_document_has_examples() -> None:
    assert len(EXAMPLES) >= 3


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["properties"].keys() == Report.model_fields.keys()
    assert schema["additionalProperties"] is False
