"""The section of a prompt that says what the hardware can do, and what that means for the problem."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluator.roofline import PeakRates, Times
from problems import bounds, details
from problems.hardware import Hardware, MeasuredRates

_MOVEMENT = {
    "copy_engine": "copy engine: `copy_` from or to a peer's buffer; uses no SM, close to the link's peak, but only "
    "for large contiguous pieces (some hundred kB and more)",
    "tma": "TMA bulk copies (`cp.async.bulk`) between shared memory and a peer's global memory: asynchronous, one "
    "thread starts them, near the peak already with tiles of a few kB and few SMs",
    "load_store": "loads, stores and atomics of the SMs over peer pointers (16 bytes a thread): the finest grain and "
    "the lowest latency, fuses with any arithmetic, takes many SMs to fill the link",
    "multimem": "in-switch multicast and reduction (`multimem.ld_reduce`, `multimem.st`, `multimem.red` on "
    "`multicast_ptr`): one read returns the sum over all ranks, one write reaches all of them",
}


def describe(entry: Mapping[str, Any], precision: str, target: Hardware) -> str:
    """The target's figures, its ways of moving data, and the bounds of the problem on it."""
    lines = [f"{target.title}; {target.world_size} ranks{_gpu(target)}.", *([target.label] if target.label else [])]
    if target.rates is not None:
        lines.append(_rates(target.rates, target))
    if target.measured is not None:
        lines.append(_measured(target.measured))
    if target.movement:
        ways = "\n".join(f"- {_MOVEMENT[way]}" for way in target.movement)
        lines.append(f"Ways in which data get from one GPU to another:\n\n{ways}")
    if target.device == "cuda" and "multimem" not in target.movement:
        lines.append("There is no in-switch multicast here: `multicast_ptr` is 0.")
    if target.device == "cpu":
        lines.append("Data move through gloo collectives on shared memory of one machine; there is no GPU.")
    lines += _work(entry, precision, target)
    return "\n\n".join(lines)


def _gpu(target: Hardware) -> str:
    """Facts on the GPU, led by a comma; "" where the target does not fix a GPU."""
    facts = target.facts
    if not facts:
        return ""
    return (
        f", one GPU each ({facts['architecture']}, compute capability {facts['compute_capability']}, "
        f"{facts['sms']} SMs, {facts['shared_memory_per_block_bytes'] // 1024} KiB of shared memory a block, "
        f"{facts['memory_bytes'] / 1e9:.0f} GB of memory, {facts['link']})"
    )


def _rates(rates: PeakRates, target: Hardware) -> str:
    return (
        "Peaks per GPU, dense:\n\n"
        f"- arithmetic: {_arithmetic(rates.flops)}\n"
        f"- memory (HBM): {rates.hbm_bytes_per_second / 1e12:.2f} TB/s; L2 cache {target.cache_bytes / 2**20:.0f} MiB\n"
        f"- link: {rates.link_bytes_per_second / 1e9:.0f} GB/s in each direction, to all peers together"
    )


def _measured(rates: MeasuredRates) -> str:
    return (
        f"Measured with torch on {rates.gpu} ({rates.date}), for large square products and a large copy: "
        f"{_arithmetic(rates.flops)}; memory {rates.hbm_bytes_per_second / 1e12:.2f} TB/s, read and written together."
    )


def _arithmetic(flops: Mapping[str, float]) -> str:
    return ", ".join(f"{dtype} {value / 1e12:.0f} TFLOP/s" for dtype, value in flops.items())


def _work(entry: Mapping[str, Any], precision: str, target: Hardware) -> list[str]:
    """Least work of one call at the timed shape and, where peaks are known, what it takes at least."""
    shape = "gpu" if target.device == "cuda" else "cpu"
    dtype = details.dtype_of_run(entry, precision)
    cost = bounds.cost(entry, world_size=target.world_size, dtype=dtype, shape=shape)
    if cost is None:
        return []
    shown = details.cost(cost)
    lines = [
        f"Least work of the most loaded rank for one call at the timed shape: arithmetic {shown.flops}; "
        f"memory {shown.hbm}; link {shown.sent} sent and {shown.received} received point to point, at least "
        f"{shown.floor} in one direction by any algorithm."
    ]
    bound = bounds.bound(entry, target, precision)
    if bound is not None:
        lines.append(_bound(bound.times))
    return lines


def _bound(times: Times) -> str:
    return (
        f"At peak rates that takes {_seconds(times.compute)} of arithmetic, {_seconds(times.memory)} of memory traffic "
        f"and {_seconds(times.link)} on the link: {_seconds(times.overlap)} with perfect overlap (limited by "
        f"{times.limited_by}), {_seconds(times.serial)} if communication follows arithmetic. A launch and a barrier "
        "over all ranks cost some microseconds each; where the bound is below that, latency is what counts."
    )


def _seconds(value: float) -> str:
    """'0.52 µs', '13.4 µs', '1.20 ms'."""
    return f"{value * 1e3:.2f} ms" if value >= 1e-3 else f"{value * 1e6:.{2 if value < 1e-5 else 1}f} µs"
