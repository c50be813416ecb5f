"""What a wrong result looks like: places, a missing share, a lower precision, the output of an earlier call."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.judge.checks import RankCheck
from evaluator.judge.frames import TensorNode
from evaluator.judge.mistakes import earlier_output, explain, missing_share, mixed_calls
from evaluator.judge.patterns import describe_mask, lower_precision
from evaluator.judge.structure import Pair
from evaluator.judge.trials import Trial, TrialResult, draw
from problems.suite import registry
from problems.suite.base import Problem
from problems.suite.compare import compare

RANKS = 4


@pytest.fixture(scope="module")
def problem() -> Problem:
    return registry.get(13)


@pytest.fixture(scope="module")
def trial(problem: Problem) -> Trial:
    case = problem.public_case(world_size=RANKS, dtype=torch.float32, device="cpu")
    return draw(problem, "public 1", case, [])


def delivered(problem: Problem, trial: Trial, outputs: list[torch.Tensor]) -> list[RankCheck]:
    """The checks of a call that delivered these outputs, one per rank."""
    checks = []
    for rank, value in enumerate(outputs):
        leaf = trial.expected[rank].output
        node = TensorNode(value.dtype, tuple(value.shape), "torch.Tensor", "cpu", "strided", False, False, None, 0)
        comparison = compare(leaf, value, problem.tolerance(trial.case.dtype))
        checks.append(RankCheck(rank, compared=[(Pair("output", leaf, node), value, comparison)]))
    return checks


def products(trial: Trial) -> list[torch.Tensor]:
    return [a["A_local"] @ a["B_local"] for a in trial.arguments]


def mask(shape: tuple[int, ...], mark: Callable[[torch.Tensor], None]) -> torch.Tensor:
    bad = torch.zeros(shape, dtype=torch.bool)
    mark(bad)
    return bad


def rows(bad: torch.Tensor) -> None:
    bad[128:192] = True


def two_blocks_of_columns(bad: torch.Tensor) -> None:
    bad[:, 3:5] = True
    bad[:, 9] = True


def tail(bad: torch.Tensor) -> None:
    bad[4096:] = True


def middle(bad: torch.Tensor) -> None:
    bad[10:20] = True


def few(bad: torch.Tensor) -> None:
    bad[::97] = True


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (torch.ones(4, 4, dtype=torch.bool), "everything"),
        (torch.ones((), dtype=torch.bool), "the value"),
        (mask((256, 8), rows), "rows 128-191 of 256"),
        (mask((4, 12), two_blocks_of_columns), "columns 3-4, 9 of 12"),
        (mask((5000,), tail), "tail after element 4096 of 5000"),
        (mask((100,), middle), "elements 10-19 of 100"),
        (mask((1000,), few), "11 of 1000 elements, scattered"),
        (~mask((1000,), few), "nearly everything"),
    ],
)
def test_places_in_words(bad: torch.Tensor, words: str) -> None:
    assert describe_mask(bad) == words


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (mask((256, 8), lambda bad: bad[192:].fill_(True)), "rows 192-255 of 256, those of rank 3"),
        (mask((256, 8), lambda bad: bad[64:192].fill_(True)), "rows 64-191 of 256, those of ranks 1, 2"),
        (mask((4, 12), lambda bad: bad[:, 0:3].fill_(True)), "columns 0-2 of 12, those of rank 0"),
        (mask((256, 8), lambda bad: bad[190:].fill_(True)), "rows 190-255 of 256"),
        (mask((255, 8), lambda bad: bad[192:].fill_(True)), "rows 192-254 of 255"),
    ],
)
def test_blocks_are_said_to_be_their_ranks(bad: torch.Tensor, words: str) -> None:
    assert describe_mask(bad, RANKS) == words


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.data())
def test_every_mask_has_words(shape: list[int], data: st.DataObject) -> None:
    count = int(torch.tensor(shape).prod())
    flags = data.draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any))
    assert describe_mask(torch.tensor(flags).view(shape))


@pytest.mark.parametrize("missing", range(RANKS))
def test_a_missing_share_is_named(problem: Problem, trial: Trial, missing: int) -> None:
    parts = products(trial)
    total = torch.stack([part for rank, part in enumerate(parts) if rank != missing]).sum(0)
    checks = delivered(problem, trial, [total] * RANKS)
    found = missing_share(problem, trial.case, trial.arguments, checks)
    assert found == dict.fromkeys(range(RANKS), f"exactly rank {missing}'s share missing")


def test_ranks_that_only_see_themselves_are_told_so(problem: Problem, trial: Trial) -> None:
    checks = delivered(problem, trial, products(trial))
    found = missing_share(problem, trial.case, trial.arguments, checks)
    assert found == dict.fromkeys(range(RANKS), "only this rank's own share present")


@pytest.mark.parametrize("twice", range(RANKS))
def test_a_share_counted_twice_is_named(problem: Problem, trial: Trial, twice: int) -> None:
    parts = products(trial)
    checks = delivered(problem, trial, [torch.stack([*parts, parts[twice]]).sum(0)] * RANKS)
    found = missing_share(problem, trial.case, trial.arguments, checks)
    assert found == dict.fromkeys(range(RANKS), f"rank {twice}'s share counted twice")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda total: total / RANKS, "the expected values divided by the number of ranks"),
        (lambda total: total * RANKS, "the expected values times the number of ranks"),
        (lambda total: -total, "the sign is reversed"),
        (lambda total: total * 0.75, "everything is 0.75 times the expected value"),
        (lambda total: total.roll(1, 0), "shifted by one row down"),
        (lambda total: total.roll(-1, 1), "shifted by one column up"),
        (lambda total: total.T, "transposed"),  # the shape is square
        (
            lambda total: torch.cat([total.chunk(RANKS)[i] for i in (1, 0, 2, 3)]),
            "the blocks of rows by rank stand in the order 1, 0, 2, 3",
        ),
    ],
)
def test_rearranged_results_are_recognised(
    problem: Problem, trial: Trial, change: Callable[[torch.Tensor], torch.Tensor], words: str
) -> None:
    checks = delivered(problem, trial, [change(torch.stack(products(trial)).sum(0))] * RANKS)
    assert explain(problem, trial, checks) == dict.fromkeys(range(RANKS), words)


def test_column_major_order_is_recognised() -> None:
    problem = registry.get(1)
    case = replace(problem.public_case(world_size=RANKS, dtype=torch.float32, device="cpu"), sizes={"M": 24, "N": 32})
    trial = draw(problem, "public 1", case, [])
    total = torch.stack([a["tensor"] for a in trial.arguments]).sum(0)
    found = explain(problem, trial, delivered(problem, trial, [total.T.reshape(24, 32)] * RANKS))
    assert found == dict.fromkeys(range(RANKS), "the expected elements in column-major order")


def test_outputs_that_went_to_the_wrong_rank_are_recognised() -> None:
    problem = registry.get(7)
    trial = draw(problem, "public 1", problem.public_case(world_size=RANKS, dtype=torch.float32, device="cpu"), [])
    right = [expected.output.value.float() for expected in trial.expected]
    turned = explain(problem, trial, delivered(problem, trial, [*right[1:], right[0]]))
    assert turned == {
        rank: f"the output of rank {(rank + 1) % RANKS}; all outputs are shifted by 1 rank" for rank in range(RANKS)
    }
    swapped = explain(problem, trial, delivered(problem, trial, [right[1], right[0], *right[2:]])[:2])
    assert swapped == {0: "the output of rank 1", 1: "the output of rank 0"}


@pytest.mark.parametrize(
    ("early", "words"), [(True, "the next call: it was overwritten"), (False, "the call before: it was read before")]
)
def test_data_of_a_neighbouring_call_is_recognised(problem: Problem, trial: Trial, early: bool, words: str) -> None:
    """Half of the rows were summed with rank 2's part of another call."""
    other = draw(problem, "public 2", trial.case, [])
    parts = products(trial)
    total = torch.stack(parts).sum(0)
    half = len(total) // 2
    total[half:] += (products(other)[2] - parts[2])[half:]
    result = TrialResult(trial, delivered(problem, trial, [total] * RANKS))
    before, after = (None, other) if early else (other, None)
    found = mixed_calls(problem, result, before, after)
    assert "rank 2's data" in found
    assert words in found
    assert mixed_calls(problem, result, trial, trial) == ""


def test_data_of_a_neighbouring_call_is_recognised_in_any_mixture(problem: Problem, trial: Trial) -> None:
    """Ranks overwrote their parts one after the other, while this one was adding rows."""
    other = draw(problem, "public 2", trial.case, [])
    parts, later = products(trial), products(other)
    total = torch.stack(parts).sum(0)
    for count, rows in enumerate(torch.arange(len(total)).chunk(4)):
        for rank in range(count):  # nobody in the first rows, then rank 0, ranks 0 and 1, ranks 0 to 2
            total[rows] += (later[rank] - parts[rank])[rows]
    result = TrialResult(trial, delivered(problem, trial, [total] * RANKS))
    assert "in it is that of the next call: it was overwritten" in mixed_calls(problem, result, None, other)


def test_other_mistakes_are_not_taken_for_a_missing_share(problem: Problem, trial: Trial) -> None:
    total = torch.stack(products(trial)).sum(0)
    checks = delivered(problem, trial, [total * 0.75] * RANKS)
    assert missing_share(problem, trial.case, trial.arguments, checks) == {}


@pytest.mark.parametrize(("dtype", "name"), [(torch.bfloat16, "bfloat16"), (torch.float16, "TF32 or float16")])
def test_lower_precision_is_told_from_missing_data(
    problem: Problem, trial: Trial, dtype: torch.dtype, name: str
) -> None:
    parts = [(a["A_local"].to(dtype) @ a["B_local"].to(dtype)).float() for a in trial.arguments]
    checks = delivered(problem, trial, [torch.stack(parts).sum(0)] * RANKS)
    assert not any(check.passed for check in checks)
    assert lower_precision(trial.case, checks) == name


def test_a_skipped_slice_is_no_lower_precision(problem: Problem, trial: Trial) -> None:
    parts = [a["A_local"][:, 16:] @ a["B_local"][16:] for a in trial.arguments]
    checks = delivered(problem, trial, [torch.stack(parts).sum(0)] * RANKS)
    assert lower_precision(trial.case, checks) == ""


def test_small_errors_in_one_place_are_no_lower_precision(problem: Problem, trial: Trial) -> None:
    total = torch.stack(products(trial)).sum(0)
    total[:8] *= 1.001
    checks = delivered(problem, trial, [total] * RANKS)
    assert not any(check.passed for check in checks)
    assert lower_precision(trial.case, checks) == ""


def test_a_stale_output_is_recognised(problem: Problem, trial: Trial) -> None:
    second = draw(problem, "public 2", trial.case, [])
    checks = delivered(problem, second, [torch.stack(products(trial)).sum(0)] * RANKS)
    assert earlier_output(problem, checks, [trial]) == "public 1"
    assert earlier_output(problem, delivered(problem, second, products(second)), [trial]) == ""
