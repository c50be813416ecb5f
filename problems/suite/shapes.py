"""Hidden shapes: drawn by secret seed near the public one, so that a kernel cannot be written for one shape only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch


def jitter(
    public: Mapping[str, int],
    secret: torch.Generator,
    *,
    odd: Sequence[str] = (),
    multiple: Mapping[str, int] | None = None,
    keep: Sequence[str] = (),
) -> dict[str, int]:
    """Sizes between 3/8 and 7/8 of the public ones.

    Sizes named in ``odd`` become odd, those in ``multiple`` a multiple of the number given, those in ``keep`` stay.
    """
    multiple = multiple or {}
    sizes: dict[str, int] = {}
    for name, size in public.items():
        if name in keep:
            sizes[name] = size
            continue
        low, high = max(1, 3 * size // 8), max(2, 7 * size // 8)
        drawn = int(torch.randint(low, high + 1, (1,), generator=secret))
        if name in odd:
            drawn |= 1
        step = multiple.get(name, 1)
        sizes[name] = max(step, drawn // step * step)
    return sizes
