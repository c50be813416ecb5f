"""Wrong, imprecise, or rounded otherwise than the reference: told apart in bf16 and fp32.

The kernel is a product whose parts are summed over the ranks (problem 13); its work is done here as ranks would do it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from evaluator.contract import Code
from evaluator.judge.checks import RankCheck, RankSnapshot, check, publicly_refused
from evaluator.judge.faults import RankState
from evaluator.judge.frames import TensorNode
from evaluator.judge.trials import Trial, TrialResult, draw
from evaluator.judge.verdict import fault_of_trials
from problems.suite import registry
from problems.suite.base import Case, Problem

RANKS = 4
PROBLEM = registry.get(13)
BF16, FP32 = torch.bfloat16, torch.float32
Parts = list[torch.Tensor]


@pytest.fixture(scope="module", params=[BF16, FP32], ids=["bf16", "fp32"])
def trial(request: pytest.FixtureRequest) -> Trial:
    return trial_in(request.param)


def trial_in(dtype: torch.dtype) -> Trial:
    case = Case("public", RANKS, dtype, {"M": 256, "N": 128})
    return draw(PROBLEM, "public 1", case, [])


def parts(trial: Trial, change: Callable[[torch.Tensor], torch.Tensor] = lambda x: x) -> Parts:
    """Every rank's product, accumulated in float32; ``change`` comes over the inputs first."""
    return [change(a["A_local"]).float() @ change(a["B_local"]).float() for a in trial.arguments]


def checks_of(trial: Trial, total: torch.Tensor, problem: Problem = PROBLEM) -> list[RankCheck]:
    """The checks of a call in which every rank delivered ``total``, in the run's dtype."""
    value = total.to(trial.case.dtype)
    node = TensorNode(value.dtype, tuple(value.shape), "torch.Tensor", "cpu", "strided", False, False, None, 0)
    snapshot = RankSnapshot(node, (value,), (), {}, ("",))
    return check(problem, trial.case, trial.expected, [snapshot] * RANKS)


def verdict(trial: Trial, total: torch.Tensor) -> tuple[Code, str]:
    result = TrialResult(trial, checks_of(trial, total))
    fault = fault_of_trials(PROBLEM, [result], [RankState(rank) for rank in range(RANKS)])
    return (Code.CORRECT, "") if fault is None else (fault.code, fault.message)


def summed(stored: Parts, dtype: torch.dtype) -> torch.Tensor:
    """A sum over the ranks that is stored in ``dtype`` after every step, as a ring does it."""
    total = stored[0].to(dtype)
    for part in stored[1:]:
        total = (total.float() + part.to(dtype).float()).to(dtype)
    return total


def test_other_orders_of_summation_are_correct(trial: Trial) -> None:
    whole = parts(trial)
    for order in (whole, whole[::-1], [whole[2], whole[0], whole[3], whole[1]]):
        assert verdict(trial, summed(order, trial.case.dtype))[0] is Code.CORRECT


def test_rounding_that_only_the_public_rule_refuses_is_correct() -> None:
    """In bf16 a sum in a ring's order and one in float32 are apart by more than 1e-2 in few elements, near zero."""
    problem = registry.get(1)
    trial = draw(problem, "public 1", Case("public", RANKS, BF16, {"M": 512, "N": 256}), [])
    arguments = [{"tensor": 8 * a["tensor"]} for a in trial.arguments]  # sums with a standard deviation of about 8
    trial = replace(trial, arguments=arguments, expected=problem.oracle(trial.case, arguments))
    stored = [a["tensor"].float() for a in arguments]
    ring, exact = (checks_of(trial, total, problem) for total in (summed(stored, BF16), torch.stack(stored).sum(0)))
    assert all(one.passed for one in [*ring, *exact])
    assert 1e-5 < publicly_refused(ring, exact) < 5e-2
    assert publicly_refused(ring, ring) == 0.0


def cut_to(bits: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """Float32 with that many bits of mantissa, cut and not rounded."""
    return lambda x: (x.float().view(torch.int32) >> (23 - bits) << (23 - bits)).view(torch.float32)


def float8(x: torch.Tensor) -> torch.Tensor:
    return x.float().to(torch.float8_e4m3fn).float()


@pytest.mark.parametrize(
    ("dtype", "change", "name"),
    [
        (FP32, cut_to(10), "TF32 or float16"),
        (FP32, lambda x: x.half().float(), "TF32 or float16"),
        (FP32, lambda x: x.bfloat16().float(), "bfloat16"),
        (BF16, float8, "float8"),
    ],
    ids=["tf32", "fp16", "bf16", "fp8"],
)
def test_lower_precision_of_the_inputs_is_imprecise(
    dtype: torch.dtype, change: Callable[[torch.Tensor], torch.Tensor], name: str
) -> None:
    trial = trial_in(dtype)
    code, message = verdict(trial, torch.stack(parts(trial, change)).sum(0))
    assert code is Code.IMPRECISE, message
    assert f"arithmetic in {name} gives" in message


@pytest.mark.parametrize(("dtype", "lower"), [(FP32, torch.float16), (FP32, BF16), (BF16, torch.float8_e4m3fn)])
def test_a_narrower_wire_is_imprecise(dtype: torch.dtype, lower: torch.dtype) -> None:
    trial = trial_in(dtype)
    scale = max(float(part.abs().max()) for part in parts(trial)) / 400  # into the range of float8
    sent = [(part / scale).to(lower).float() * scale for part in parts(trial)]
    code, message = verdict(trial, torch.stack(sent).sum(0))
    assert code is Code.IMPRECISE, message


@pytest.mark.parametrize("count", [1, 8, 64])
def test_missing_rows_are_wrong_and_never_imprecise(trial: Trial, count: int) -> None:
    total = torch.stack(parts(trial)).sum(0)
    total[-count:] = parts(trial)[0][-count:]
    code, message = verdict(trial, total)
    assert code is Code.WRONG_VALUES
    assert "rows" in message or "elements" in message or "tail" in message


def test_a_missing_slice_of_the_inner_dimension_is_wrong(trial: Trial) -> None:
    """One of 32 slices: the error is everywhere, but far larger than rounding gives."""
    cut = trial.arguments[0]["A_local"].shape[1] // 32
    total = torch.stack([a["A_local"][:, cut:].float() @ a["B_local"][cut:].float() for a in trial.arguments]).sum(0)
    assert verdict(trial, total)[0] is Code.WRONG_VALUES


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_missing_share_is_wrong(trial: Trial, rank: int) -> None:
    total = torch.stack([part for other, part in enumerate(parts(trial)) if other != rank]).sum(0)
    code, message = verdict(trial, total)
    assert code is Code.WRONG_VALUES
    assert f"exactly rank {rank}'s share missing" in message
