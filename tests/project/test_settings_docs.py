"""docs/operations.md lists every setting with its default and its sentence, as the code has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from evaluator.worker.settings import WorkerSettings
from pkbsite import environment, processes

MANUAL = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text()


def web_rows() -> list[str]:
    return [_row(setting.name, setting.default, setting.sentence) for setting in environment.SETTINGS]


def worker_rows() -> list[str]:
    rows = []
    for field in WorkerSettings.model_fields.values():
        assert field.alias
        assert field.description
        # The judge's default holds the path of the interpreter that runs.
        default = "python -m evaluator judge" if field.alias == "PKB_JUDGE" else field.default
        rows.append(_row(field.alias, "" if field.is_required() else str(default), field.description))
    return rows


def _row(name: str, default: str, sentence: str) -> str:
    return f"| `{name}` | {f'`{default}`' if default else ''} | {sentence} |".replace("|  |", "| |")


@pytest.mark.parametrize(("part", "rows"), [("Web host", web_rows()), ("GPU host", worker_rows())])
def test_the_manual_lists_the_settings(part: str, rows: list[str]) -> None:
    section = re.search(rf"^### {part}\n(.*?)(?=^#)", MANUAL, re.MULTILINE | re.DOTALL)
    assert section is not None
    written = [line for line in section[1].splitlines() if line.startswith("| `")]
    assert written == rows, "the table must read:\n" + "\n".join(rows)


def test_every_variable_of_a_process_is_a_setting_of_its_side() -> None:
    web = set(environment.BY_NAME)
    worker = {field.alias for field in WorkerSettings.model_fields.values()}
    for process in processes.PROCESSES:
        assert set(process.environment) <= (web if process.role == "web" else worker), process.name


def test_links_within_the_documents_lead_somewhere() -> None:
    root = Path(__file__).resolve().parents[2]
    for document in [root / "README.md", root / "CONTRIBUTING.md", *(root / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
