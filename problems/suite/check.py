"""Proves problems of the suite on CPU and writes the calibration table.

For every problem, world size and run dtype (2 and 4 ranks, fp32 and bf16, unless others are asked for): golden numbers,
the reference against the oracle in every case, honest variants within a third of the tolerance, cheap cheats beyond
three times the tolerance, inputs that differ over ranks, a cost model that does not claim less than must be sent. All
on one gloo group per world size.
"""

from __future__ import annotations

import itertools
import json
import math
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import torch

from problems.suite import battery, golden
from problems.suite.base import Args, Case, Exact, Problem, RankCost, Rng
from problems.suite.battery import Trial
from problems.suite.costs import dtype_name, element_size
from problems.suite.ranks import RankResult, Ranks
from problems.suite.registry import CALIBRATION, SUITE_VERSION, calibration
from problems.suite.trees import leaves, tensors

MARGIN = 3.0
HALF_MARGIN = 1.5  # for half cheats: what counts there is an rms over all elements, which scatters little
DTYPES = (torch.float32, torch.bfloat16)
CHURN = 0.25  # measured figures move by less than this from machine to machine; the table then keeps its old ones


@dataclass
class Row:
    """Measured for one problem, run dtype and world size; ratios are errors in units of the tolerance."""

    dtype: torch.dtype
    world_size: int
    honest: dict[str, float] = field(default_factory=dict)
    cheats: dict[str, float] = field(default_factory=dict)
    waived: set[str] = field(default_factory=set)
    """Names of rows that a waiver covers."""

    def worst_honest(self) -> tuple[str, float]:
        """The honest variant, waived ones aside, with the largest error."""
        counted = {name: ratio for name, ratio in self.honest.items() if name.split("[")[0] not in self.waived}
        return max(counted.items(), key=lambda item: item[1], default=("none", 0.0))

    def best_cheat(self) -> tuple[str, float]:
        """The cheat, half ones and waived ones aside, that comes nearest to passing."""
        aside = {*battery.HALF_CHEATS, *self.waived}
        whole = {name: ratio for name, ratio in self.cheats.items() if name not in aside}
        return min(whole.items(), key=lambda item: item[1], default=("none", math.inf))


@dataclass
class Proof:
    """Everything that ``check`` found out about one problem."""

    problem: Problem
    rows: list[Row] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    waived: dict[str, str] = field(default_factory=dict)
    """Waiver that was needed -> its reason."""
    skipped: dict[int, str] = field(default_factory=dict)
    """World size that the problem is not defined for -> why."""
    seconds: float = 0.0
    call_seconds: dict[int, float] = field(default_factory=dict)
    """World size -> median seconds of a reference call at the public CPU shape, if measured."""

    def refuse(self, name: str, row: Row | None, sentence: str) -> None:
        """Records a fault unless a waiver of the problem covers that row."""
        keys = [name]
        if row is not None:
            dtype = dtype_name(row.dtype)
            keys = [f"{name}/{dtype}/{row.world_size}", f"{name}/{dtype}", f"{name}/{row.world_size}", name]
        for key in keys:
            if key in self.problem.waivers:
                self.waived[key] = self.problem.waivers[key]
                if row is not None:
                    row.waived.add(name)
                return
        where = f"{dtype_name(row.dtype)}, W={row.world_size}: " if row is not None else ""
        self.faults.append(f"{where}{name}: {sentence}")


def prove(
    problem: Problem, ranks: Mapping[int, Ranks], *, dtypes: Sequence[torch.dtype] = DTYPES, timed: bool = False
) -> Proof:
    """Runs every check of one problem on the given groups. What goes wrong is in ``faults``, never raised."""
    started = time.monotonic()
    proof = Proof(problem)
    try:
        for sentence in golden.run(problem, ranks):
            proof.refuse("golden", None, sentence)
        for world_size, dtype in itertools.product(ranks, dtypes):
            reason = problem.world_size_rule(world_size, problem.check_case(world_size=world_size, dtype=dtype).sizes)
            if reason:
                proof.skipped[world_size] = reason
            elif dtype in problem.run_dtypes:
                _prove_row(proof, Row(dtype, world_size), ranks[world_size])
        if timed:
            for world_size, group in ranks.items():
                if world_size not in proof.skipped:
                    proof.call_seconds[world_size] = _time_reference(problem, group)
    except Exception:
        proof.faults.append(f"check itself failed:\n{traceback.format_exc()}")
    for unused in problem.waivers.keys() - proof.waived.keys():
        if _must_be_used(unused, ranks, dtypes):
            proof.faults.append(f"waiver {unused!r} is not needed; remove it")
    proof.seconds = time.monotonic() - started
    return proof


def _must_be_used(waiver: str, ranks: Mapping[int, Ranks], dtypes: Sequence[torch.dtype]) -> bool:
    """Whether the waiver is for what was run now: the world size and run dtype that it names, else the usual ones."""
    named = waiver.split("/")[1:]
    world_sizes = {int(name) for name in named if name.isdigit()} or {2, 4}
    names = {name for name in named if not name.isdigit()} or {dtype_name(dtype) for dtype in DTYPES}
    return world_sizes <= ranks.keys() and names <= {dtype_name(dtype) for dtype in dtypes}


def trial(problem: Problem, case: Case, seed: int) -> Trial:
    """Inputs of a case by that seed, and what must come out. Raises ValueError if the oracle changes its arguments."""
    args = problem.inputs(case, Rng(seed, case.world_size))
    lent = battery.fresh(args)
    expected = problem.oracle(case, lent)
    for rank, (own, used) in enumerate(zip(args, lent, strict=True)):
        if changed := _changed(own, used, set(own)):
            raise ValueError(f"the oracle changed the argument {changed[0]} of rank {rank} in the case {case.name}")
    return Trial(problem, case, args, expected)


def _prove_row(proof: Proof, row: Row, group: Ranks) -> None:
    problem = proof.problem
    case = problem.check_case(world_size=row.world_size, dtype=row.dtype)
    first, second = trial(problem, case, 1), trial(problem, case, 2)
    for other in _other_cases(problem, case):
        _agree(proof, row, group, trial(problem, other, 3))
    _honest_variants(proof, row, group, first)
    row.cheats = battery.cheats(first, second)
    for name, ratio in row.honest.items():
        if not ratio * MARGIN <= 1.0:
            proof.refuse(name.split("[")[0], row, f"{name} uses {_figure(ratio)} of the tolerance, at most 1/3 allowed")
    for name, ratio in row.cheats.items():
        needed = HALF_MARGIN if name in battery.HALF_CHEATS else MARGIN
        if not ratio >= needed:
            what = f"{_figure(ratio)} times the tolerance, at least {needed:g} needed"
            proof.refuse(name, row, f"the cheat {'passes' if ratio <= 1 else 'nearly passes'}: {what}")
    for sentence in distinctness(first):
        proof.refuse("distinct_inputs", row, sentence)
    for sentence in cost_faults(first):
        proof.refuse("cost", row, sentence)
    proof.rows.append(row)


def _other_cases(problem: Problem, case: Case) -> Iterator[Case]:
    """Every draw at the small shape and one hidden shape."""
    cases = [Case(draw, case.world_size, case.dtype, case.sizes, draw) for draw in problem.draws]
    hidden = problem.hidden_sizes(problem.cpu_sizes, torch.Generator().manual_seed(problem.id))
    cases.append(Case("hidden", case.world_size, case.dtype, hidden))
    yield from (other for other in cases if not problem.skip_draw(other))


def _agree(proof: Proof, row: Row, group: Ranks, tried: Trial) -> None:
    name = f"reference[{tried.case.name}]"
    results = group.call(proof.problem.id, tried.args)
    if not _failed(proof, row, name, results):
        row.honest[name] = battery.verdict(tried, results)
        for sentence in mutations(tried, results):
            proof.refuse("mutation", row, f"{tried.case.name}: {sentence}")


def _honest_variants(proof: Proof, row: Row, group: Ranks, tried: Trial) -> None:
    """The reference, the oracle rounded once, the reference in the next wider dtype, and with ranks renumbered."""
    _agree(proof, row, group, tried)
    row.honest["rounded_oracle"] = battery.verdict(tried, battery.delivered(tried.expected))
    wide = group.call(proof.problem.id, battery.widened(tried.args, row.dtype))
    if not _failed(proof, row, "wide_reference", wide):
        row.honest["wide_reference"] = battery.verdict(tried, battery.narrowed_to_expected(tried.expected, wide))
    if proof.problem.permutable and row.world_size > 1:
        results = group.call(proof.problem.id, battery.rotated(tried.args))
        if not _failed(proof, row, "permuted_ranks", results):
            turned = Trial(tried.problem, tried.case, tried.args, battery.rotated(tried.expected))
            row.honest["permuted_ranks"] = battery.verdict(turned, results)


def _failed(proof: Proof, row: Row, name: str, results: list[RankResult]) -> bool:
    errors = [f"rank {r}: {result.error.strip()}" for r, result in enumerate(results) if result.error]
    if errors:
        # The rank that failed by itself says more than the ones that were stopped because of it.
        errors.sort(key=lambda text: "stopped, because" in text)
        proof.refuse(name.split("[")[0], row, f"{name}: {errors[0]}")
    return bool(errors)


def mutations(tried: Trial, results: list[RankResult]) -> list[str]:
    """Sentences on arguments that the call changed although they must keep their values."""
    found = []
    for rank, (before, after) in enumerate(zip(tried.args, results, strict=True)):
        kept = before.keys() - {*tried.problem.may_mutate, *tried.expected[rank].mutated}
        found += [f"rank {rank}: argument {name} was changed" for name in _changed(before, after.args, kept)]
    return found


def _changed(before: Args, after: Args, names: AbstractSet[str]) -> list[str]:
    """Those of the arguments whose tensors differ."""
    return [
        name
        for name in sorted(names)
        if not all(itertools.starmap(_identical, zip(tensors(before[name]), tensors(after[name]), strict=True)))
    ]


def _identical(old: torch.Tensor, new: torch.Tensor) -> bool:
    if old.layout != torch.strided:
        old, new = old.to_dense(), new.to_dense()
    return old.shape == new.shape and torch.equal(_bits(old), _bits(new))


def _bits(x: torch.Tensor) -> torch.Tensor:
    return x.contiguous().flatten().view(torch.uint8) if x.numel() else x


def distinctness(tried: Trial) -> list[str]:
    """Sentences on tensor arguments that two ranks have in common although nothing says that they are replicated."""
    found = []
    for name in tried.args[0]:
        if name in tried.problem.replicated:
            continue
        per_rank = [[x for x in tensors(args[name]) if x.numel() >= 4] for args in tried.args]
        for (q, first), (r, second) in itertools.combinations(enumerate(per_rank), 2):
            if any(_identical(x, y) for x, y in zip(first, second, strict=False)):
                found.append(
                    f"argument {name} is the same on ranks {q} and {r}; if by definition, name it in replicated"
                )
    return found


def cost_faults(tried: Trial) -> list[str]:
    """Sentences on cost figures that cannot be: negative, out of balance, or below what must be moved.

    What must be received is known for bit-exact float outputs: every distinct value that is lost when the other ranks
    contribute nothing.
    """
    costs = tried.problem.cost(tried.case, tried.args)
    found = figure_faults(costs)
    for rank, cost in enumerate(costs):
        outputs = sum(_size(leaf.value.numel(), leaf.dtype) for _, leaf in leaves(tried.expected[rank]))
        if cost.hbm < outputs * (1 - 1e-9):
            found.append(f"rank {rank}: {cost.hbm:.0f} HBM bytes, but the outputs alone have {outputs:.0f}")
        needed = _needed(tried, rank) if tried.case.world_size > 1 else 0.0
        if cost.received < needed * (1 - 1e-9):
            found.append(f"rank {rank}: receives {cost.received:.0f} bytes, but {needed:.0f} must come from others")
    return found


def figure_faults(costs: Sequence[RankCost]) -> list[str]:
    """Sentences on figures of the cost model that cannot be, whatever the problem."""
    found = []
    sent, received = sum(c.sent for c in costs), sum(c.received for c in costs)
    if not math.isclose(sent, received, rel_tol=1e-6, abs_tol=1e-6):
        found.append(f"the ranks send {sent:.0f} bytes and receive {received:.0f}; point-to-point these are equal")
    for rank, cost in enumerate(costs):
        figures = [*cost.flops.values(), cost.hbm, cost.sent, cost.received, cost.floor_bytes]
        if any(figure < 0 or not math.isfinite(figure) for figure in figures):
            found.append(f"rank {rank}: a figure is negative or not finite: {cost}")
        if cost.floor_bytes > max(cost.sent, cost.received) * (1 + 1e-9):
            found.append(f"rank {rank}: one_way {cost.one_way:.0f} is above the point-to-point bytes")
    return found


def _size(elements: int, dtype: torch.dtype) -> float:
    return float(elements * element_size(dtype))


def _needed(tried: Trial, rank: int) -> float:
    """Bytes of distinct values of bit-exact float outputs that the rank does not hold itself, at most all inputs."""
    alone = [args if r == rank else tried.blank(args) for r, args in enumerate(tried.args)]
    lost = dict(leaves(tried.problem.oracle(tried.case, alone)[rank]))
    floats = (x for x in tensors(tried.args[rank]) if x.is_floating_point())
    held = [(x if x.layout == torch.strided else x.to_dense()).to(torch.float64).flatten() for x in floats]
    own = torch.cat(held) if held else torch.empty(0, dtype=torch.float64)
    needed = 0.0
    for path, leaf in leaves(tried.expected[rank]):
        if not isinstance(leaf.rule, Exact) or not leaf.value.is_floating_point():
            continue
        other = lost[path].value
        whole = leaf.value.to(leaf.dtype)
        if other.shape == leaf.value.shape:
            whole = whole[whole != other.to(leaf.dtype)]
        values = torch.unique(whole.to(torch.float64))
        needed += _size(int((~torch.isin(values, own)).sum()), leaf.dtype)
    theirs = sum(_size(x.numel(), x.dtype) for r, a in enumerate(tried.args) if r != rank for x in tensors(a))
    return min(needed, theirs)


def _time_reference(problem: Problem, group: Ranks) -> float:
    """Median seconds of seven calls at the public CPU shape in fp32; a call lasts as long as on its slowest rank."""
    case = problem.public_case(world_size=group.world_size, dtype=torch.float32, device="cpu")
    args = problem.inputs(case, Rng(1, group.world_size))
    seconds = sorted(max(result.seconds for result in group.call(problem.id, args)) for _ in range(7))
    return seconds[3]


# The table ------------------------------------------------------------------------------------------------------------


def table_entry(proof: Proof) -> dict[str, Any]:
    """Entry of the calibration table: run dtype -> world size -> figures, and the waivers that were needed.

    ``rms`` and ``element`` are the tolerance; ``honest`` (largest) and ``cheat`` (smallest), waived ones aside, are
    errors in units of it, null where the comparison is exact. The margins are 1 / honest and cheat.
    """
    entry: dict[str, Any] = {}
    for row in sorted(proof.rows, key=lambda row: (dtype_name(row.dtype), row.world_size)):
        tolerance = proof.problem.tolerance(row.dtype)
        (honest_name, honest), (cheat_name, cheat) = row.worst_honest(), row.best_cheat()
        entry.setdefault(dtype_name(row.dtype), {})[str(row.world_size)] = {
            "rms": _rounded(tolerance.rms),
            "element": tolerance.units,
            "honest": _rounded(honest) if honest > 0 else None,
            "honest_variant": honest_name if honest > 0 else "exact",
            "cheat": _rounded(cheat),
            "cheat_name": cheat_name if math.isfinite(cheat) else "exact",
        }
    if proof.waived:
        entry["waivers"] = dict(sorted(proof.waived.items()))
    return entry


def _rounded(figure: float) -> float | None:
    """Three significant digits; None for an infinite one."""
    return float(f"{figure:.3g}") if math.isfinite(figure) else None


def write_table(proofs: Iterable[Proof]) -> None:
    """Puts the proofs into calibration.json; entries of other problems stay.

    So do figures of run dtypes and world sizes that were not run now. An entry whose figures have moved by less than
    CHURN stays too: they differ a little from machine to machine, and a change makes a new version of the problem.
    """
    table = calibration()
    for proof in proofs:
        key, entry = str(proof.problem.id), table_entry(proof)
        known = table.get(key, {})
        for name, rows in known.items():
            entry[name] = rows | entry.get(name, {})
        if "waivers" in entry:
            entry["waivers"] = {name: text for name, text in proof.problem.waivers.items() if name in entry["waivers"]}
        if not _alike(known, entry):
            table[key] = entry
    ordered = {key: table[key] for key in sorted(table, key=int)}
    text = json.dumps({"suite": SUITE_VERSION, "problems": ordered}, indent=1, sort_keys=True)
    CALIBRATION.write_text(text + "\n", encoding="utf-8")


def _alike(old: Any, new: Any) -> bool:
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(
            key in ("honest_variant", "cheat_name") or _alike(old[key], new[key]) for key in old
        )
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=CHURN)
    return bool(old == new)


def report(proof: Proof) -> str:
    """One line on a problem, and one more for every fault, waiver and world size left out."""
    worst = max((r for r in proof.rows), key=lambda r: r.worst_honest()[1], default=None)
    nearest = min((r for r in proof.rows), key=lambda r: r.best_cheat()[1], default=None)
    parts = [f"{proof.problem.id:3} {proof.problem.slug:44}", "FAILED" if proof.faults else "passed"]
    if worst is not None and nearest is not None:
        parts.append(f"honest {_figure(worst.worst_honest()[1]):>8} ({_place(worst, worst.worst_honest()[0])})")
        parts.append(f"cheat {_figure(nearest.best_cheat()[1]):>8} ({_place(nearest, nearest.best_cheat()[0])})")
    parts += [f"call W={W}: {seconds * 1e3:.1f} ms" for W, seconds in proof.call_seconds.items()]
    parts.append(f"{proof.seconds:.1f} s")
    lines = ["  ".join(parts)]
    lines += [f"      - {fault}" for fault in proof.faults]
    lines += [f"      waived {name}: {reason}" for name, reason in proof.waived.items()]
    lines += [f"      not for W={W}: {reason}" for W, reason in proof.skipped.items()]
    return "\n".join(lines)


def _place(row: Row, name: str) -> str:
    return f"{name}, {dtype_name(row.dtype)}, W={row.world_size}"


def _figure(ratio: float) -> str:
    return "exact" if math.isinf(ratio) else f"{ratio:.3g}"
