"""What crosses the border between judge and sandbox: bytes and small JSON, and never a seed or an expected value."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from evaluator.contract import Phase
from evaluator.judge import trials
from evaluator.judge.diagnosis import fault_of
from evaluator.judge.launch import Launch
from evaluator.judge.trials import OUTPUT_SLACK, Ring, draw, run
from problems.suite import registry
from problems.suite.base import Case
from tests.evaluator.forger import ForgedArm, right

RANKS = 4
PROBLEM = registry.get(13)
SEED = 0x1122334455667788
EVALUATOR = Path(__file__).parents[2] / "evaluator"
ROOMS = ("judge", "runner", "sandbox", "worker")
UNPICKLERS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "multiprocessing"}


def test_nothing_is_unpickled_anywhere() -> None:
    """Neither by a module that does so nor by torch.load, in all that talks to a sandbox or lives in one."""
    found = []
    for path in (path for room in ROOMS for path in (EVALUATOR / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            found += [f"{path.name}: {name}" for name in names if name.partition(".")[0] in UNPICKLERS]
            if isinstance(node, ast.Attribute) and node.attr == "load" and ast.unparse(node.value) == "torch":
                found.append(f"{path.name}: torch.load")
    assert found == []


def test_a_candidate_is_told_places_and_shapes_and_gets_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """All messages of a trial, and all memory that a rank shares with the judge, while it is called."""
    monkeypatch.setattr(trials, "new_seed", lambda: SEED)
    monkeypatch.setattr("evaluator.judge.launch.SETTLE_SECONDS", 0.0)
    case = Case("hidden", RANKS, torch.float32, {"M": 8, "N": 12}, kind="hidden", property="secret property")
    trial = draw(PROBLEM, "hidden", case, [])
    told: list[dict[str, Any]] = []
    shared: list[bytes] = []

    def reply(message: dict[str, Any]) -> list[bytes | None]:
        told.append(message)
        if message["do"] == "call":
            shared.extend(bytes(end.source.map) + bytes(end.target.map) for end in launch.ends)
        nothing = {"t": "value", "v": None}
        return [json.dumps(right(message, nothing), separators=(",", ":")).encode()]

    arm = ForgedArm(RANKS, reply)
    sizes = {"source_bytes": 2 * trial.input_bytes, "target_bytes": 2 * trial.output_bytes + OUTPUT_SLACK}
    try:
        with Launch(arm, [], **sizes, diagnose=fault_of) as launch:
            launch.load(["A_local", "B_local"], 10.0)
            run(PROBLEM, trial, launch, Ring(sizes["source_bytes"]), 10.0, Phase.TRIALS)
    finally:
        arm.stop()

    text = json.dumps(told)
    assert str(SEED) not in text
    assert f"{SEED:x}" not in text
    assert "secret property" not in text
    assert "hidden" not in text
    fields = {"do", "nonce", "arguments", "perturb", "folders", "keep", "built"}
    assert {name for message in told for name in message} <= fields
    memory = b"".join(shared)
    assert SEED.to_bytes(8, "little") not in memory
    assert SEED.to_bytes(8, "big") not in memory
    expected = trial.expected[0].output.value
    for dtype in (torch.float32, torch.float64):
        row = expected[0].to(dtype).contiguous().view(torch.uint8)
        assert bytes(row.tolist()) not in memory


def test_each_rank_is_sent_its_own_bytes_only() -> None:
    """The regions are separate, and what lies in one is the arguments of that rank."""
    trial = draw(PROBLEM, "public", Case("public", RANKS, torch.float32, {"M": 8, "N": 12}), [])
    pieces = [[bytes(piece.data.tolist()) for piece in rank.pieces] for rank in trial.encoded]
    assert len({piece for rank in pieces for piece in rank}) == 2 * RANKS, "all inputs differ"
    for rank, encoded in enumerate(trial.encoded):
        mine = trial.arguments[rank]
        for piece in encoded.pieces:
            assert torch.equal(piece.data, mine[piece.name].contiguous().view(-1).view(torch.uint8))


def test_every_step_has_a_number_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that was prepared beforehand, or kept from an earlier call, answers nothing."""
    monkeypatch.setattr("evaluator.judge.launch.SETTLE_SECONDS", 0.0)
    trial = draw(PROBLEM, "public", Case("public", RANKS, torch.float32, {"M": 8, "N": 12}), [])
    nonces: list[str] = []

    def reply(message: dict[str, Any]) -> list[bytes | None]:
        nonces.append(message["nonce"])
        return [json.dumps(right(message, {"t": "value", "v": None}), separators=(",", ":")).encode()]

    arm = ForgedArm(RANKS, reply)
    sizes = {"source_bytes": 2 * trial.input_bytes, "target_bytes": 2 * trial.output_bytes + OUTPUT_SLACK}
    try:
        with Launch(arm, [], **sizes, diagnose=fault_of) as launch:
            launch.load(["A_local", "B_local"], 10.0)
            for _ in range(3):
                run(PROBLEM, trial, launch, Ring(sizes["source_bytes"]), 10.0, Phase.TRIALS)
    finally:
        arm.stop()
    steps = 3 + 3 * 3 + 1  # compile, import, ready; three calls of prepare, call, again; clear
    assert len(set(nonces)) == steps
    assert all(len(nonce) == 16 for nonce in nonces)
