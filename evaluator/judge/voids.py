"""Which pairs of blocks do not count, how often one is measured again, and what happens when that is not enough.

A pair is void if one of its blocks is disturbed (``BlockRule``), or if by the driver something slowed a GPU down.
It is measured again and counted. After MAX_VOID_PAIRS of them the next one ends the comparison without a decision,
unless the reference was calm in most of them: then the file's own calls are what is uneven, and its pairs count as they
are.
"""

from __future__ import annotations

from collections.abc import Callable

from evaluator.contract import BlockPair
from evaluator.gpus import ClockLog, Gpu
from evaluator.judge.launch import Abandoned
from evaluator.judge.statistics import LOOKS, BlockRule

MAX_VOID_PAIRS = LOOKS[0]
HARMLESS = {"power cap"}
"""Slows a GPU without voiding a pair: under load many are at their power cap all the time, in both arms alike."""


class Undecided(Abandoned):
    """There is nothing to say about speed, and nobody's code is to blame; the text says why."""


class Disturbed(Undecided):
    """The machine was too busy with other things."""


class Voids:
    """The void pairs of one comparison. ``states``: looks at the GPUs, where there are any."""

    def __init__(self, rule: BlockRule, states: Callable[[], tuple[Gpu, ...]] | None = None) -> None:
        self.rule = rule
        self.states = states
        self.pairs: list[BlockPair] = []
        self.clocks: list[tuple[Gpu, ...]] = []

    @property
    def warnings(self) -> list[str]:
        """Sentences about pairs that were measured again and about GPUs that were slowed down."""
        found = [f"{len(self.pairs)} disturbed pairs of blocks were measured again."] if self.pairs else []
        return [*found, *(ClockLog(tuple(self.clocks)).warnings if self.clocks else ())]

    def look(self) -> str:
        """Notes the state of the GPUs; what slows one down so that a pair is void, as words, or ""."""
        if self.states is None:
            return ""
        self.clocks.append(self.states())
        for gpu in self.clocks[-1]:
            reasons = sorted(set(gpu.slowed_by) - HARMLESS)
            if reasons:
                return f"GPU {gpu.index} was slowed down ({', '.join(reasons)})"
        return ""

    def take(self, pair: BlockPair, counted: int) -> bool:
        """True if the pair that has just ended is void; ``counted``: how many are not. Raises Disturbed."""
        slowed = self.look()
        uneven = self.rule.disturbed(pair.reference) or self.rule.disturbed(pair.candidate)
        if not slowed and (not uneven or self._own_noise(pair)):
            return False
        self.pairs.append(pair)
        if len(self.pairs) > MAX_VOID_PAIRS:
            raise Disturbed(
                f"The machine was too disturbed to compare speeds: in {len(self.pairs)} of "
                f"{len(self.pairs) + counted} pairs of blocks {slowed or self.rule.what}; {MAX_VOID_PAIRS} may be "
                "measured again. Evaluate it again when the machine is less busy."
            )
        return True

    def _own_noise(self, pair: BlockPair) -> bool:
        """True if the limit of void pairs is reached and the reference was calm in most of them and in this one.

        Decided from the reference's blocks alone: an uneven file neither gets fresh pairs without end nor escapes the
        comparison.
        """
        if len(self.pairs) < MAX_VOID_PAIRS:
            return False
        calm = [not self.rule.disturbed(void.reference) for void in [*self.pairs, pair]]
        return calm[-1] and 2 * sum(calm) > len(calm)
