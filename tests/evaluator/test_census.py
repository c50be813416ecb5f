"""From records of a profiler to shares of time, on records such as one H200 and four gloo ranks give."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.contract import Decision
from evaluator.judge import census, mechanisms, similarity, traces
from evaluator.judge.mechanisms import Scan
from evaluator.judge.observations import Observation, parse
from evaluator.judge.spans import difference, intersection, length, union
from evaluator.runner.observing import KINDS
from evaluator.runner.wire import BadFrame

Row = tuple[str, str, int, int, int]


def record(rows: list[Row], dropped: int = 0) -> Observation:
    names = list(dict.fromkeys(row[0] for row in rows))
    events = [[names.index(name), KINDS.index(kind), *rest] for name, kind, *rest in rows]
    return parse(json.dumps({"names": names, "events": events, "dropped": dropped}).encode())


# One call of 1,000 µs on a GPU: own kernel on stream 7 and a peer copy on stream 20 at the same time, then cuBLAS.
ON_GPU: list[Row] = [
    ("pkb: call", "call", 0, 1_000_000, 1),
    ("cudaLaunchKernel", "runtime", 1_000, 5_000, 1),
    ("void ns::pull_rows<float, 4>(float*, float const*)", "kernel", 100_000, 300_000, 7),
    ("Memcpy PtoP (Device -> Device)", "copy", 200_000, 200_000, 20),
    ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT", "kernel", 400_000, 200_000, 7),
    ("void at::native::elementwise_kernel<4, CUDAFunctor_add<float> >(int)", "kernel", 600_000, 100_000, 7),
    ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "kernel", 700_000, 100_000, 7),
    ("tile_kernel", "kernel", 800_000, 100_000, 7),
]  # fmt: skip
SCAN = Scan(cuda_kernels=["pull_rows"], triton_kernels=["tile_kernel"])

# One call of 1,000 µs on the CPU: mm, an asynchronous all-reduce that copies on its own thread, a softmax meanwhile.
ON_CPU: list[Row] = [
    ("pkb: call", "call", 0, 1_000_000, 1),
    ("aten::matmul", "cpu_op", 0, 200_000, 1),
    ("aten::mm", "cpu_op", 10_000, 180_000, 1),
    ("aten::empty", "cpu_op", 20_000, 1_000, 1),
    ("c10d::allreduce_", "cpu_op", 200_000, 50_000, 1),
    ("aten::view", "cpu_op", 210_000, 1_000, 1),
    ("gloo:all_reduce", "annotation", 230_000, 470_000, 2),
    ("aten::copy_", "cpu_op", 400_000, 100_000, 2),
    ("aten::softmax", "cpu_op", 300_000, 100_000, 1),
    ("mylib::tile", "cpu_op", 800_000, 100_000, 1),
    ("somebody's range", "annotation", 0, 1_000_000, 1),
    ("aten::add", "cpu_op", 1_200_000, 100_000, 1),  # after the call: not part of it
]


def shares(found: census.Census | None) -> dict[str, float]:
    assert found is not None
    return {share.origin: round(share.share, 3) for share in found.origins}


def test_kernels_on_a_gpu_are_sorted_by_whose_they_are() -> None:
    found = census.census_of([record(ON_GPU)], SCAN)
    assert shares(found) == {
        "own": 0.4, "communication": 0.3, "library": 0.2, "framework": 0.1, "gap": 0.2,
    }  # fmt: skip
    assert found is not None and found.unit == "kernels" and found.per_call == 6
    assert found.overlap == pytest.approx(0.2 / 0.3)  # the copy goes on behind the own kernel
    assert found.entries[0].name.startswith("void ns::pull_rows")


def test_operations_on_a_cpu_are_sorted_and_what_runs_inside_a_collective_is_part_of_it() -> None:
    found = census.census_of([record(ON_CPU)], Scan())
    assert shares(found) == {
        "library": 0.2, "communication": 0.5, "framework": 0.1, "own": 0.1, "gap": 0.2,
    }  # fmt: skip
    assert found is not None and found.unit == "operations" and found.per_call == 4
    assert found.overlap == pytest.approx(0.1 / 0.4)


def test_mechanisms_are_confirmed_by_what_ran() -> None:
    assert census.confirmed([record(ON_GPU)], SCAN) == {
        mechanisms.OWN_CUDA,
        mechanisms.TRITON,
        mechanisms.LIBRARY,
        mechanisms.COPY_ENGINE,
        mechanisms.DISTRIBUTED,
    }
    assert census.confirmed([record(ON_CPU)], Scan()) == {mechanisms.LIBRARY, mechanisms.DISTRIBUTED}


def test_a_record_without_a_call_gives_no_census() -> None:
    assert census.census_of([record(ON_CPU[1:])], Scan()) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"names": [1], "events": [], "dropped": 0}',
        b'{"names": ["a"], "events": [[0, 0, -1, 0, 0]], "dropped": 0}',
        b'{"names": ["a"], "events": [[0, 99, 0, 0, 0]], "dropped": 0}',
        b'{"names": ["a"], "events": [[7, 0, 0, 0, 0]], "dropped": 0}',
        b'{"names": ["a"], "events": [[0, 0, 0, 0]], "dropped": 0}',
        b'{"names": ["a"], "events": [[0, 0, 0, 1e400, 0]], "dropped": 0}',
        b'{"names": ["a"], "events": [[0, 0, 0, true, 0]], "dropped": 0}',
        b'{"names": ["a"], "events": {"0": 1}, "dropped": 0}',
        b'{"names": ["a"], "events": [], "dropped": "many"}',
        b"[" * 100_000,
    ],
)
def test_a_record_that_the_runner_never_writes_is_refused(raw: bytes) -> None:
    with pytest.raises(BadFrame):
        parse(raw)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_a_record_or_refused(raw: bytes) -> None:
    try:
        observation = parse(raw)
    except BadFrame:
        return
    census.census_of([observation], Scan())


spans = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), max_size=8)


@given(spans, spans)
def test_arithmetic_of_spans_agrees_with_counting(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    a, b = union(first), union(second)
    points = [{t for start, end in spans for t in range(start, end)} for spans in (first, second)]
    assert length(a) == len(points[0])
    assert length(intersection(a, b)) == len(points[0] & points[1])
    assert length(difference(a, b)) == len(points[0] - points[1])


# Likeness to the reference.

REFERENCE = '''
"""All-reduce."""
import torch
import torch.distributed as dist

def solution(x: torch.Tensor) -> torch.Tensor:
    """Sum over ranks."""
    out = x.clone()
    dist.all_reduce(out)
    return out
'''
RENAMED = """
import torch.distributed

def summed(tensor):
    # other names, other layout
    result = tensor.clone()
    torch.distributed.all_reduce(result)
    return result

def solution(tensor):
    return summed(tensor)
"""
OTHER = """
import torch, torch.distributed as dist
def solution(x):
    world = dist.get_world_size()
    parts = [torch.empty_like(x) for _ in range(world)]
    dist.all_gather(parts, x)
    total = torch.zeros_like(x)
    for part in parts:
        total += part
    return total
"""


def test_names_types_comments_and_helpers_do_not_hide_the_reference() -> None:
    same = similarity.of_programs(REFERENCE.replace("out", "y").replace(": torch.Tensor", ""), REFERENCE)
    assert same == 1.0
    assert similarity.ALIKE <= similarity.of_programs(RENAMED, REFERENCE) < 1.0
    assert similarity.of_programs(OTHER, REFERENCE) < similarity.ALIKE
    assert similarity.of_programs("def solution(:", REFERENCE) == 0.0


def test_the_label_needs_both_signals() -> None:
    one, two = [record(ON_CPU)], [record(ON_CPU[:-3])]
    alike = similarity.of_operations(one, one)
    assert alike == 1.0 and (similarity.of_operations(one, two) or 0) < similarity.SAME_OPERATIONS
    assert similarity.judge(1.0, alike, Decision.TIE).label == "baseline duplicate"
    assert similarity.judge(0.7, alike, Decision.TIE).label == "wrapper"
    assert similarity.judge(0.7, alike, Decision.FASTER).label == ""
    assert similarity.judge(1.0, None, Decision.TIE).label == ""
    assert similarity.judge(1.0, 0.5, Decision.TIE).label == ""
    assert similarity.judge(0.3, alike, Decision.TIE).label == ""


def test_own_kernels_and_symmetric_memory_are_no_wrapper() -> None:
    assert similarity.worth_comparing(0.9, mechanisms.scan(REFERENCE))
    used = REFERENCE + "\nimport torch.distributed._symmetric_memory as symm_mem\nh = symm_mem.rendezvous(a, b)\n"
    assert not similarity.worth_comparing(0.9, mechanisms.scan(used))


# Traces.


def test_a_trace_opens_as_trace_events_with_one_track_a_thread_and_stream() -> None:
    trace = traces.trace_of(3, record(ON_GPU))
    events = json.loads(gzip.decompress(trace.data))["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == trace.events == len(ON_GPU)
    assert {event["pid"] for event in complete} == {3}
    tracks = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert tracks == {"thread 1", "stream 7", "stream 20"}
    pull = next(event for event in complete if "pull_rows" in event["name"])
    assert (pull["ts"], pull["dur"], pull["cat"]) == (100.0, 300.0, "kernel")


def test_a_trace_that_is_too_long_loses_its_end_and_says_so() -> None:
    rows: list[Row] = [("pkb: call", "call", 0, 10**9, 1)]
    rows += [(f"aten::op{n * 7919 % 10_000}", "cpu_op", n * 1_000, n % 977, 1) for n in range(4_000)]
    trace = traces.trace_of(0, record(rows), limit=20_000)
    assert 5_000 < len(trace.data) <= 20_000
    assert trace.events + trace.dropped == len(rows)
    assert trace.dropped > 0


def test_the_reading_says_where_the_time_goes() -> None:
    observations = [record(ON_CPU), record(ON_CPU)]
    files = [traces.trace_of(rank, observation) for rank, observation in enumerate(observations)]
    profile = traces.profile_of(observations, files, Scan())
    assert profile is not None and len(profile.ranks) == 2
    assert profile.ranks[0].call_seconds == pytest.approx(1e-3)
    assert profile.ranks[0].communication_seconds == pytest.approx(0.5e-3)
    assert profile.ranks[0].overlapped_seconds == pytest.approx(0.1e-3)
    assert "50% is communication, 40% compute and 20% gaps" in profile.reading
    assert profile.ranks[1].trace_sha256 == files[1].sha256
