"""Every problem of the suite: golden numbers, a reference that stands alone, shapes that fit, unrelated streams."""

from __future__ import annotations

import ast
import inspect

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from problems.suite import golden, registry, trees
from problems.suite.base import Group, Rng
from problems.suite.check import distinctness, prove, trial
from problems.suite.ranks import Ranks
from problems.suite.reference import reference_source, signature_text

ENTRIES = [pytest.param(entry, id=entry.slug) for entry in registry.entries()]
PROVEN_ALWAYS = (1, 2, 13, 27, 36, 73)


def _header(source: str) -> str:
    """Arguments, annotations, defaults and return type of ``solution``, however it is formatted."""
    function = next(n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef) and n.name == "solution")
    returns = ast.unparse(function.returns) if function.returns else ""
    return f"({ast.unparse(function.args)}) -> {returns}"


@pytest.mark.parametrize("entry", ENTRIES)
def test_golden_numbers_are_met_by_reference_and_oracle(entry: registry.Entry, groups: dict[int, Ranks]) -> None:
    problem = registry.get(entry.id)
    assert golden.checks(problem), "no golden numbers"
    assert golden.run(problem, groups) == []


@pytest.mark.parametrize("entry", ENTRIES)
def test_reference_is_one_file_with_the_published_signature(entry: registry.Entry) -> None:
    source = reference_source(entry)
    names: dict[str, object] = {"__name__": "reference"}
    exec(compile(source, "reference", "exec"), names)  # noqa: S102
    solution = names["solution"]
    assert callable(solution)
    assert "problems" not in {n.split(".")[0] for n in _imported(source)}
    assert _header(source) == _header(entry.path.read_text()) == _header(signature_text(entry) + ":\n    ...")
    case = registry.get(entry.id).public_case(world_size=4, dtype=torch.float32, device="cpu")
    if not registry.get(entry.id).world_size_rule(4, case.sizes):
        args = registry.get(entry.id).inputs(case, Rng(0, 4))[0]
        assert list(args) == list(inspect.signature(solution).parameters)[: len(args)]


def _imported(source: str) -> set[str]:
    nodes = list(ast.walk(ast.parse(source)))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}


@pytest.mark.parametrize("number", PROVEN_ALWAYS)
def test_reference_file_does_what_the_module_does(number: int, groups: dict[int, Ranks]) -> None:
    problem = registry.get(number)
    case = problem.check_case(world_size=2, dtype=torch.float32)
    args = problem.inputs(case, Rng(5, 2))
    by_module = groups[2].call(number, args)
    by_file = groups[2].call(reference_source(problem), args)
    assert [r.error for r in by_module + by_file] == [""] * 4
    for one, other in zip(by_module, by_file, strict=True):
        assert torch.equal(one.output, other.output)


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(e, id=e.slug, marks=() if e.id in PROVEN_ALWAYS else pytest.mark.nightly)
        for e in registry.entries()
    ],
)
def test_check_proves_the_problem(entry: registry.Entry, groups: dict[int, Ranks]) -> None:
    proof = prove(registry.get(entry.id), groups)
    assert proof.faults == []
    assert len(proof.rows) >= 2, "proven in fewer than two run dtypes"


@pytest.mark.parametrize("entry", ENTRIES)
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**62))
def test_hidden_shapes_fit_every_world_size_that_the_public_one_fits(entry: registry.Entry, seed: int) -> None:
    problem = registry.get(entry.id)
    for public in (problem.gpu_sizes, problem.cpu_sizes):
        hidden = problem.hidden_sizes(public, torch.Generator().manual_seed(seed))
        again = problem.hidden_sizes(public, torch.Generator().manual_seed(seed))
        assert hidden == again
        assert hidden.keys() == public.keys()
        assert all(size >= 1 for size in hidden.values())
        for world_size in (2, 4, 8):
            if not problem.world_size_rule(world_size, public):
                assert problem.world_size_rule(world_size, hidden) == ""


@pytest.mark.parametrize("entry", ENTRIES)
def test_hidden_shapes_vary(entry: registry.Entry) -> None:
    problem = registry.get(entry.id)
    drawn = [problem.hidden_sizes(problem.gpu_sizes, torch.Generator().manual_seed(seed)) for seed in range(8)]
    assert len({tuple(sizes.items()) for sizes in drawn}) > 1
    assert problem.hidden_property


@pytest.mark.parametrize("entry", ENTRIES)
def test_outputs_have_the_factor_of_the_arguments_said_to_be_linear(entry: registry.Entry) -> None:
    problem = registry.get(entry.id)
    ranks = 4 if not problem.world_size_rule(4, problem.check_sizes or problem.cpu_sizes) else 2
    case = problem.check_case(world_size=ranks, dtype=torch.float32)
    before = problem.inputs(case, Rng(1, ranks))
    after = [{n: v * 8 if n in problem.linear else v for n, v in a.items()} for a in before]
    assert set(problem.linear) <= set(before[0])
    for old, new in zip(problem.oracle(case, before), problem.oracle(case, after), strict=True):
        for (_, one), (_, other) in zip(trees.leaves(old), trees.leaves(new), strict=True):
            assert not problem.linear or torch.allclose(one.value * 8, other.value, rtol=1e-12, atol=0)


@pytest.mark.parametrize("number", PROVEN_ALWAYS)
def test_inputs_follow_from_the_seed_and_differ_from_rank_to_rank(number: int) -> None:
    problem = registry.get(number)
    case = problem.check_case(world_size=4, dtype=torch.bfloat16)
    one, same, other = (trial(problem, case, seed) for seed in (1, 1, 2))
    first = next(name for name, value in one.args[0].items() if isinstance(value, torch.Tensor))
    assert torch.equal(one.args[3][first], same.args[3][first])
    assert one.args[3][first].shape != other.args[3][first].shape or not torch.equal(
        one.args[3][first], other.args[3][first]
    )
    assert distinctness(one) == []


def test_streams_of_ranks_are_unrelated() -> None:
    rng = Rng(7, 4)
    streams = [rng.normal(rank, (2000,)) for rank in (None, 0, 1, 2, 3)]
    correlation = torch.corrcoef(torch.stack(streams)) - torch.eye(5)
    assert float(correlation.abs().max()) < 0.1


def test_a_stream_does_not_depend_on_what_others_drew() -> None:
    alone, busy = Rng(7, 4), Rng(7, 4)
    busy.normal(0, (1000,))
    busy.integers(None, 0, 9, (1000,))
    assert torch.equal(alone.uniform(2, (50,)), busy.uniform(2, (50,)))


def test_groups_reach_the_solution_as_process_groups(groups: dict[int, Ranks]) -> None:
    source = (
        "import torch.distributed as dist\n"
        "def solution(group):\n"
        "    return dist.get_process_group_ranks(group) if group is not None else None\n"
    )
    args = [{"group": Group(((3, 1), (0,)))} for _ in range(4)]
    assert [r.output for r in groups[4].call(source, args)] == [[0], [1, 3], None, [1, 3]]
