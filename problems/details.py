"""The details of a problem version, as the manifest holds them, in the words of its page.

``ProblemVersion.details`` comes from ``problems/suite/manifest.json``; versions from other manifests may lack parts,
which then are left out of the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_RULES = {
    "exact": "exact, bit for bit",
    "tolerance": "within the tolerance",
    "validity": "any value that obeys the rule of the statement",
    "unspecified": "not compared",
}


@dataclass(frozen=True)
class Tensor:
    """An argument or an output of the example: its name, what it is on rank 0, and how it differs between ranks.

    ``kind``: "input", "output", or "after the call" for what an argument must hold then.
    """

    kind: str
    name: str
    value: str
    by_rank: str
    note: str


@dataclass(frozen=True)
class Cost:
    """Least work of the most loaded rank for one call; ``flops`` and bytes as text with units."""

    shape: str
    world_size: int
    dtype: str
    flops: str
    hbm: str
    sent: str
    received: str
    floor: str


@dataclass(frozen=True)
class Calibration:
    """How far the tolerance stands from honest errors and from cheats; errors in units of the tolerance."""

    dtype: str
    world_size: str
    honest: str
    honest_name: str
    cheat: str
    cheat_name: str
    margin: str


@dataclass(frozen=True)
class Details:
    inputs: list[Tensor]
    outputs: list[Tensor]
    example: str
    sizes: list[tuple[str, str]]
    own_dtype: str
    """The dtype of a problem whose inputs do not follow the precision of the run; "" for all others."""
    draws: list[tuple[str, str, str]]
    hidden: str
    hazards: list[str]
    tolerances: list[tuple[str, str, str]]
    calibration: list[Calibration]
    waivers: list[tuple[str, str]]
    costs: list[Cost]
    undefined: list[tuple[str, str]]


def read(details: Mapping[str, Any]) -> Details:
    """Everything that the page shows of ``details``."""
    return Details(
        inputs=[_input(entry, details) for entry in details.get("inputs", [])],
        outputs=[_output(entry) for entry in details.get("outputs", [])],
        example=_example(details.get("example", {})),
        sizes=[(device.upper(), _sizes(sizes)) for device, sizes in details.get("sizes", {}).items()],
        own_dtype=own_dtype(details),
        draws=[(name, *_kind(sentence)) for name, sentence in details.get("draws", {}).items()],
        hidden=details.get("hidden_property", ""),
        hazards=list(details.get("hazards", [])),
        tolerances=[_tolerance(dtype, values) for dtype, values in details.get("tolerances", {}).items()],
        calibration=_calibration(details.get("calibration", {})),
        waivers=_waivers(details),
        costs=[cost(entry) for entry in details.get("costs", [])],
        undefined=[(world, reason) for world, reason in details.get("world_sizes", {}).items() if reason],
    )


def dtype_of_run(details: Mapping[str, Any], precision: str) -> str:
    """Dtype in which the problem is posed and judged in a run of that precision; few have one of their own."""
    return str(details.get("dtype_of_run", {}).get(precision, precision))


def own_dtype(details: Mapping[str, Any]) -> str:
    """The dtype of a problem whose inputs do not follow the precision of the run; "" for all others."""
    asked = details.get("dtype_of_run", {})
    return next((str(dtype) for precision, dtype in asked.items() if dtype != precision), "")


def _input(entry: Mapping[str, Any], details: Mapping[str, Any]) -> Tensor:
    name = entry["name"]
    notes = [
        "the same on every rank" if entry.get("replicated") else "",
        "its entries are replaced by new tensors" if name in details.get("replaces", []) else "",
        "may be changed" if name in details.get("may_mutate", []) else "",
        "the output may share its memory" if name in details.get("may_alias", []) else "",
    ]
    by_rank = "; ".join(f"rank {rank}: {_value(v)}" for rank, v in enumerate(entry.get("value_by_rank", [])))
    return Tensor("input", name, _value(entry["value"]), by_rank, ", ".join(filter(None, notes)))


def _output(entry: Mapping[str, Any]) -> Tensor:
    by_rank = "; ".join(
        f"rank {rank}: {_shape(shape) if shape is not None else 'none'}"
        for rank, shape in enumerate(entry.get("shape_by_rank", []))
    )
    value = f"{_value(entry)}{' on the host' if entry.get('device') == 'cpu' else ''}"
    is_argument = entry["path"].startswith("arg:")
    kind, name = "after the call" if is_argument else "output", _place(entry["path"].removeprefix("arg:"))
    return Tensor(kind, name, value, by_rank, _RULES.get(entry["rule"], entry["rule"]))


def _place(path: str) -> str:
    """'output.0.loss' -> 'output[0]["loss"]'."""
    name, *keys = path.split(".")
    return name + "".join(f"[{key}]" if key.isdigit() else f'["{key}"]' for key in keys)


def _value(value: Any) -> str:
    """A tensor as shape and dtype, a module or group by what it is, a list by its items, anything else as Python."""
    if isinstance(value, Mapping):
        if "shape" in value:
            dtype = "run dtype" if value["dtype"] == "run" else value["dtype"]
            return " ".join(filter(None, (_shape(value["shape"]), dtype, value.get("layout", ""))))
        if "module" in value:
            return f"{value['module']} with weight {_shape(value['weight'])}{' and bias' if value.get('bias') else ''}"
        if "group" in value:
            return f"process group; the world is cut into {value['group']}"
    if isinstance(value, list):
        return f"[{', '.join(_value(item) for item in value)}]"
    return repr(value)


def _shape(shape: Sequence[int]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{letter} = {size:,}" for letter, size in sizes.items())


def _example(example: Mapping[str, Any]) -> str:
    if not example:
        return ""
    return f"{example['world_size']} ranks, run dtype {example['dtype']}, {_sizes(example['sizes'])}"


def _kind(sentence: str) -> tuple[str, str]:
    kind, _, what = sentence.partition(": ")
    return kind, what


def _tolerance(dtype: str, values: Mapping[str, float | None]) -> tuple[str, str, str]:
    rms, units = (values[name] for name in ("rms", "units"))
    return dtype, "not bounded" if rms is None else f"{rms:.3g}", f"{units:.3g}"


def _calibration(table: Mapping[str, Any]) -> list[Calibration]:
    return [
        _calibrated(dtype, world_size, row)
        for dtype, rows in table.items()
        if dtype != "waivers"
        for world_size, row in rows.items()
    ]


def _calibrated(dtype: str, world_size: str, row: Mapping[str, Any]) -> Calibration:
    """A row of the calibration table; the margin is the smaller one of tolerance / honest and cheat / tolerance."""
    honest, cheat = row["honest"], row["cheat"]
    margins = [*([1 / honest] if honest else []), *([cheat] if cheat is not None else [])]
    return Calibration(
        dtype,
        world_size,
        "0" if honest is None else f"{honest:.3g}",
        _variant(row["honest_variant"]),
        "infinite" if cheat is None else f"{cheat:.3g}",
        _variant(row["cheat_name"]),
        f"{min(margins):.3g}" if margins else "exact",
    )


def _variant(name: str) -> str:
    """'reference[hidden]' -> 'reference, hidden'; names of rows with spaces."""
    return "compared exactly" if name == "exact" else name.replace("_", " ").replace("[", ", ").removesuffix("]")


def _waivers(details: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Rows of the proof that the problem cannot meet, as 'narrow outputs (bf16)', each with its reviewed reason."""
    return [
        (f"{name.replace('_', ' ')}{f' ({where})' if where else ''}", reason)
        for key, reason in details.get("waivers", {}).items()
        for name, _, where in [key.partition("/")]
    ]


def cost(entry: Mapping[str, Any]) -> Cost:
    """An entry of the cost model in words."""
    flops = ", ".join(f"{_amount(number, 'flop')} {unit}" for unit, number in entry["flops"].items())
    bytes_ = {name: _amount(entry[name], "B") for name in ("hbm", "sent", "received", "floor")}
    return Cost(entry["shape"].upper(), entry["world_size"], entry["dtype"], flops or "–", **bytes_)


def _amount(number: float, unit: str) -> str:
    """Three significant digits with a decimal prefix: 4194300 -> '4.19 MB'."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{number / factor:.3g} {prefix}{unit}"
    return f"{number:.3g} {unit}"
