"""Malformed results from the sandbox's side: whatever a rank or the fork server sends ends in a verdict.

A few hundred are tried in ./test. Ten thousand, with

    python -m pytest tests/evaluator/test_malformed.py -m "nightly or not nightly"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluator.contract import Code, Job, Phase, Report
from evaluator.judge import diagnosis
from evaluator.judge.checks import RankSnapshot, check
from evaluator.judge.diagnosis import fault_of
from evaluator.judge.faults import Fault
from evaluator.judge.frames import TensorNode, parse_structure
from evaluator.judge.launch import Launch
from evaluator.judge.record import Record
from evaluator.judge.soak import Soak
from evaluator.judge.structure import tensors
from evaluator.judge.trials import OUTPUT_SLACK, Ring, Trial, TrialResult, draw, run
from evaluator.judge.verdict import case_result, fault_of_trials, note_errors
from evaluator.runner.wire import BadFrame
from problems.suite import registry
from problems.suite.base import Case
from tests.evaluator.forger import ForgedArm, right

RANKS = 2
PROBLEM = registry.get(1)
CASE = Case("public", RANKS, torch.float32, {"M": 3, "N": 4})
QUIET = {"deadline": None, "suppress_health_check": list(HealthCheck)}
FEW, MANY = settings(max_examples=150, **QUIET), settings(max_examples=5_000, **QUIET)

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
DTYPES = ["float32", "float64", "bfloat16", "float16", "int64", "bool", "complex64", "float8_e4m3fn", "uint8", "quint8"]
SHAPES = [[3, 4], [12], [4, 3], [3, 5], [], [0], [2**39, 2**39], [-1], [1] * 17]
TENSOR = st.fixed_dictionaries(
    {
        "t": st.just("tensor"),
        "dtype": st.sampled_from(DTYPES) | JSON,
        "shape": st.sampled_from(SHAPES) | JSON,
        "class": st.just("torch.Tensor") | JSON,
        "device": st.sampled_from(["cpu", "cuda:0", "meta"]) | JSON,
        "layout": st.sampled_from(["strided", "sparse_coo"]) | JSON,
        "overlap": st.booleans() | JSON,
        "extra": st.booleans() | JSON,
        "alias": st.none() | st.integers(-(2**70), 2**70) | JSON,
    }
)
RIGHT_TENSOR = {
    "t": "tensor",
    "dtype": "float32",
    "shape": [3, 4],
    "class": "torch.Tensor",
    "device": "cpu",
    "layout": "strided",
    "overlap": False,
    "extra": False,
    "alias": None,
}
NODE = st.recursive(
    TENSOR
    | st.fixed_dictionaries({"t": st.sampled_from(["value", "float", "other", "what"]), "v": SCALARS, "words": JSON}),
    lambda inner: st.fixed_dictionaries(
        {
            "t": st.sampled_from(["list", "tuple", "size", "dict"]),
            "items": st.lists(inner | st.lists(inner, max_size=3), max_size=3) | JSON,
        }
    ),
    max_leaves=6,
)
OUTPUT = st.just(RIGHT_TENSOR) | TENSOR | NODE | JSON


@pytest.fixture(scope="module")
def trial() -> Trial:
    return draw(PROBLEM, "public 1", CASE, [])


def reported(trial: Trial, result: TrialResult) -> Report:
    """The report on a trial: its models refuse numbers that no report may hold."""
    job = Job(attempt_id=uuid4(), problem_id=1, target="cpu-gloo", world_size=RANKS, file_name="x.py", source="pass")
    record = Record(job, lambda progress: None)
    record.cases.append(case_result(result))
    note_errors(record.ranks, result)
    fault = fault_of_trials(PROBLEM, [result], record.ranks)
    if fault is not None:
        with record.phase(Phase.TRIALS):
            pass
        record.fail(fault)
    return record.report()


# Descriptions of an output, with any bytes behind them.


def judge_of_descriptions(trial: Trial, described: list[Any], content: bytes) -> None:
    region = (content or b"\0") * 4096
    snapshots = []
    for description in described:
        try:
            node = parse_structure(description, 2048)
        except BadFrame:
            return
        values = tuple(None if n.offset is None else read(region, n) for n in tensors(node))
        snapshots.append(RankSnapshot(node, values, (), {}, ("",) * len(values)))
    result = TrialResult(trial, check(PROBLEM, CASE, trial.expected, snapshots))
    assert reported(trial, result).code in Code


def read(region: bytes, node: TensorNode) -> torch.Tensor:
    assert node.offset is not None
    raw = torch.frombuffer(bytearray(region), dtype=torch.uint8)[node.offset : node.offset + node.nbytes].clone()
    return raw.view(node.dtype).view(node.shape) if node.nbytes else torch.empty(node.shape, dtype=node.dtype)


DESCRIPTIONS = given(described=st.lists(OUTPUT, min_size=RANKS, max_size=RANKS), content=st.binary(max_size=64))


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")  # said once by torch of an empty quantised tensor
@DESCRIPTIONS
@FEW
def test_descriptions_end_in_a_verdict(trial: Trial, described: list[Any], content: bytes) -> None:
    judge_of_descriptions(trial, described, content)


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
@DESCRIPTIONS
@MANY
def test_thousands_of_descriptions_end_in_a_verdict(trial: Trial, described: list[Any], content: bytes) -> None:
    judge_of_descriptions(trial, described, content)


# Packets at the judge's sockets.

Forgery = Callable[[dict[str, Any]], list[bytes | None]]


def told(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()[: 2**17]


def honest(output: Any) -> Forgery:
    return lambda message: [told(right(message, output))]


def fields(changes: dict[str, Any], output: Any) -> Forgery:
    return lambda message: [told(right(message, output) | changes)]


def without(field: str) -> Forgery:
    return lambda message: [told({k: v for k, v in right(message, RIGHT_TENSOR).items() if k != field})]


def raw(packets: list[bytes]) -> Forgery:
    return lambda message: list(packets)


def twice(output: Any) -> Forgery:
    return lambda message: [told(right(message, output))] * 2


def error(values: dict[str, Any]) -> Forgery:
    return lambda message: [
        told({"is": "error", "nonce": message.get("nonce", ""), "type": "E", "message": "", "traceback": ""} | values)
    ]


def gone(message: dict[str, Any]) -> list[bytes | None]:
    return [None]


FIELDS = ["is", "nonce", "output", "seconds", "rank", "status", "launch", "type", "message", "traceback", "errno"]
KINDS = ["up", "exit", "initialised", "compiled", "ready", "prepared", "done", "error", "cleared", "recorded"]
CHANGES = st.dictionaries(st.sampled_from(FIELDS), JSON | st.sampled_from(KINDS), min_size=1, max_size=3)
FORGERY = st.one_of(
    st.builds(honest, OUTPUT),
    st.builds(fields, CHANGES, OUTPUT),
    st.builds(without, st.sampled_from(FIELDS)),
    st.builds(raw, st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=3)),
    st.builds(twice, OUTPUT),
    st.builds(error, st.dictionaries(st.sampled_from(["type", "message", "traceback", "errno"]), JSON, max_size=4)),
    st.just(gone),
)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing else is coming from a forger, so it need not be waited for."""
    for name in ("OTHERS_SECONDS", "EXIT_SECONDS", "DUMP_SECONDS", "CPU_SECONDS"):
        monkeypatch.setattr(diagnosis, name, 0.001)
    monkeypatch.setattr("evaluator.judge.launch.SETTLE_SECONDS", 0.0)
    monkeypatch.setattr("evaluator.judge.soak.LONGEST_SKEW", 0.0)
    yield


def judge_of_packets(trial: Trial, forged: list[Forgery]) -> Report | Fault:
    """A whole launch against a forger; its honest answers end where the list of forgeries does not."""
    waiting = iter(forged)

    def reply(message: dict[str, Any]) -> list[bytes | None]:
        return next(waiting, honest(RIGHT_TENSOR))(message)

    arm = ForgedArm(RANKS, reply)
    sizes = {"source_bytes": 2 * trial.input_bytes, "target_bytes": 2 * trial.output_bytes + OUTPUT_SLACK}
    try:
        with Launch(arm, [], **sizes, diagnose=fault_of) as launch:
            launch.load(["tensor"], 1.0)
            result = run(PROBLEM, trial, launch, Ring(sizes["source_bytes"]), 1.0, Phase.TRIALS)
        return reported(trial, result)
    except Fault as fault:
        assert fault.message
        assert fault.failure_id
        return fault
    finally:
        arm.stop()


PACKETS = given(
    st.lists(st.integers(0, 9).flatmap(lambda n: FORGERY if n < 4 else st.just(honest(RIGHT_TENSOR))), max_size=12)
)


@PACKETS
@FEW
def test_packets_end_in_a_verdict(trial: Trial, impatient: None, forged: list[Forgery]) -> None:
    assert judge_of_packets(trial, forged).code in Code


@pytest.mark.nightly
@PACKETS
@MANY
def test_thousands_of_packets_end_in_a_verdict(trial: Trial, impatient: None, forged: list[Forgery]) -> None:
    assert judge_of_packets(trial, forged).code in Code


@PACKETS
@settings(max_examples=40, **QUIET)
def test_packets_in_calls_back_to_back_end_in_a_verdict(trial: Trial, impatient: None, forged: list[Forgery]) -> None:
    """The same where ranks are not waited for together, see judge.soak."""
    waiting = iter([*[honest(RIGHT_TENSOR)] * (3 * RANKS), *forged])
    arm = ForgedArm(RANKS, lambda message: next(waiting, honest(RIGHT_TENSOR))(message))
    sizes = {"source_bytes": 2 * trial.input_bytes, "target_bytes": 2 * trial.output_bytes + OUTPUT_SLACK}
    try:
        with Launch(arm, [], **sizes, diagnose=fault_of) as launch:
            launch.load(["tensor"], 1.0)
            other = draw(PROBLEM, "public 2", CASE, [])
            found = Soak(launch, PROBLEM, [trial, other], call_seconds=1.0, limit=1.0).run()
        assert found.wrong is not None
        assert reported(trial, found.wrong).code in Code
    except Fault as fault:
        assert fault.failure_id
    finally:
        arm.stop()


def test_the_forger_can_be_honest(trial: Trial, impatient: None) -> None:
    """Else the tests above would never come further than the first message."""
    report = judge_of_packets(trial, [])
    assert isinstance(report, Report)
    assert report.code is Code.WRONG_VALUES
    assert "output" in report.message


@pytest.mark.parametrize(
    ("forgery", "code"),
    [
        (raw([b"\x80\x04\x95pickle."]), Code.INTEGRITY),
        (fields({"nonce": "0" * 16}, RIGHT_TENSOR), Code.INTEGRITY),
        (fields({"seconds": -1e300}, RIGHT_TENSOR), Code.INTEGRITY),
        (twice(RIGHT_TENSOR), Code.INTEGRITY),
        (honest({**RIGHT_TENSOR, "shape": [2**30, 2**9]}), Code.INTEGRITY),
        (honest({"t": "list", "items": [RIGHT_TENSOR] * 500}), Code.INTEGRITY),
        (error({"errno": None, "traceback": "x" * 8_000}), Code.RUNTIME_ERROR),
        (gone, Code.RUNTIME_ERROR),
    ],
)
def test_forgeries_of_a_call_get_their_code(trial: Trial, impatient: None, forgery: Forgery, code: Code) -> None:
    honest_until_the_call = [honest(RIGHT_TENSOR)] * (4 * RANKS)
    assert judge_of_packets(trial, [*honest_until_the_call, forgery]).code is code
