"""Two clocks on one call: what the ranks say it took, and what the judge's own clock says.

The judge's clock runs from letting the job go until the last rank's answer, so it also holds the way there and back:
waking the ranks, reading the message, copying the outputs, stopping the job. How long that takes on this host is
measured with calls that do nothing and with the reference's calls. Judge's time minus ranks' time must lie in the band
that these give. A rank whose timer lies by a factor f takes T (1 - 1/f) out of its own time, and that appears in the
difference.

On a CPU the judge's time is the sample and a rank that lies about time gains nothing; a disagreement is a remark. On a
GPU events on the device are the sample (they do not contain the way there and back), and a disagreement is a finding.
Blocks are compared by the value that decides (``statistics.BlockRule``): a lie that moves the value moves the
difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaluator.judge.statistics import median

WIDENING = 4.0
"""Standard deviations of the differences by which the band is wider than what was seen."""
RELATIVE = 0.10
"""Part of the reference's time that the band is wider at least: outputs may be copied from another layout."""
RESOLUTION = 20e-6
"""Seconds that the band is wider at least: jitter of waking a process."""

Value = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class Batch:
    """Calls of one block by both clocks, in seconds: the judge's times, and the longest any rank says it took."""

    judged: Sequence[float]
    claimed: Sequence[float]

    def difference(self, value: Value) -> float:
        """Seconds per call by which the judge's time exceeds the ranks' own. Raises ValueError for an empty batch."""
        return value(self.judged) - value(self.claimed)


@dataclass(frozen=True)
class Band:
    """Differences that honest calls give on this host, seconds per call."""

    low: float
    high: float
    noop: float
    """The judge's time of a call that does nothing."""

    def holds(self, difference: float) -> bool:
        return self.low <= difference <= self.high

    def smallest_lie(self, seconds: float, usual: float) -> float:
        """Factor by which a timer must lie about a call of ``seconds`` to be caught, inf if no factor is.

        ``usual``: the honest difference. A lie by f moves it by seconds * (1 - 1/f), so that f = 1 / (1 - room/seconds)
        is the border.
        """
        room = self.high - usual
        return math.inf if room >= seconds else 1 / (1 - room / seconds)


def calibrate(noop: Batch, reference: Sequence[Batch], value: Value) -> Band:
    """The band from calls that do nothing and from the reference's blocks, at least one of each.

    It reaches from the smallest to the largest of their differences, widened by the noise and by the least width.
    Raises ValueError if there is no reference block.
    """
    if not reference:
        raise ValueError("a band needs at least one block of the reference")
    differences = [batch.difference(value) for batch in reference]
    mean = math.fsum(differences) / len(differences)
    deviation = math.sqrt(math.fsum((d - mean) ** 2 for d in differences) / max(1, len(differences) - 1))
    typical = median([value(batch.judged) for batch in reference])
    slack = max(WIDENING * deviation, RELATIVE * typical, RESOLUTION)
    seen = [noop.difference(value), *differences]
    return Band(min(seen) - slack, max(seen) + slack, value(noop.judged))
