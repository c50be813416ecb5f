"""Intervals and tests for shares of problems."""

from __future__ import annotations

from math import comb, sqrt
from statistics import NormalDist

Z95 = NormalDist().inv_cdf(0.975)


def wilson(successes: int, n: int, z: float = Z95) -> tuple[float, float]:
    """Interval of a share, by Wilson (1927), at 95 % unless ``z`` says otherwise.

    Unlike the plain normal interval it neither leaves [0, 1] nor shrinks to nothing at 0 or n. (0, 1) for n = 0:
    nothing is known.
    """
    if not 0 <= successes <= n:
        raise ValueError(f"0 <= {successes} <= {n} does not hold")
    if n == 0:
        return 0.0, 1.0
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    low = 0.0 if successes == 0 else max(0.0, centre - half)
    high = 1.0 if successes == n else min(1.0, centre + half)
    return low, high


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p-value that two systems are equally often correct, by McNemar's test on the same problems.

    ``only_first``: problems that the first solves and the second does not; problems that both or none solve say
    nothing about the difference. Under equality each discordant problem is a fair coin, so p is the binomial
    probability of a split at least as uneven.
    """
    n = only_first + only_second
    fewer = min(only_first, only_second)
    tail = sum(comb(n, i) for i in range(fewer + 1))
    return min(1.0, 2 * tail / (1 << n))
