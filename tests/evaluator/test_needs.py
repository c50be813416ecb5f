"""What a target lacks is said as that, and errors of CUDA and compilers get the code that fits them."""

import pytest

from evaluator import targets
from evaluator.contract import Code
from evaluator.judge import needs
from evaluator.judge.faults import Fault, RankState
from evaluator.judge.mechanisms import scan

MULTIMEM = '''
import torch.distributed._symmetric_memory as symm_mem
from utils.cuda_helpers import compile_cuda_extension
SOURCE = r"""__global__ void k(float* p) { asm volatile("multimem.ld_reduce.global.add.f32 %0, [%1];" : : ); }"""
module = compile_cuda_extension("k", SOURCE)
device = f"cuda:{rank}"
'''
PLAIN = "import torch.distributed as dist\ndist.all_reduce(x)\n"
EMULATED, RANKED, CPU = (targets.target(name) for name in ("gpu-emulated", "h100x8", "cpu-gloo"))


@pytest.mark.parametrize(
    "code",
    [Code.WRONG_VALUES, Code.RUNTIME_ERROR, Code.ILLEGAL_MEMORY_ACCESS, Code.DEADLOCK, Code.RACE, Code.IMPRECISE],
)
def test_a_file_with_multicast_never_counts_as_wrong_where_there_is_none(code: Code) -> None:
    fault = needs.reconsidered(Fault(code, "Every rank delivers wrong values."), scan(MULTIMEM), EMULATED)
    assert fault.code is Code.NEEDS_MULTICAST
    assert "gpu-emulated has none" in fault.message and "wrong values" in fault.message
    assert needs.reconsidered(Fault(code, "x"), scan(MULTIMEM), RANKED).code is code
    assert needs.reconsidered(Fault(code, "x"), scan(PLAIN), EMULATED).code is code


@pytest.mark.parametrize("words", ["multicast_ptr is None", "multicast is not supported", "requires multicast support"])
def test_a_refusal_at_run_time_is_enough(words: str) -> None:
    fault = Fault(Code.RUNTIME_ERROR, "Rank 0 failed in solution", ranks=[RankState(0, error=f"RuntimeError: {words}")])
    assert needs.reconsidered(fault, scan(PLAIN), EMULATED).code is Code.NEEDS_MULTICAST


@pytest.mark.parametrize("code", [Code.INTEGRITY, Code.INVALID_FILE, Code.IMPOSSIBLE_TIME, Code.OUT_OF_MEMORY])
def test_other_findings_stand(code: Code) -> None:
    assert needs.reconsidered(Fault(code, "x"), scan(MULTIMEM), EMULATED).code is code


@pytest.mark.parametrize(
    "words", ["KeyError: 'THUNDERKITTENS_ROOT'", "k.cu:4:10: fatal error: kittens.cuh: No such file or directory"]
)
def test_parallelkittens_without_its_runtime(words: str) -> None:
    fault = needs.reconsidered(Fault(Code.IMPORT_ERROR, f"Rank 0 failed: {words}"), scan(PLAIN), RANKED)
    assert fault.code is Code.NEEDS_RUNTIME and "ThunderKittens" in fault.message


@pytest.mark.parametrize(
    "words",
    ["OSError: CUDA_HOME environment variable is not set", "AssertionError: Torch not compiled with CUDA enabled"],
)
def test_a_cuda_file_on_a_cpu_target_needs_a_gpu(words: str) -> None:
    fault = needs.reconsidered(Fault(Code.IMPORT_ERROR, words), scan(MULTIMEM), CPU)
    assert fault.code is Code.NEEDS_RUNTIME and "cpu-gloo has none" in fault.message
    assert needs.reconsidered(Fault(Code.IMPORT_ERROR, words), scan(PLAIN), CPU).code is Code.IMPORT_ERROR
    assert needs.reconsidered(Fault(Code.IMPORT_ERROR, "NameError: x"), scan(MULTIMEM), CPU).code is Code.IMPORT_ERROR


@pytest.mark.parametrize(
    ("message", "code", "hint"),
    [
        ("CUDA error: an illegal memory access was encountered", Code.ILLEGAL_MEMORY_ACCESS, "not its own"),
        ("CUDA error: misaligned address", Code.ILLEGAL_MEMORY_ACCESS, "multiple of its width"),
        ("CUDA error: device-side assert triggered", Code.RUNTIME_ERROR, "index out of range"),
        ("CUDA error: no kernel image is available for execution on the device", Code.COMPILE_ERROR, "architecture"),
        ("CUDA error: invalid configuration argument", Code.RUNTIME_ERROR, "48 KiB"),
        ("CUDA error: invalid argument", Code.RUNTIME_ERROR, "1024 threads"),
        ("CUDA error: invalid device ordinal", Code.RUNTIME_ERROR, "no GPU of that number"),
        ("CUDA out of memory. Tried to allocate 2 GiB", Code.OUT_OF_MEMORY, "no more memory"),
        ("Error building extension 'k': k.cu(3): error: identifier \"foo\" is undefined", Code.COMPILE_ERROR, "first"),
    ],
)
def test_errors_of_cuda_and_of_compilers_get_their_code(message: str, code: Code, hint: str) -> None:
    meaning = needs.meaning_of(message)
    assert meaning is not None and meaning.code is code and hint in meaning.hint


def test_what_torch_says_below_every_error_is_none() -> None:
    """It ends with an advice on device-side assertions."""
    assert (
        needs.meaning_of("CUDA error: odd\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.") is None
    )


def test_an_illegal_access_names_the_kernels_of_the_file() -> None:
    fault = needs.reconsidered(Fault(Code.ILLEGAL_MEMORY_ACCESS, "illegal"), scan(MULTIMEM), RANKED)
    assert fault.hints and fault.hints[-1].startswith("Kernels of the file: ")
    assert needs.reconsidered(Fault(Code.ILLEGAL_MEMORY_ACCESS, "illegal"), scan(PLAIN), RANKED).hints == ()


def test_errors_of_other_kinds_are_left_to_their_phase() -> None:
    assert needs.meaning_of("shape mismatch: [3] and [4]") is None


def test_a_missing_module_is_named_with_what_there_is() -> None:
    sentence = needs.import_sentence("No module named 'flashinfer.comm'")
    assert sentence.startswith("flashinfer.comm is not installed here.")
    assert "torch" in sentence and "utils.cuda_helpers" in sentence and "standard library" in sentence
    assert needs.import_sentence("No such file") == ""


def test_files_that_number_devices_are_told_where_ranks_share_one() -> None:
    assert "line 6" in needs.device_hint(scan(MULTIMEM), EMULATED)
    assert needs.device_hint(scan(MULTIMEM), RANKED) == needs.device_hint(scan(PLAIN), EMULATED) == ""
