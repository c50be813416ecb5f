"""Places on long boards, and figures over parts of the suite, against definitions written out."""

from __future__ import annotations

from math import isclose

from hypothesis import given
from hypothesis import strategies as st

from leaderboard import scoring
from leaderboard.scoring import Contender, Outcome, ProblemOutcome
from leaderboard.scoring.board import overlap_needed

N = 40
sets = st.sets(st.integers(1, N))


def contender(key: int, solved: set[int]) -> Contender:
    return Contender(key, len(solved) / N, 0.0, 1.0, scoring.to_bits(solved), since=key)


@given(st.lists(sets, max_size=12))
def test_ranges_are_those_of_testing_every_pair(solved: list[set[int]]) -> None:
    places = {place.key: place for place in scoring.rank([contender(key, s) for key, s in enumerate(solved)])}
    for key, mine in enumerate(solved):
        gained = [(len(other - mine), len(mine - other)) for other in solved]
        apart = [(more, fewer) for more, fewer in gained if scoring.mcnemar(more, fewer) < 0.05]
        rank = 1 + sum(len(other) > len(mine) for other in solved)
        better, worse = sum(m > f for m, f in apart), sum(m < f for m, f in apart)
        place = places[key]
        assert (place.rank, place.low, place.high) == (rank, min(rank, 1 + better), max(rank, len(solved) - worse))


@given(st.integers(0, N), st.integers(0, N))
def test_the_more_two_rows_share_the_clearer_is_their_difference(fewer: int, more: int) -> None:
    """So that one threshold stands for the test of every pair with these numbers of solved problems."""
    fewer, more = sorted((fewer, more))
    needed = overlap_needed(fewer, more)
    for both in range(fewer + 1):
        significant = scoring.mcnemar(fewer - both, more - both) < 0.05
        assert significant == (needed is not None and both >= needed and fewer != more)


@given(st.lists(sets, min_size=1, max_size=8), st.integers(0, 7))
def test_a_page_of_a_board_has_the_places_of_the_whole(solved: list[set[int]], start: int) -> None:
    ranking = scoring.Ranking([contender(key, s) for key, s in enumerate(solved)])
    assert ranking.places(start, start + 3) == ranking.places()[start : start + 3]


@st.composite
def vectors(draw: st.DrawFn) -> dict[int, ProblemOutcome]:
    def parts() -> ProblemOutcome:
        code = draw(st.sampled_from(["correct", "wrong_values", "deadlock"]))
        counts = code == "correct" and draw(st.booleans())
        speedup = draw(st.floats(0.1, 20)) if code == "correct" else None
        decision = draw(st.sampled_from(["faster", "tie", "slower"])) if code == "correct" else "none"
        return ProblemOutcome(code, decision, speedup, counts, utilisation=draw(st.none() | st.floats(0.01, 1)))

    return {number: parts() for number in draw(sets)}


@given(vectors(), sets)
def test_compact_figures_of_a_part_are_those_of_its_outcomes(
    vector: dict[int, ProblemOutcome], scope: set[int]
) -> None:
    """Rows are ranked from bits and gains and shown from outcomes: both must agree to the last digit."""
    outcomes = [parts.outcome(number) for number, parts in vector.items()]
    solved = scoring.to_bits(o.problem for o in outcomes if o.correct)
    gains = {int(number): gain for number, gain in scoring.gains_of(outcomes).items()}
    compact = scoring.scope_figures(solved, gains, scoring.to_bits(scope))
    full = scoring.type_figures([o for o in outcomes if o.problem in scope], len(scope))
    assert (compact.problems, compact.correct, compact.faster) == (full.problems, full.correct, full.faster)
    assert (compact.correctness_rate, compact.fast_1, compact.speedup) == (
        full.correctness_rate,
        full.fast_1,
        full.speedup,
    )


@given(vectors())
def test_what_is_stored_is_read_back(vector: dict[int, ProblemOutcome]) -> None:
    stored = {str(number): list(parts) for number, parts in vector.items()}
    assert scoring.read_vector(stored) == vector


def test_what_does_not_count_is_neither_correct_nor_faster_nor_timed() -> None:
    held = ProblemOutcome("correct", "faster", 9.0, False, low=8.0, utilisation=0.9, standing="held")
    assert held.outcome(1) == Outcome(1, correct=False)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=30))
def test_geomean_lies_between_its_values_and_is_that_of_the_product(values: list[float]) -> None:
    mean = scoring.geomean(values)
    assert mean is not None
    assert min(values) * (1 - 1e-12) <= mean <= max(values) * (1 + 1e-12)
    product = 1.0
    for value in values:
        product *= value ** (1 / len(values))
    assert isclose(mean, product, rel_tol=1e-9)
