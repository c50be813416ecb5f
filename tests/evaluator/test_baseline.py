"""Which baseline the headline is against: the faster one by the judge's own rule, and the choice alone is kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

import pytest

from evaluator.contract import Code, Decision, Interval, Job, Limits
from evaluator.judge import baseline
from evaluator.judge.baseline import Choice, key, source_of, strongest
from evaluator.judge.faults import Fault
from evaluator.judge.voids import Disturbed
from evaluator.targets import target, targets

ALL = ("eager", "compile", "symm_mem")
FASTER = {"compile": 1.2, "symm_mem": 1.5}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def measuring(ratios: dict[str, float], told: list[str]) -> Callable[[str], tuple[Interval, Decision]]:
    def compare(name: str) -> tuple[Interval, Decision]:
        told.append(name)
        ratio = ratios[name]
        decision = Decision.FASTER if ratio > 1.05 else Decision.TIE
        return Interval(estimate=ratio, low=ratio * 0.9, high=ratio * 1.1), decision

    return compare


def test_the_fastest_of_those_that_the_rule_calls_faster_is_chosen() -> None:
    choice = strongest(ALL, "k", measuring(FASTER, []))
    assert (choice.name, choice.eager_over_baseline) == ("symm_mem", 1.5)
    assert "1.20 times as long as under torch.compile (95 % interval 1.08 to 1.32): faster" in choice.note


def test_a_rival_that_may_only_be_faster_is_not_chosen() -> None:
    choice = strongest(ALL, "k", measuring({"compile": 1.04, "symm_mem": 0.5}, []))
    assert (choice.name, choice.eager_over_baseline) == ("eager", 1.0)


def test_the_choice_is_measured_once_on_a_host_for_the_same_versions() -> None:
    told: list[str] = []
    first = strongest(ALL, "k", measuring(FASTER, told))
    assert strongest(ALL, "k", measuring(FASTER, told)) == first
    assert told == ["compile", "symm_mem"]
    strongest(ALL, "other", measuring(FASTER, told))
    assert len(told) == 4


@pytest.mark.parametrize("failure", [Fault(Code.COMPILE_ERROR, "no compiler"), Disturbed("too busy")])
def test_a_baseline_that_does_not_run_is_left_out_with_the_reason_and_tried_again(failure: Exception) -> None:
    def compare(name: str) -> tuple[Interval, Decision]:
        if name == "symm_mem":
            raise failure
        return measuring(FASTER, [])(name)

    choice = strongest(ALL, "k", compare)
    assert choice.name == "compile"
    assert str(failure) in choice.note
    told: list[str] = []
    strongest(ALL, "k", measuring(FASTER, told))
    assert told == ["compile", "symm_mem"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "abacus"}', '{"other": 1}'])
def test_a_record_that_is_cut_off_or_of_another_version_is_measured_anew(text: str) -> None:
    baseline.folder().mkdir(parents=True)
    (baseline.folder() / "k.json").write_text(text)
    assert strongest(ALL, "k", measuring(FASTER, [])).name == "symm_mem"
    assert json.loads((baseline.folder() / "k.json").read_text())["name"] == "symm_mem"


def test_a_choice_holds_for_one_problem_version_target_ranks_software_and_host() -> None:
    usual = {"problem": "d", "target": "t", "world_size": 4, "precision": "bf16", "versions": {"torch": "2.13"}}
    others = [{"problem": "e"}, {"target": "u"}, {"world_size": 8}, {"precision": "fp32"}]
    others += [{"versions": {"torch": "2.14"}}, {"host": "elsewhere"}]
    keys = [key(**{"host": "here", **usual, **other}) for other in [{}, *others]]  # type: ignore[arg-type]
    assert len(set(keys)) == len(keys)


def test_every_baseline_is_python_and_the_eager_one_is_the_reference_itself() -> None:
    source = "from __future__ import annotations\n\n\ndef solution(x):\n    return x\n"
    assert source_of("eager", source) == source
    for name in baseline.TITLES:
        compile(source_of(name, source), name, "exec")
        assert "solution = _torch.compile(solution)" in source_of(name, source)


def test_targets_name_baselines_that_there_are() -> None:
    for entry in targets().values():
        assert entry.baselines[0] == "eager"
        assert set(entry.baselines[1:]) <= set(baseline.TITLES)
    assert target("cpu-gloo").baselines == ("eager",)
    assert Choice().name == "eager"


@pytest.mark.nightly
@pytest.mark.sandbox
def test_torch_compile_as_a_baseline_in_a_real_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Minutes: every launch traces and loads the compiled reference, and the first one builds it."""
    from evaluator.judge import evaluate
    from problems.suite import registry
    from problems.suite.reference import reference_source

    compiling = target("cpu-gloo").model_copy(update={"baselines": ("eager", "compile")})
    monkeypatch.setitem(targets(), "cpu-gloo", compiling)
    job = Job(
        attempt_id=uuid4(),
        problem_id=1,
        target="cpu-gloo",
        world_size=2,
        file_name="kernel.py",
        source=reference_source(registry.find(1)),
        limits=Limits(timing=900, total=1_500),
    )
    report = evaluate(job)
    assert report.code == "correct", report.message
    if report.timing is not None:  # a machine may be too busy to compare anything on it
        assert "torch.compile" in report.timing.baseline_note
        assert report.timing.baseline in ("eager", "compile")
