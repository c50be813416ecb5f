"""Whether two arms say the same about the same inputs: cheap enough for every timed call.

Both outputs are within the tolerance of the oracle if they are right, so they are within twice the tolerance of each
other. Whatever is further apart is verified in full by the caller; nothing is refused here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from evaluator.judge.launch import Call, Launch
from evaluator.judge.layout import Encoded
from evaluator.judge.structure import tensors
from problems.suite.base import Tolerance

SIDES = 2.0  # each of the two may be wrong by as much as is allowed


def distance(reference: tuple[Launch, Call], candidate: tuple[Launch, Call], tolerance: Tolerance) -> float:
    """Largest rms difference of two tensors in units of what two right results may differ by; 0 for no tensors.

    Infinite where number, shape, dtype, an integer or the place of a NaN or an infinity differ.
    """
    worst = 0.0
    for ours, theirs, a, b in zip(
        reference[0].ends, candidate[0].ends, reference[1].outputs, candidate[1].outputs, strict=True
    ):
        wanted, got = list(tensors(a)), list(tensors(b))
        if [(n.dtype, n.shape, n.offset is None) for n in wanted] != [
            (n.dtype, n.shape, n.offset is None) for n in got
        ]:
            return math.inf
        for one, other in zip(wanted, got, strict=True):
            if one.offset is not None and one.nbytes:
                worst = max(worst, _apart(ours.target.view(one), theirs.target.view(other), tolerance))
    return worst


def changed(launch: Launch, arguments: Sequence[Encoded], start: int) -> set[str]:
    """Names of arguments whose bytes a call has changed on some rank."""
    return {
        name for end, encoded in zip(launch.ends, arguments, strict=True) for name in encoded.changed(end.source, start)
    }


def _apart(one: torch.Tensor, other: torch.Tensor, tolerance: Tolerance) -> float:
    if not (one.is_floating_point() or one.is_complex()) or one.element_size() == 1:
        return 0.0 if torch.equal(one.view(torch.uint8), other.view(torch.uint8)) else math.inf
    a, b = (_wide(tensor) for tensor in (one, other))
    size, difference = float(torch.linalg.vector_norm(a)), float(torch.linalg.vector_norm(a - b))
    if not math.isfinite(difference):
        if not torch.equal(a.isfinite(), b.isfinite()) or not torch.equal(a.isnan(), b.isnan()):
            return math.inf
        a, b = (torch.where(a.isfinite(), tensor, 0.0) for tensor in (a, b))
        size, difference = float(torch.linalg.vector_norm(a)), float(torch.linalg.vector_norm(a - b))
    allowed = SIDES * _allowed(tolerance, a.numel()) * size
    if difference <= allowed:
        return difference / allowed if allowed else 0.0
    return difference / allowed if allowed else math.inf


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.reshape(-1).to(torch.promote_types(tensor.dtype, torch.float32))


def _allowed(tolerance: Tolerance, count: int) -> float:
    """The rms error that is allowed, in units of the rms: as in ``problems.suite.compare``."""
    if math.isfinite(tolerance.rms):
        return tolerance.rms * (1.0 + 2.0 / math.sqrt(max(1, count)))
    return math.hypot(tolerance.units, tolerance.relative)
