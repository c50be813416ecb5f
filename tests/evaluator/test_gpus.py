"""What the judge makes of the driver's tool: states, slowdowns, and memory that a job has left behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator import gpus
from evaluator.gpus import ClockLog, GpusUnavailable, MiB, left_behind, parse

LINE = "0, NVIDIA H200, 580.159.03, 9.0, 143771, 4, 1980, 1980, 41, 0x0000000000000000"


def test_states_are_read_in_order_of_their_numbers() -> None:
    first, second = parse(f"{LINE.replace('0, NV', '1, NV', 1)}\n{LINE}\n")
    assert (first.index, second.index) == (0, 1)
    assert (first.name, first.capability) == ("NVIDIA H200", "9.0")
    assert first.memory_bytes == 143771 * MiB
    assert first.slowed_by == ()


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        ("0x0000000000000001", ()),  # idle
        ("0x0000000000000002", ()),  # an application's clocks
        ("0x0000000000000004", ("power cap",)),
        ("0x0000000000000068", ("hardware slowdown", "software thermal slowdown", "hardware thermal slowdown")),
        ("[N/A]", ()),
    ],
)
def test_only_what_slows_a_gpu_counts(mask: str, words: tuple[str, ...]) -> None:
    (gpu,) = parse(LINE.replace("0x0000000000000000", mask))
    assert gpu.slowed_by == words


def test_machines_that_hide_their_clocks_are_no_error() -> None:
    (gpu,) = parse(LINE.replace("1980", "[N/A]"))
    assert gpu.sm_clock == 0


@pytest.mark.parametrize("text", ["No devices were found", LINE + ", 7", LINE.replace("143771", "much")])
def test_an_unknown_answer_is_said_to_be_one(text: str) -> None:
    with pytest.raises(GpusUnavailable, match="unknown way"):
        parse(text)


def test_the_tool_itself_missing_failing_or_answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GpusUnavailable, match="no nvidia-smi"):
        gpus.read()
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho the driver is gone >&2\nexit 9\n")
    tool.chmod(0o755)
    with pytest.raises(GpusUnavailable, match="the driver is gone"):
        gpus.read()
    tool.write_text(f"#!/bin/sh\necho '{LINE}'\n")
    assert len(gpus.read()) == 1


def test_slowdowns_and_wandering_clocks_are_told_per_gpu() -> None:
    (calm,) = parse(LINE)
    hot = replace(calm, slowed_by=("power cap",), sm_clock=1500)
    assert ClockLog(((calm,), (calm,))).warnings == ()
    assert ClockLog(((calm,), (hot,))).warnings == (
        "GPU 0 was slowed down in 1 of 2 looks: power cap.",
        "The clock of GPU 0 wandered between 1500 and 1980 MHz.",
    )


def nobody(numbers: Sequence[int]) -> tuple[str, ...]:
    return ()


def test_memory_may_come_back_late_but_not_never() -> None:
    (before,) = parse(LINE)
    full = replace(before, used_bytes=before.used_bytes + 900 * MiB)
    slept: list[float] = []
    answers = iter([[full], [full], [before]])
    assert left_behind([before], lambda: next(answers), nobody, sleep=slept.append) == ""
    assert len(slept) == 2
    left = left_behind([before], lambda: [full], nobody, seconds=1, sleep=slept.append)
    assert left == "900 MiB on GPU 0 are in use 1 s after the job has ended."
    assert left_behind([before], lambda: [], nobody) == "The driver does not list GPU 0 any more."


def test_processes_may_go_late_but_must_go() -> None:
    (before,) = parse(LINE)
    slept: list[float] = []
    answers: Iterator[tuple[str, ...]] = iter([("4711 (python)",), ()])
    assert left_behind([before], lambda: [before], lambda _: next(answers), sleep=slept.append) == ""
    assert len(slept) == 1
    left = left_behind([before], lambda: [before], lambda _: ("4711 (python)",), seconds=0, sleep=slept.append)
    assert left == "Process 4711 (python) uses a GPU although no job runs."
    assert len(slept) == 1
