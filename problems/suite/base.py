"""The parts that every problem of the suite has, and the vocabulary they are written in.

A problem is one module ``problems/suite/<type>/<slug>.py`` with the same parts in the same order: docstring with a
legend of shape letters and the equations, sizes and constants, ``inputs``, ``solution`` (the reference, as people and
models read it), ``oracle``, ``cost``, and ``PROBLEM`` which ties them together. Reading one is reading all.

Everything is written for all ranks at once where no communication is wanted (``inputs``, ``oracle``, ``cost``) and for
one rank where it is (``solution``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

Args = dict[str, Any]
"""Arguments of ``solution`` for one rank, in the order of its signature.

A value is a tensor (dense or sparse COO), a number, a bool, a string, None, a ``torch.nn.Linear``, a ``Group``, or a
list or tuple of these.
"""

TYPES = (
    "collective",
    "tensor",
    "sequence",
    "context",
    "expert",
    "data",
    "sharded_data",
    "pipeline",
    "spatial",
    "embedding",
    "graph",
)


RUN_DTYPES = (torch.bfloat16, torch.float16, torch.float32)
"""Dtypes that a run may ask for."""


@dataclass(frozen=True)
class Group:
    """An argument that is a process group: the member of ``partition`` (lists of global ranks) that holds the rank.

    Every rank creates every group of a partition in the order given; a rank in none of them receives None.
    """

    partition: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Case:
    """One way of calling a problem: the shape and how inputs are drawn.

    ``draw`` is one of the problem's own draws. ``kind``: public (also timed), hidden (shape by secret seed), stress
    (scales, mixed amplitudes), structured (skewed or empty routing, ragged splits).
    ``property`` is what feedback may say about the case, e.g. "last dimension not a multiple of 16".
    """

    name: str
    world_size: int
    dtype: torch.dtype
    sizes: Mapping[str, int] = field(default_factory=dict)
    draw: str = "normal"
    kind: str = "public"
    property: str = ""

    def __getitem__(self, size: str) -> int:
        return self.sizes[size]


class Rng:
    """Independent random streams of one trial: one per rank, one shared by all ranks (replicated inputs).

    Seeded with a 64-bit secret that only the judge knows; the streams of different ranks are unrelated.
    """

    def __init__(self, seed: int, world_size: int) -> None:
        self._root = torch.Generator().manual_seed(seed % 2**63)
        seeds = torch.randint(0, 2**62, (world_size + 1,), generator=self._root)
        self.shared = torch.Generator().manual_seed(int(seeds[0]))
        self.rank = [torch.Generator().manual_seed(int(s)) for s in seeds[1:]]

    def normal(self, rank: int | None, shape: Sequence[int], *, std: float = 1.0) -> torch.Tensor:
        """Normal float32 values from the stream of ``rank`` (None: the shared stream)."""
        return torch.randn(tuple(shape), generator=self._stream(rank)) * std

    def integers(self, rank: int | None, low: int, high: int, shape: Sequence[int]) -> torch.Tensor:
        """int64 values in [low, high] from the stream of ``rank`` (None: the shared stream)."""
        return torch.randint(low, high + 1, tuple(shape), generator=self._stream(rank))

    def uniform(self, rank: int | None, shape: Sequence[int]) -> torch.Tensor:
        """float32 values in [0, 1) from the stream of ``rank`` (None: the shared stream)."""
        return torch.rand(tuple(shape), generator=self._stream(rank))

    def _stream(self, rank: int | None) -> torch.Generator:
        return self.shared if rank is None else self.rank[rank]


@dataclass(frozen=True)
class Exact:
    """Bit for bit, after both sides have the expected dtype. For data movement, integers, booleans, exact sums.

    NaN payloads count where the oracle's value has the run dtype, that is where it moved values and computed none.
    ``signed_zeros`` False: 0.0 and -0.0 count as the same (sums that may start from either).
    """

    signed_zeros: bool = True


@dataclass(frozen=True)
class Close:
    """Floats c against the oracle o, in two ways; both must hold.

    Every element: |c - o| <= units * rms(o) + relative * |o|. The whole: rms(c - o) <= rms * rms(o), which is what
    tells a lower precision from honest rounding; with n elements it is widened by 1 + 2 / sqrt(n): few say little.

    All None: the calibrated values of the problem for the run dtype. Only ``rms`` given: elements as in ``calibrated``.
    Only the others given: no bound on the whole. ``axis``: all of it per slice along this axis (outputs with a wide
    dynamic range), else over the whole leaf. NaN and infinities must sit where the oracle has them.
    """

    units: float | None = None
    relative: float | None = None
    axis: int | None = None
    rms: float | None = None


@dataclass(frozen=True)
class Free:
    """Anything goes: the sheet leaves this output unspecified on this rank."""


@dataclass(frozen=True)
class Valid:
    """A validity rule for outputs with several right answers (ties, permutations).

    ``check(value)`` gets the candidate's leaf in its own dtype and returns "" or a sentence that says what is wrong.
    """

    check: Callable[[torch.Tensor], str]


Rule = Exact | Close | Free | Valid


@dataclass(frozen=True)
class Leaf:
    """One expected output tensor: ``value`` by the oracle (float64, integer or bool), ``dtype`` as it must come.

    ``shape`` and ``dtype`` are checked exactly for every rule but ``Free``. ``device`` "cpu" where the sheet says that
    the output lives on the host whatever the device of the run.
    """

    value: torch.Tensor
    dtype: torch.dtype
    rule: Rule = Close()
    device: str = "run"


@dataclass(frozen=True)
class Expected:
    """What one rank must deliver: ``output`` is a Leaf, a number, bool, string, None, or list, tuple, dict of these.

    ``mutated`` gives the expected value of arguments that ``solution`` must change in place, by argument name; other
    arguments listed in ``Problem.may_mutate`` may hold anything afterwards, all the rest must be unchanged.
    """

    output: Any
    mutated: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RankCost:
    """Least work of one rank for one call: flops by dtype name ("bf16", "fp32", "fp64", "fp8"), bytes.

    ``hbm`` counts each input and output once; ``sent`` and ``received`` are link bytes with a bandwidth-optimal
    point-to-point algorithm; ``one_way`` is the least number of bytes per direction of *any* algorithm (in-switch
    reduction and multicast included), the physics floor.
    """

    flops: Mapping[str, float]
    hbm: float
    sent: float
    received: float
    one_way: float | None = None

    @property
    def floor_bytes(self) -> float:
        """Link bytes per direction that no algorithm can avoid."""
        return max(self.sent, self.received) if self.one_way is None else self.one_way


ELEMENT = 6.0
"""How much larger than the rms error a single element's error may be, in ``calibrated`` tolerances."""


@dataclass(frozen=True)
class Tolerance:
    """Calibrated tolerance for one run dtype, in the units of ``Close``."""

    units: float
    relative: float
    rms: float = math.inf


def calibrated(
    *, bf16: float = 1e-2, fp16: float = 1.25e-3, fp32: float = 1e-5, fp64: float = 1e-12
) -> dict[torch.dtype, Tolerance]:
    """Tolerances from the allowed rms error per run dtype; single elements may be off by ELEMENT times as much.

    The defaults fit a matrix product and a sum over the ranks. Rounding to bf16 once costs an rms error of 1.6e-3, with
    four ranks about 2.9e-3 in all; scaled fp8 costs 2.5e-2 once and 4e-2 in all. In fp32, rounding costs about 1e-7
    and TF32 about 2e-4.
    """
    allowed = {torch.bfloat16: bf16, torch.float16: fp16, torch.float32: fp32, torch.float64: fp64}
    return {dtype: Tolerance(ELEMENT * rms, ELEMENT * rms, rms) for dtype, rms in allowed.items()}


DEFAULT_TOLERANCES: Mapping[torch.dtype, Tolerance] = calibrated()


@dataclass(frozen=True)
class Problem:
    """A workload of the suite. Everything the judge, the catalogue and the prompts know about it."""

    id: int
    slug: str
    title: str
    type: str
    also: tuple[str, ...]
    domain: str
    stage: str
    difficulty: int
    origin: str
    statement: str
    """What the workload computes, for people and models: Markdown, our own words."""
    solution: Callable[..., Any]
    inputs: Callable[[Case, Rng], list[Args]]
    """Arguments of every rank: ``inputs(case, rng)[rank]``."""
    oracle: Callable[[Case, list[Args]], list[Expected]]
    """Expected result of every rank, computed from all ranks' arguments in float64; must not change them."""
    cost: Callable[[Case, list[Args]], list[RankCost]]
    gpu_sizes: Mapping[str, int]
    """Public shape on GPU targets."""
    cpu_sizes: Mapping[str, int]
    """Public shape on cpu-gloo: a reference call of roughly 1 to 20 ms with 4 ranks."""
    hidden_sizes: Callable[[Mapping[str, int], torch.Generator], dict[str, int]]
    """A shape near the given public one, drawn by secret seed: odd sizes, tails."""
    hidden_property: str
    """What feedback may say of hidden shapes."""
    draws: Mapping[str, str]
    """Draws beside "normal" -> kind and sentence, e.g. {"exact": "stress: small integers, sums are exact"}."""
    world_size_rule: Callable[[int, Mapping[str, int]], str] = lambda world_size, sizes: ""
    """"" if the problem is defined for this world size and shape, else a sentence that shows the equation."""
    may_mutate: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    """List arguments, in the order of the signature, whose entries ``solution`` replaces by new tensors: what the lists
    hold after the call must be what ``Expected.mutated`` says, and not the memory of the old entries."""
    may_alias: tuple[str, ...] = ()
    """Arguments whose memory an output may share; elsewhere an output that aliases an input is refused."""
    aliases: tuple[str, ...] = ()
    tolerances: Mapping[torch.dtype, Tolerance] = field(default_factory=lambda: DEFAULT_TOLERANCES)
    hazards: tuple[str, ...] = ()
    communication: str = ""
    """The collectives of the reference, one line each, for the problem page."""
    waivers: Mapping[str, str] = field(default_factory=dict)
    """Rows of ``check`` that this problem cannot meet with margin 3 -> reviewed reason. A key is the row's name
    ("lower_precision"), or with run dtype ("lower_precision/bf16") or world size ("missing_rank/fp32/2") behind it."""
    run_dtypes: tuple[torch.dtype, ...] = RUN_DTYPES
    """Run dtypes that the inputs follow; in a run of any other precision they have the first of these."""
    check_sizes: Mapping[str, int] = field(default_factory=dict)
    """Shape in ``check``: small, but with enough elements for stable statistics. Empty: ``cpu_sizes``."""
    replicated: tuple[str, ...] = ()
    """Tensor arguments that are the same on several ranks by definition; all others must differ from rank to rank."""
    reads: Callable[[int, int, int], bool] = lambda rank, peer, world_size: True
    """Whether outputs of ``rank`` depend on the inputs of ``peer`` in the public draw."""
    local_outputs: tuple[str, ...] = ()
    """Paths ("output.2", "output.metrics") of outputs that depend on the own rank's inputs alone."""
    permutable: bool = False
    """True if renumbering the ranks only renumbers the outputs, up to rounding: ``check`` then tries another order."""
    linear: tuple[str, ...] = ()
    """Tensor arguments whose common factor is a factor of every output: multiplied by a power of two on all ranks, they
    multiply all outputs by it. Empty where there are none, or none that are worth a probe."""
    blank: Callable[[Args], Args] | None = None
    """The arguments of a rank that contributes nothing; None: every float tensor zero, the rest as it is."""
    skip_draw: Callable[[Case], bool] = lambda case: False
    """True for cases that the mathematics or the range of the dtype excludes, e.g. scale 1e3 in fp16."""
    golden_inputs: Callable[[str, int], list[Args]] | None = None
    """Arguments of all ranks for the golden check of that name and world size, where they need code (golden.py)."""

    def __post_init__(self) -> None:
        unknown = {self.type, *self.also} - set(TYPES)
        if unknown:
            raise ValueError(f"problem {self.id}: unknown type {sorted(unknown)}")

    def dtype_of_run(self, precision: torch.dtype) -> torch.dtype:
        """Dtype in which the problem is posed and judged in a run of that precision: its own where it has no other."""
        return precision if precision in self.run_dtypes else self.run_dtypes[0]

    def public_case(self, *, world_size: int, dtype: torch.dtype, device: str) -> Case:
        """The case that is timed; ``dtype`` is the run's, ``device`` "cpu" or "cuda" picks the shape."""
        sizes = self.cpu_sizes if device == "cpu" else self.gpu_sizes
        return Case("public", world_size, self.dtype_of_run(dtype), sizes, property="public shape")

    def cases(self, *, world_size: int, dtype: torch.dtype, device: str, secret: torch.Generator) -> list[Case]:
        """Public, hidden, stress and structured cases of one evaluation, in the order in which they are tried."""
        public = self.public_case(world_size=world_size, dtype=dtype, device=device)
        sizes = self.hidden_sizes(public.sizes, secret)
        cases = [public, replace(public, name="hidden", sizes=sizes, kind="hidden", property=self.hidden_property)]
        for draw, sentence in self.draws.items():
            kind, _, what = sentence.partition(": ")
            cases.append(replace(public, name=draw, draw=draw, kind=kind, property=what))
        return [case for case in cases if not self.skip_draw(case)]

    def check_case(self, *, world_size: int, dtype: torch.dtype, draw: str = "normal") -> Case:
        """A case of the small shape on which ``check`` proves the problem."""
        return Case(draw, world_size, self.dtype_of_run(dtype), self.check_sizes or self.cpu_sizes, draw)

    def tolerance(self, dtype: torch.dtype) -> Tolerance:
        """Calibrated tolerance for cases of that dtype, for ``Close`` without its own; evidence: calibration.json."""
        return self.tolerances.get(dtype, DEFAULT_TOLERANCES[dtype])


def store(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round to the run dtype and back to float64: what an output or a stored intermediate of that dtype holds."""
    return x.to(dtype).to(torch.float64)


def wide(x: torch.Tensor) -> torch.Tensor:
    """The tensor in float64, for oracles."""
    return x.detach().to(torch.float64)
