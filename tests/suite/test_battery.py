"""``check`` must notice weak inputs, wrong oracles, loose tolerances and cost models that claim too little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from problems.suite import registry
from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.check import Proof, mutations, prove, trial
from problems.suite.ranks import RankResult, Ranks


def _rows(proof: Proof) -> set[str]:
    """Names of the rows that failed: "bf16, W=2: zeros: …" -> "zeros"."""
    return {fault.split(": ")[1] for fault in proof.faults}


def _constant_inputs(case: Case, rng: Rng) -> list[Args]:
    """Every element of rank r is r + 1, as in a well-known test of collectives."""
    shape = (case["M"], case["N"])
    return [{"tensor": torch.full(shape, r + 1.0, dtype=case.dtype)} for r in range(case.world_size)]


def _same_inputs(case: Case, rng: Rng) -> list[Args]:
    own = {"tensor": rng.normal(None, (case["M"], case["N"])).to(case.dtype)}
    return [dict(own) for _ in range(case.world_size)]


def _one_loud_rank(case: Case, rng: Rng) -> list[Args]:
    """The share of rank 1 drowns in that of rank 0."""
    shape = (case["M"], case["N"])
    scales = [1.0, 1e-3, *[1.0] * (case.world_size - 2)]
    return [{"tensor": rng.normal(r, shape, std=scales[r]).to(case.dtype)} for r in range(case.world_size)]


def _forgetful_oracle(case: Case, args: list[Args]) -> list[Expected]:
    total = torch.stack([wide(a["tensor"]) for a in args[1:]]).sum(0)
    return [Expected(Leaf(total, case.dtype)) for _ in args]


def _careless_oracle(case: Case, args: list[Args]) -> list[Expected]:
    args[0]["tensor"] += 1
    return registry.get(1).oracle(case, args)


@pytest.mark.parametrize(
    ("weaken", "rows"),
    [
        (lambda p: replace(p, inputs=_constant_inputs), {"mean", "stale"}),
        (lambda p: replace(p, inputs=_same_inputs), {"distinct_inputs"}),
        (lambda p: replace(p, inputs=_one_loud_rank), {"missing_rank"}),
        (lambda p: replace(p, oracle=_forgetful_oracle), {"reference", "permuted_ranks"}),
        (lambda p: replace(p, tolerances=calibrated(bf16=0.2, fp32=0.2)), {"lower_precision"}),
        (lambda p: replace(p, tolerances=calibrated(bf16=1e-3, fp32=1e-8)), {"reference", "rounded_oracle"}),
    ],
    ids=["constant", "replicated", "drowned", "wrong-oracle", "too-loose", "too-tight"],
)
def test_weak_problem_is_reported(
    weaken: Callable[[Problem], Problem], rows: set[str], groups: dict[int, Ranks]
) -> None:
    proof = prove(weaken(registry.get(1)), {2: groups[2]})
    assert rows <= _rows(proof)


def test_oracle_that_changes_its_arguments_is_reported(groups: dict[int, Ranks]) -> None:
    proof = prove(replace(registry.get(1), oracle=_careless_oracle), {2: groups[2]})
    assert any("the oracle changed the argument tensor of rank 0" in fault for fault in proof.faults)


def test_reference_without_exchange_is_reported(groups: dict[int, Ranks]) -> None:
    """The all-to-all held against the arguments of a gather: every bit-exact row has to fail."""
    swapped = replace(registry.get(2), oracle=lambda case, args: [_own_copies(case, a) for a in args])
    assert {"reference", "local_only", "missing_rank"} <= _rows(prove(swapped, {2: groups[2]}))


def _own_copies(case: Case, own: Args) -> Expected:
    return Expected(Leaf(own["tensor"].expand(case.world_size, -1, -1), case.dtype))


@pytest.mark.parametrize("factor", [0.4, 0.0])
def test_cost_model_below_what_must_be_received_is_reported(factor: float, groups: dict[int, Ranks]) -> None:
    honest = registry.get(2)

    def cheap(case: Case, args: list[Args]) -> list[RankCost]:
        return [replace(c, sent=c.sent * factor, received=c.received * factor) for c in honest.cost(case, args)]

    assert _rows(prove(replace(honest, cost=cheap), {2: groups[2]})) == {"cost"}


def test_cost_model_out_of_balance_is_reported(groups: dict[int, Ranks]) -> None:
    honest = registry.get(2)

    def unbalanced(case: Case, args: list[Args]) -> list[RankCost]:
        return [replace(c, sent=0.0) for c in honest.cost(case, args)]

    assert _rows(prove(replace(honest, cost=unbalanced), {2: groups[2]})) == {"cost"}


def test_waiver_covers_its_row_only_and_must_be_needed(groups: dict[int, Ranks]) -> None:
    loose = replace(registry.get(1), tolerances=calibrated(bf16=0.02))
    excused = replace(loose, waivers={"lower_precision/bf16": "for the test", "narrow_outputs": "for the test"})
    proof = prove(excused, groups)
    assert _rows(proof) == {"narrow_inputs"}
    assert proof.waived == excused.waivers
    unneeded = prove(replace(registry.get(1), waivers={"zeros": "for the test"}), groups)
    assert unneeded.faults == ["waiver 'zeros' is not needed; remove it"]


def test_changed_input_is_reported_unless_declared() -> None:
    problem = registry.get(73)
    tried = trial(problem, problem.check_case(world_size=2, dtype=torch.float32), 1)
    after = [
        RankResult(args={n: v + 1 if isinstance(v, torch.Tensor) else v for n, v in a.items()}) for a in tried.args
    ]
    assert mutations(tried, after) == ["rank 0: argument target was changed", "rank 1: argument target was changed"]


def test_world_size_that_does_not_fit_is_skipped_with_its_reason(groups: dict[int, Ranks]) -> None:
    odd = replace(registry.get(36), check_sizes={"B": 2, "T": 3, "H": 6, "D": 6})
    proof = prove(odd, groups)
    assert proof.skipped == {4: "The world size must divide the number of heads: 6 mod 4 is not 0."}
    assert {row.world_size for row in proof.rows} == {2}
