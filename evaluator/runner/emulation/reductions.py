"""Reductions as NCCL does them: rank after rank, rounded to the tensor's dtype at every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

ReduceOp = dist.ReduceOp

# What NCCL carries; complex tensors come as pairs of reals.
DTYPES = frozenset(
    {
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.float8_e4m3fn,
        torch.float8_e5m2,
    }
)


def same(operation: Any, kind: Any) -> bool:
    """True if ``operation`` (a ReduceOp or one of its kinds) is ``kind``."""
    return bool(operation == kind)


def factor(operation: Any) -> float | Tensor:
    """What PREMUL_SUM multiplies every input with."""
    found = getattr(operation, "factor", None)
    if found is None:
        found = operation.__getstate__()[1]
    if not isinstance(found, float | int | Tensor):
        raise ValueError(f"PREMUL_SUM carries no factor but a {type(found).__name__}")
    return found


def check_reduction(operation: Any, dtype: torch.dtype) -> None:
    """Refuses what NCCL refuses. Raises RuntimeError with NCCL's reason."""
    for kind in ("BAND", "BOR", "BXOR"):
        if same(operation, getattr(ReduceOp, kind)):
            raise RuntimeError(f"Cannot use ReduceOp.{kind} with NCCL")
    if dtype is torch.bool and same(operation, ReduceOp.AVG):
        raise RuntimeError("Cannot use ReduceOp.AVG with Boolean inputs")
    if same(operation, ReduceOp.PREMUL_SUM) and not dtype.is_floating_point:
        raise RuntimeError("PREMUL_SUM requires floating point tensors")


def reduce_parts(parts: Sequence[Tensor], operation: Any) -> Tensor:
    """Reduction of the ranks' equal-shaped ``parts`` in order of rank, rounded to their dtype at every step."""
    dtype = parts[0].dtype
    # torch has no arithmetic for 8-bit floats: by way of float32, rounded back each time.
    wide = torch.float32 if dtype in (torch.float8_e4m3fn, torch.float8_e5m2) else dtype
    scale: float | Tensor | None = None
    if same(operation, ReduceOp.AVG) and dtype.is_floating_point:
        scale = 1.0 / len(parts)  # NCCL scales every input, then adds
    elif same(operation, ReduceOp.PREMUL_SUM):
        scale = factor(operation)
    terms = [part.to(wide) for part in parts]
    if scale is not None:
        terms = [(term * scale).to(dtype).to(wide) for term in terms]
    total = terms[0].clone()
    for term in terms[1:]:
        total = combine(total, term, operation).to(dtype).to(wide)
    if same(operation, ReduceOp.AVG) and not dtype.is_floating_point:
        total = torch.div(total, len(parts), rounding_mode="trunc")
    return total.to(dtype)


def combine(left: Tensor, right: Tensor, operation: Any) -> Tensor:
    if left.dtype is torch.bool:  # NCCL takes bytes and maps the sum to the maximum: "or"
        lowest = same(operation, ReduceOp.PRODUCT) or same(operation, ReduceOp.MIN)
        return left & right if lowest else left | right
    if same(operation, ReduceOp.PRODUCT):
        return left * right
    smallest, largest = extremes(left.dtype)
    if same(operation, ReduceOp.MIN):
        return smallest(left, right)
    if same(operation, ReduceOp.MAX):
        return largest(left, right)
    return left + right


def extremes(dtype: torch.dtype) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Minimum and maximum; of floats, a number wins over NaN as in fminf and fmaxf, which NCCL uses."""
    return (torch.fmin, torch.fmax) if dtype.is_floating_point else (torch.minimum, torch.maximum)
