"""The statistics of the paired comparison: pure functions, without scipy.

Log-ratios r_b = ln(reference / candidate), one per pair of blocks, are taken as independent and near enough to normal
for a t-interval; the A/A benchmark is the test of that. Decisions fall after LOOKS pairs, each at two-sided 99.75 %:
three looks together then keep the rate of false "faster" below 0.3 % however noisy the pairs are (simulated: 0.27 %
where the margin of 1 % is nothing beside the noise, 0.15 % at a standard deviation of 10 %). With 99.5 % it was 0.39 %
at 15 % and 0.52 % at 40 %.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from evaluator.contract import Decision, Interval

LOOKS = (5, 10, 20)
LOOK_CONFIDENCE = 0.9975
SHOWN_CONFIDENCE = 0.95
MARGIN = math.log(1.01)
FASTEST = 0.25
VOID_FACTOR = 3.0
VOID_SHARE = 0.05
WIDE = 0.10  # half-width of a decision interval that deserves a warning
POWER = 2.3
"""Half-widths beyond the margin at which an effect is found in nine of ten comparisons; see ``smallest_detectable``."""


def undisturbed(samples: Sequence[float]) -> float:
    """Mean of the fastest quarter of the samples (rounded up): the value of a block on a CPU.

    What else a machine does only ever adds time, so the fast calls say what the program costs. Measured with a
    4 ms workload of four ranks on two CPUs that ten other processes wanted: standard deviation of the log-ratio of an
    A/A pair 2 to 3 %, against 4 to 6 % for the fastest half, 6 to 9 % for a mean trimmed by a tenth on either side and
    9 to 13 % for the median. A program that is fast in few of its calls only is caught by ``Look.verdict``.
    Raises ValueError for no samples.
    """
    if not samples:
        raise ValueError("a block needs at least one sample")
    kept = sorted(samples)[: math.ceil(len(samples) * FASTEST)]
    return math.fsum(kept) / len(kept)


def median(samples: Sequence[float]) -> float:
    """The middle sample, or the mean of the two in the middle. Raises ValueError for none."""
    if not samples:
        raise ValueError("a median needs at least one sample")
    ordered = sorted(samples)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def mostly_slow(samples: Sequence[float]) -> bool:
    """True for a block whose typical call takes more than three times what its undisturbed calls take.

    The rule on a CPU. Single disturbed calls are not among the fastest quarter and need not void a block: on a busy
    machine, pairs in which more than 5 % of the calls took three times the median spread no more (log-ratios of a
    program with itself: 4.6 %, 24 pairs) than the others (6.1 %, 65 pairs). What counts is how far the typical call is
    from the undisturbed ones: the spread is 3 % where it takes less than 1.2 times as long, 9 % at 1.5 to 2 times, 14 %
    at 2 to 3 times and 19 % at 3 to 4 times (209 pairs on two cores that 3 to 35 processes wanted).
    """
    return median(samples) > VOID_FACTOR * undisturbed(samples)


def often_slow(samples: Sequence[float]) -> bool:
    """True for a block in which more than 5 % of the calls took more than three times the median: the rule on a GPU."""
    limit = VOID_FACTOR * median(samples)
    return sum(sample > limit for sample in samples) > VOID_SHARE * len(samples)


@dataclass(frozen=True)
class BlockRule:
    """What the calls of a block come to, and when they are too disturbed to count."""

    value: Callable[[Sequence[float]], float]
    disturbed: Callable[[Sequence[float]], bool]
    what: str
    """What a disturbed block is, in words."""


BLOCK_RULES: dict[Literal["cpu", "cuda"], BlockRule] = {
    "cpu": BlockRule(undisturbed, mostly_slow, "typical calls took more than three times the undisturbed ones"),
    "cuda": BlockRule(median, often_slow, "more than 5 % of the calls took more than three times the median"),
}


@dataclass(frozen=True)
class Look:
    """What the pairs so far say: mean and standard deviation of the log-ratios."""

    pairs: int
    mean: float
    deviation: float

    @classmethod
    def at(cls, ratios: Sequence[float]) -> Look:
        """Raises ValueError for fewer than two pairs."""
        n = len(ratios)
        if n < 2:
            raise ValueError(f"an interval needs two pairs at least, got {n}")
        mean = math.fsum(ratios) / n
        return cls(n, mean, math.sqrt(math.fsum((r - mean) ** 2 for r in ratios) / (n - 1)))

    def half_width(self, confidence: float, *, pairs: int | None = None) -> float:
        """Half the t-interval of the mean; ``pairs``: what it would be after that many with the same deviation."""
        n = pairs or self.pairs
        return t_quantile((1 + confidence) / 2, n - 1) * self.deviation / math.sqrt(n)

    def interval(self, confidence: float) -> Interval:
        """Of the ratio itself: exp of the mean with its interval."""
        half = self.half_width(confidence)
        return Interval(estimate=_exp(self.mean), low=_exp(self.mean - half), high=_exp(self.mean + half))

    def verdict(self, medians: float) -> Decision | None:
        """Faster, slower or tie where the decision interval settles it; None where more pairs could.

        ``medians``: mean log-ratio of the medians of the blocks. It is noisier and must only not contradict: being
        faster in a quarter of the calls is not enough if the typical call is slower. That can turn ``faster`` and
        ``slower`` into a tie and nothing else, so it cannot raise the rate of false verdicts.
        """
        half = self.half_width(LOOK_CONFIDENCE)
        if self.mean - half > MARGIN:
            return Decision.FASTER if medians > 0 else Decision.TIE
        if self.mean + half < -MARGIN:
            return Decision.SLOWER if medians < 0 else Decision.TIE
        if self.mean - half >= -MARGIN and self.mean + half <= MARGIN:
            return Decision.TIE
        return None

    def hopeless(self, last: int) -> bool:
        """True if ``last`` pairs would hardly give another verdict than a tie, so that stopping now loses little.

        Stopping early with a tie can only lower the rate of false "faster" and "slower": every run that ends in one
        of them would have done so without this rule as well. What it costs is power near the smallest detectable
        effect, so the mean of all ``last`` pairs is given one standard error of the pairs to come in its favour.
        """
        drift = self.deviation * math.sqrt(max(0.0, 1 / self.pairs - 1 / last))
        reach = abs(self.mean) + drift
        return reach < MARGIN + self.half_width(LOOK_CONFIDENCE, pairs=last)

    def smallest_detectable(self, last: int) -> float:
        """Ratio that is called faster, or whose inverse is called slower, in nine of ten comparisons as noisy as this.

        POWER half-widths of the last look beyond the margin: one of them for the interval itself, the rest for the
        chance of the mean and for the deviation being an estimate, from five pairs at worst. Simulated with the whole
        rule: 91 to 92 % where the deviation comes from another comparison's pairs, 99.9 % where it is known.
        """
        return _exp(MARGIN + POWER * self.half_width(LOOK_CONFIDENCE, pairs=max(last, self.pairs)))


def replay(ratios: Sequence[float], medians: Sequence[float]) -> tuple[Decision, int]:
    """Decision and number of pairs used, from log-ratios that are all there: what ``timing.Comparison`` decides.

    ``ratios`` of the values of the blocks, ``medians`` of their medians, pair by pair; at least as many as the first
    look needs. With fewer than the last look needs, what there is decides. Raises ValueError for fewer than two.
    """
    for last in LOOKS:
        pairs = min(last, len(ratios))
        look = Look.at(ratios[:pairs])
        decision = look.verdict(math.fsum(medians[:pairs]) / pairs)
        if decision is not None or pairs < last or look.hopeless(LOOKS[-1]):
            return decision or Decision.TIE, pairs
    return Decision.TIE, LOOKS[-1]


def _exp(value: float) -> float:
    return math.exp(min(700.0, max(-700.0, value)))


@cache
def t_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t-distribution. Raises ValueError unless 0 < probability < 1 and degrees >= 1."""
    if not 0.0 < probability < 1.0 or degrees < 1:
        raise ValueError(f"no t-quantile for probability {probability} with {degrees} degrees of freedom")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while t_cdf(high, degrees) < probability:
        low, high = high, 2.0 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if t_cdf(middle, degrees) < probability else (low, middle)
    return (low + high) / 2


def t_cdf(t: float, degrees: int) -> float:
    """P(T <= t) = 1 - I_x(n/2, 1/2) / 2 with x = n / (n + t²) for t >= 0 (Abramowitz and Stegun 26.7.1)."""
    if t < 0:
        return 1.0 - t_cdf(-t, degrees)
    return 1.0 - incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2


def incomplete_beta(a: float, b: float, x: float) -> float:
    """Regularised incomplete beta function I_x(a, b) by its continued fraction (A. and S. 26.5.8), 0 <= x <= 1."""
    if x <= 0.0:
        return 0.0
    if x >= 1.0:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast only below the mean
        return 1.0 - incomplete_beta(b, a, 1.0 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _beta_fraction(a, b, x)


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction by the modified method of Lentz."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1), tiny)
    value = d
    for m in range(1, 10_000):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / _away_from_zero(1.0 + numerator * d, tiny)
            c = _away_from_zero(1.0 + numerator / c, tiny)
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            return value
    raise ArithmeticError(f"incomplete beta function does not converge for a={a}, b={b}, x={x}")


def _away_from_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
