"""The sections of a prompt that say what is asked: task, reference, arguments, particulars, output."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from problems import details
from problems.hardware import Hardware

_DTYPES = {"bf16": "torch.bfloat16", "fp16": "torch.float16", "fp32": "torch.float32"}


def summary(entry: Mapping[str, Any], backend: str, precision: str, target: Hardware) -> str:
    """What to do, in three paragraphs."""
    kinds = ", ".join([entry["type"], *entry["also"]]).replace("_", " ")
    ranks = f"{target.world_size} ranks, one process each"
    lines = [
        f"Write a faster implementation of the distributed operator below (problem {entry['id']}, `{entry['slug']}`; "
        f"kind of parallelism: {kinds}). It runs on {target.title}: {ranks}. "
        f"{_run_dtype(details.dtype_of_run(entry, precision), precision)}",
        entry["statement"],
    ]
    if entry["communication"]:
        lines.append(f"Communication of the reference: {'; '.join(entry['communication'].splitlines())}.")
    lines.append(
        "It must give the same results as the reference on every rank and be faster than it. Correctness comes first: "
        "a wrong file counts as if there were none."
    )
    return "\n\n".join(lines)


def _run_dtype(dtype: str, precision: str) -> str:
    if dtype == precision:
        return f"The run dtype is {precision} (`{_DTYPES[precision]}`)."
    name = _DTYPES[dtype].removeprefix("torch.")
    return (
        f"The precision of the run is {precision}; this problem's inputs are {name} whatever the precision of the run, "
        f"so its run dtype is {dtype} (`torch.{name}`)."
    )


def reference(entry: Mapping[str, Any]) -> str:
    """The reference as one file, with a sentence on what it is."""
    return (
        "What is to be replaced, complete as one file. It is also what your time is compared with.\n\n"
        f"{code(entry['reference'])}"
    )


def arguments(entry: Mapping[str, Any], dtype: str, target: Hardware) -> str:
    """Shapes of the public case as letters, and one small example call argument by argument."""
    read = details.read(entry)
    shape = "gpu" if target.device == "cuda" else "cpu"
    letters = {**entry.get("sizes", {}).get(shape, {}), "W": target.world_size}
    sizes = ", ".join(f"{letter} = {size}" for letter, size in letters.items())
    lines = [f"Timed (public) shape: {sizes}, dtype {dtype}."]
    if read.example:
        lines.append(f"An example call with small inputs, as rank 0 sees it ({read.example}):")
    rows = [f"- `{t.name}`: {t.value}{_more(t.by_rank)}{_more(t.note)}" for t in read.inputs]
    for t in read.outputs:
        place = f"after the call `{t.name}` must hold" if t.kind == "after the call" else f"returns `{t.name}`:"
        rows.append(f"- {place} {t.value}{_more(t.by_rank)}{_more(t.note)}")
    return "\n\n".join(lines) + "\n\n" + "\n".join(rows)


def particulars(entry: Mapping[str, Any], dtype: str) -> str:
    """What is special about this problem's trials: mutation, aliasing, hidden shapes, draws, tolerance, hazards."""
    read = details.read(entry)
    mutable, shared = (_names(entry.get(key, [])) for key in ("may_mutate", "may_alias"))
    lines = [
        f"Inputs keep their values, except {mutable}, which may be changed."
        if mutable
        else "Inputs keep their values: none may be changed.",
        f"A result may share memory with {shared}; with no other input."
        if shared
        else "No result may share memory with an input.",
    ]
    if read.hidden:
        lines.append(f"Hidden shapes: {read.hidden}.")
    lines += [f"Draw `{name}` ({kind}): {what}." for name, kind, what in read.draws]
    lines += [f"Tolerance: {text}" for text in _tolerance(entry, dtype)]
    lines += [f"Hazard: {hazard}" for hazard in read.hazards]
    return "\n".join(f"- {line}" for line in lines)


def output(entry: Mapping[str, Any], backend: str) -> str:
    """How the answer must look."""
    return (
        f"Answer with one Python file and nothing else, in a single fenced code block that begins with "
        f"` ```python `. Its name will be `{entry['id']}_{entry['slug']}_{backend}.py`. It must import everything it "
        "uses, define `solution` with the signature above, and hold neither tests nor a `main`."
    )


def code(source: str) -> str:
    """Python source as a fenced block."""
    return f"```python\n{source.strip()}\n```"


def _tolerance(entry: Mapping[str, Any], dtype: str) -> list[str]:
    values = entry.get("tolerances", {}).get(dtype)
    if values is None:
        return []
    whole = "" if values["rms"] is None else f"; the rms error of a whole output at most {values['rms']:.3g} × its rms"
    element = f"{values['units']:.3g} × rms of the expected output + {values['relative']:.3g} × |expected value|"
    return [
        f"an element may be off by {element}{whole}. Integers, booleans and pure data movement are compared exactly."
    ]


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _more(text: str) -> str:
    return f" ({text})" if text else ""
