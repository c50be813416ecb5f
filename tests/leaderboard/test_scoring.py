"""The figures, against definitions written out by brute force."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from itertools import combinations, product
from math import isclose, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderboard import scoring
from leaderboard.scoring import Contender, Outcome

ratios = st.floats(0.05, 50)


@st.composite
def outcomes(draw: st.DrawFn, problem: int = 1) -> Outcome:
    correct = draw(st.booleans())
    if not correct:
        return Outcome(problem, correct=False)
    speedup = draw(ratios)
    low = speedup * draw(st.floats(0.5, 1))
    return Outcome(problem, True, faster=low > 1.01 and draw(st.booleans()), speedup=speedup, low=low)


@st.composite
def evaluations(draw: st.DrawFn) -> tuple[list[Outcome], int]:
    answered = [draw(outcomes(problem)) for problem in range(1, draw(st.integers(0, 12)) + 1)]
    return answered, len(answered) + draw(st.integers(0, 5)) or 1


@given(st.integers(1, 8), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_good_sample(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    draws = list(combinations([True] * c + [False] * (n - c), k))
    assert isclose(scoring.pass_at_k(n, c, k), sum(map(any, draws)) / len(draws), abs_tol=1e-12)


def test_pass_at_k_does_not_overflow_and_refuses_more_than_there_is() -> None:
    assert 0 < scoring.pass_at_k(10_000, 3, 100) < 1
    with pytest.raises(ValueError, match="k=3 <= n=2"):
        scoring.pass_at_k(2, 1, 3)


def test_unanswered_problems_count_as_failed() -> None:
    assert scoring.mean_pass_at_k([(4, 4), (4, 0)], 1, problems=4) == 0.25


def test_levels_stop_at_the_problem_with_fewest_samples() -> None:
    assert scoring.levels([20, 7, 20], problems=3) == [1, 2, 5, 7]
    assert scoring.levels([], problems=3) == []


@given(st.integers(0, 7), st.integers(0, 7))
def test_mcnemar_counts_the_coin_flips_at_least_as_uneven(b: int, c: int) -> None:
    flips = list(product((0, 1), repeat=b + c))
    as_uneven = sum(abs(2 * sum(flip) - (b + c)) >= abs(b - c) for flip in flips)
    assert isclose(scoring.mcnemar(b, c), as_uneven / len(flips))


@given(st.integers(0, 200), st.integers(0, 200))
def test_wilson_interval_holds_the_share_and_stays_a_share(successes: int, more: int) -> None:
    n = successes + more
    low, high = scoring.wilson(successes, n)
    assert 0 <= low <= (successes / n if n else 0) <= high <= 1


def test_wilson_solves_its_equation() -> None:
    """At either end the share lies exactly z standard errors of that end away."""
    z, n, share = 1.959963984540054, 87, 28 / 87
    for end in scoring.wilson(28, n):
        assert isclose(abs(share - end), z * (end * (1 - end) / n) ** 0.5)


@given(evaluations())
def test_fast_p_never_rises_and_is_fast_1_at_one(evaluation: tuple[list[Outcome], int]) -> None:
    answered, n = evaluation
    curve = scoring.fast_p(answered, n)
    shares = [share for _, share in curve]
    assert shares == sorted(shares, reverse=True)
    assert dict(curve)[1.0] == sum(o.faster for o in answered) / n


@given(evaluations())
def test_speedup_is_the_geomean_with_the_baseline_where_not_faster(evaluation: tuple[list[Outcome], int]) -> None:
    answered, n = evaluation
    values = [o.speedup if o.faster and o.speedup else 1.0 for o in answered] + [1.0] * (n - len(answered))
    expected = scoring.geomean(values)
    assert expected is not None
    assert isclose(log(scoring.speedup(answered, n)), log(expected), abs_tol=1e-9)
    low, high = scoring.speedup_interval(answered, n)
    assert log(low) - 1e-9 <= log(scoring.speedup(answered, n)) <= log(high) + 1e-9


@given(evaluations(), outcomes(99))
def test_a_failure_never_pays_more_than_an_answer(evaluation: tuple[list[Outcome], int], extra: Outcome) -> None:
    """Neither abstaining nor failing beats answering, where the decision is honest: faster means a ratio above 1."""
    answered, n = evaluation
    failed = Outcome(99, correct=False)
    assert scoring.speedup([*answered, failed], n + 1) <= scoring.speedup([*answered, extra], n + 1) * (1 + 1e-12)


@given(evaluations())
def test_types_partition_the_problems(evaluation: tuple[list[Outcome], int]) -> None:
    answered, n = evaluation
    types = {problem: ["tensor" if problem % 2 else "expert"] for problem in range(1, n + 1)}
    rows = scoring.by_type(answered, types).values()
    assert sum(row.problems for row in rows) == n
    assert sum(row.correct for row in rows) == sum(o.correct for o in answered)
    assert sum(row.faster for row in rows) == sum(o.faster for o in answered)


def test_type_without_answers_has_its_row() -> None:
    row = scoring.by_type([], {1: ["graph"]})["graph"]
    assert (row.problems, row.correct, row.correctness_rate, row.speedup, row.utilisation) == (1, 0, 0.0, 1.0, None)


def test_faster_needs_a_correct_timed_answer() -> None:
    with pytest.raises(ValueError, match="faster without"):
        Outcome(1, correct=False, faster=True, speedup=2.0)


def contender(key: str, correct: set[int], fast_1: float = 0.0, since: float = 0.0) -> Contender:
    return Contender(key, len(correct) / 20, fast_1, 1.0, scoring.to_bits(correct), since)


def test_order_is_correctness_then_fast_1_and_equal_rows_share_a_rank() -> None:
    rows = [
        contender("late twin", {1, 2}, 0.1, since=9),
        contender("weak", {1}, 0.9),
        contender("early twin", {1, 2}, 0.1, since=1),
        contender("best", {1, 2}, 0.2),
    ]
    places = scoring.rank(rows)
    assert [(p.key, p.rank) for p in places] == [("best", 1), ("early twin", 2), ("late twin", 2), ("weak", 4)]


def test_range_spans_the_rows_that_cannot_be_told_apart() -> None:
    """10 to 0 discordant problems are significant (p = 0.002), 3 to 0 are not (p = 0.25)."""
    rows = [contender("a", set(range(13))), contender("b", set(range(10))), contender("c", set())]
    assert [(p.key, p.rank, p.low, p.high) for p in scoring.rank(rows)] == [
        ("a", 1, 1, 2),
        ("b", 2, 1, 2),
        ("c", 3, 3, 3),
    ]


@given(st.lists(st.sets(st.integers(0, 19)), max_size=8))
def test_range_holds_the_rank_and_order_of_rows_does_not_matter(solved: list[set[int]]) -> None:
    rows = [contender(str(i), correct, since=i) for i, correct in enumerate(solved)]
    places = scoring.rank(rows)
    assert all(1 <= p.low <= p.rank <= p.high <= len(rows) for p in places)
    assert scoring.rank(rows[::-1]) == places


bills = st.lists(st.lists(st.one_of(st.none(), st.decimals(0, 999_999, places=6)), max_size=4), max_size=8)


@given(bills)
def test_what_was_spent_by_a_step_is_the_sum_of_all_until_then_or_not_known(steps: list[list[Decimal | None]]) -> None:
    for number, total in enumerate(scoring.running_total(steps)):
        so_far = [cost for step in steps[: number + 1] for cost in step]
        given_ones = [Fraction(cost) for cost in so_far if cost is not None]
        known = bool(so_far) and len(given_ones) == len(so_far)
        assert (total is not None) == known
        if total is not None:
            assert Fraction(total) == sum(given_ones), "to the last digit, in whatever order"


@given(bills, bills)
def test_spending_never_falls_and_later_steps_change_no_earlier_total(
    first: list[list[Decimal | None]], then: list[list[Decimal | None]]
) -> None:
    totals = scoring.running_total([*first, *then])
    assert totals[: len(first)] == scoring.running_total(first)
    known = [total for total in totals if total is not None]
    assert known == sorted(known)
