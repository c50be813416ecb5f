"""Back-to-back calls whose ranks are held up at random: what a missing barrier shows in, and nothing else.

In trials and timed calls all ranks stand still between the calls, so a rank that overwrites what a peer still reads, or
reads what a peer has not yet written, may pass. Here every rank goes from call to call on its own: the judge gives it
the next inputs as soon as it has answered, now and then a few milliseconds later, and meanwhile stops single ranks in
the middle of what they do (SIGSTOP). A correct submission does not notice; every pause that is made here can happen on
any machine. All outputs are verified.
"""

from __future__ import annotations

import random
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from evaluator.contract import Phase
from evaluator.judge.checks import RankSnapshot, check, take_rank
from evaluator.judge.endpoint import Endpoint
from evaluator.judge.exchange import Trouble
from evaluator.judge.launch import Launch
from evaluator.judge.trials import Ring, Trial, TrialResult
from problems.suite.base import Problem

MOST_CALLS, FEWEST_CALLS = 61, 11  # odd, so that buffers that alternate do not come out even
SOAK_SECONDS = 3.0
"""About how long the calls may take; slow submissions are called less often."""
MOST_BYTES = 256 * 1024**2
"""Of outputs that are kept until they are verified."""
SHORTEST_HOLD, LONGEST_HOLD = 0.004, 0.060
"""Bounds of the longest hold; between them it is twice the time of a call."""
LONGEST_SKEW = 0.003
SKEWED = 0.5  # share of calls that a rank begins late
PUBLIC = 0.75  # share of calls with the public shape; the others change shape and so buffers


@dataclass
class _Lane:
    """Where one rank is in the sequence of calls."""

    end: Endpoint
    ring: Ring
    call: int = -1
    """The call it is in or has returned from last."""
    start: int = 0
    nonce: str = ""
    busy: bool = False
    ready_at: float = 0.0
    """When it may begin the next call."""
    snapshots: list[RankSnapshot] = field(default_factory=list)


@dataclass
class SoakResult:
    """The first wrong call, if there is one, between its neighbours."""

    calls: int
    number: int | None = None
    """1-based number of the wrong call."""
    wrong: TrialResult | None = None
    before: Trial | None = None
    after: Trial | None = None


def calls_for(call_seconds: float, output_bytes: int) -> int:
    """How many calls a soak makes: an odd number."""
    affordable = int(SOAK_SECONDS / max(1e-6, 2 * call_seconds))
    storable = MOST_BYTES // max(1, output_bytes)
    return max(FEWEST_CALLS, min(MOST_CALLS, affordable, storable)) | 1


class Soak:
    """One soak of a launch that is ready to be called.

    ``call_seconds``: how long a call takes when nothing disturbs it; ``limit``: seconds after which a rank that has
    not answered counts as stuck.
    """

    def __init__(
        self, launch: Launch, problem: Problem, trials: Sequence[Trial], *, call_seconds: float, limit: float
    ) -> None:
        self.launch = launch
        self.problem = problem
        self.limit = limit
        self._random = random.SystemRandom()
        count = calls_for(call_seconds, trials[0].output_bytes * len(launch.ends))
        self.sequence = _sequence(trials, count, self._random)
        self._longest_hold = min(LONGEST_HOLD, max(SHORTEST_HOLD, 2 * call_seconds))
        self._lanes = [_Lane(end, Ring(end.source.size)) for end in launch.ends]
        self._held: int | None = None
        self._change_at = 0.0

    def run(self) -> SoakResult:
        """Makes all calls and verifies them. Raises Trouble if a rank fails or answers no more."""
        sandbox, base = self.launch.arm.sandbox, self.launch.arm.base
        begin = time.monotonic()
        self.launch.thaw()
        ranks = [inner for host, inner in sandbox.inner_pids().items() if host not in base]
        try:
            self._calls(ranks)
        finally:
            self._release()
            self.launch.scheduled += time.monotonic() - begin
        self.launch.freeze()
        return self._verified()

    def _calls(self, ranks: Sequence[int]) -> None:
        last = len(self.sequence) - 1
        heard = time.monotonic()
        while any(lane.busy or lane.call < last for lane in self._lanes):
            now = time.monotonic()
            for lane in self._lanes:
                if not lane.busy and lane.call < last and now >= lane.ready_at:
                    self._begin(lane)
            self._disturb(ranks, now)
            for end, done in self.launch.next_done(self._pause(now, last), Phase.PROBES):
                lane = self._lanes[end.rank]
                if not lane.busy or done.nonce != lane.nonce:
                    raise Trouble(self.launch, "protocol", Phase.PROBES, first=end.rank, detail="message out of turn")
                node = self.launch.output_of(end, done, Phase.PROBES)
                encoded = self.sequence[lane.call].encoded[end.rank]
                lane.snapshots.append(take_rank(end, node, encoded, lane.start, in_place=self.problem.may_mutate))
                lane.busy = False
                lane.ready_at = heard = time.monotonic()
                if self._random.random() < SKEWED:
                    lane.ready_at += self._random.uniform(0.0, LONGEST_SKEW)
            if time.monotonic() - heard > self.limit:
                raise Trouble(self.launch, "stuck", Phase.PROBES, seconds=self.limit)

    def _begin(self, lane: _Lane) -> None:
        lane.call += 1
        trial = self.sequence[lane.call]
        lane.start = lane.ring.place(trial.input_bytes)
        encoded = trial.encoded[lane.end.rank]
        lane.nonce = self.launch.start_call(lane.end, encoded, lane.start, perturb=secrets.randbelow(256))
        lane.busy = True

    def _disturb(self, ranks: Sequence[int], now: float) -> None:
        """Stops one rank for a while, lets it go, leaves all alone for a while, and so on."""
        if now < self._change_at or not ranks:
            return
        if self._held is None:
            self._held = self._random.choice(ranks)
            self.launch.arm.sandbox.hold(self._held)
            self._change_at = now + self._random.uniform(0.0, self._longest_hold)
        else:
            self._release()
            self._change_at = now + self._random.uniform(0.0, self._longest_hold / 2)

    def _release(self) -> None:
        if self._held is not None:
            self.launch.arm.sandbox.let_go(self._held)
            self._held = None

    def _pause(self, now: float, last: int) -> float:
        """Seconds until there is something to do for us."""
        waiting = [lane.ready_at for lane in self._lanes if not lane.busy and lane.call < last]
        return max(0.0, min([self._change_at, now + 0.2, *waiting]) - now)

    def _verified(self) -> SoakResult:
        for index, trial in enumerate(self.sequence):
            snapshots = [lane.snapshots[index] for lane in self._lanes]
            result = TrialResult(trial, check(self.problem, trial.case, trial.expected, snapshots))
            if not result.passed:
                before = self.sequence[index - 1] if index else None
                after = self.sequence[index + 1] if index + 1 < len(self.sequence) else None
                return SoakResult(len(self.sequence), index + 1, result, before, after)
        return SoakResult(len(self.sequence))


def _sequence(trials: Sequence[Trial], count: int, chance: random.Random) -> list[Trial]:
    """``count`` trials in an order by chance, never one twice in a row: then a leftover would be right."""
    public = [trial for trial in trials if trial.case.kind == "public"]
    others = [trial for trial in trials if trial.case.kind != "public"] or public
    sequence: list[Trial] = []
    while len(sequence) < count:
        trial = chance.choice(public if chance.random() < PUBLIC else others)
        if not sequence or trial is not sequence[-1]:
            sequence.append(trial)
    return sequence
