"""Figures of runs with several samples a problem: unbiased estimators, after Chen et al. 2021 (arXiv 2107.03374)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod


def pass_at_k(n: int, c: int, k: int) -> float:
    """Probability that at least one of ``k`` samples drawn from ``n``, of which ``c`` are good, is good.

    1 - C(n-c, k) / C(n, k), as a product that neither overflows nor cancels. Good means correct for pass@k, correct
    and faster for fast_1@k. Raises ValueError unless 1 <= k <= n and 0 <= c <= n.
    """
    if not (1 <= k <= n and 0 <= c <= n):
        raise ValueError(f"1 <= k={k} <= n={n} and 0 <= c={c} <= n do not hold")
    if n - c < k:
        return 1.0
    return 1.0 - prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def mean_pass_at_k(counts: Sequence[tuple[int, int]], k: int, problems: int) -> float:
    """Mean of ``pass_at_k`` over all ``problems`` of the suite; a problem without samples counts as 0.

    ``counts``: (samples, good samples) of each problem that was answered.
    """
    return sum(pass_at_k(n, c, k) for n, c in counts) / problems if problems else 0.0


def levels(samples: Sequence[int], problems: int) -> list[int]:
    """The k for which pass@k is shown: 1, 2, 5, 10, 20, 50, 100 and the number of samples itself.

    ``samples``: samples of each answered problem. The estimator needs at least k samples, so the problem with the
    fewest sets the limit.
    """
    if not samples or not problems:
        return []
    least = min(samples)
    return sorted({k for k in (1, 2, 5, 10, 20, 50, 100, least) if k <= least})
