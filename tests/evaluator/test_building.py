"""Extensions are compiled once for all ranks of a job, and errors of compilers can be read."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from uuid import uuid4

import pytest

from evaluator.contract import Code, Job, Limits, Report
from evaluator.judge import evaluate
from evaluator.judge.arm import Arm
from evaluator.judge.diagnosis import fault_of
from evaluator.judge.launch import Launch
from evaluator.runner.building import condensed, key_of
from evaluator.runner.zygote import Built
from evaluator.sandbox import ResourceLimits

NVCC = """
[1/3] /usr/local/cuda/bin/nvcc --generate-dependencies-with-compile -DTORCH_EXTENSION_NAME=k -c k.cu -o k.cuda.o
FAILED: k.cuda.o
/usr/local/cuda/bin/nvcc --generate-dependencies-with-compile -DTORCH_EXTENSION_NAME=k -c k.cu -o k.cuda.o
k.cu(12): warning #177-D: variable "unused" was declared but never referenced
k.cu(14): error: identifier "foo" is undefined
      out[i] = foo(x[i]);
               ^

k.cu(15): error: expected a ";"
  }
  ^
k.cu(16): error: third
k.cu(17): error: fourth
4 errors detected in the compilation of "k.cu".
ninja: build stopped: subcommand failed.
"""

EXTENSION = '''
import os, torch
import torch.distributed as dist
COUNT = "/tmp/compiler_runs"
COMPILER = "/tmp/counting_compiler"
if not os.path.exists(COMPILER):
    with open(f"{COMPILER}.{os.getpid()}", "w") as file:
        file.write("#!/bin/sh\\ncase \\"$*\\" in *main.cpp*) echo run >> " + COUNT + ";; esac\\nexec g++ \\"$@\\"\\n")
    os.chmod(f"{COMPILER}.{os.getpid()}", 0o755)
    os.replace(f"{COMPILER}.{os.getpid()}", COMPILER)
os.environ["CXX"] = COMPILER
from torch.utils.cpp_extension import load_inline
# Plain C++ without torch's headers: what is tested is who compiles, and it should take a second.
SOURCE = """
#include <Python.h>
static PyObject* twice(PyObject*, PyObject* x) { return PyLong_FromLong(2 * PyLong_AsLong(x)); }
static PyMethodDef methods[] = {{"twice", twice, METH_O, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "twice_ext", "", -1, methods};
PyMODINIT_FUNC PyInit_twice_ext() { return PyModule_Create(&definition); }
"""
extension = load_inline("twice_ext", SOURCE, no_implicit_headers=True)

def solution(tensor):
    assert extension.twice(21) == 42
    print("compiler runs", open(COUNT).read().count("run") if os.path.exists(COUNT) else 0, flush=True)
    out = tensor.clone()
    dist.all_reduce(out)
    return out
'''


def test_of_a_build_that_failed_the_first_errors_are_told_with_their_lines() -> None:
    words = condensed(NVCC)
    assert words.startswith('k.cu(14): error: identifier "foo" is undefined\n      out[i] = foo(x[i]);')
    assert 'expected a ";"' in words and "nvcc --generate" not in words and "warning" not in words


def test_the_name_of_the_extension_and_of_its_folder_are_not_the_error() -> None:
    raised = (
        "Error building extension 'odd': [1/3] c++ -MMD -MF main.o.d -c /tmp/home/torch_extensions/odd/main.cpp\n"
        '/tmp/home/torch_extensions/odd/cuda.cu(6): error: identifier "x" is undefined\n'
        "ptxas /tmp/tmpxft_1-6_cuda.ptx, line 52; error   : Not a name of any known instruction: 'frobnicate'\n"
    )
    first, second = condensed(raised).splitlines()
    assert first == 'cuda.cu(6): error: identifier "x" is undefined'
    assert second.startswith("ptxas") and "frobnicate" in second


def test_output_without_an_error_in_it_is_told_by_its_end() -> None:
    assert condensed("\n".join(f"line {n}" for n in range(100))).endswith("line 99")


def test_the_key_holds_all_that_a_compiler_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = key_of("load_inline", "k", ("int x;",), {"extra_cflags": ["-O3"]})
    assert plain == key_of("load_inline", "k", ("int x;",), {"extra_cflags": ["-O3"]})
    assert plain != key_of("load_inline", "k", ("int y;",), {"extra_cflags": ["-O3"]})
    assert plain != key_of("load_inline", "k", ("int x;",), {"extra_cflags": ["-O2"]})
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    assert plain != key_of("load_inline", "k", ("int x;",), {"extra_cflags": ["-O3"]})


def test_only_what_the_first_launch_built_is_put_back(tmp_path: Path) -> None:
    folder = tmp_path / "torch_extensions"
    (folder / "k").mkdir(parents=True)
    library = folder / "k" / "k.so"
    library.write_bytes(b"object")
    os.utime(library, ns=(5, 7))
    (folder / "k" / "lock").write_text("left by a rank that was killed")
    (folder / "k" / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "k" / "pipe")
    elsewhere = tmp_path / "triton"
    elsewhere.symlink_to(folder)
    built = Built.found_in([str(folder), str(elsewhere), str(tmp_path / "missing")])
    library.write_bytes(b"changed by a later launch")
    built.put_back()
    assert library.read_bytes() == b"object" and library.stat().st_mtime_ns == 7
    assert list(built.files) == [str(library)]


def test_more_than_compilers_leave_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large").write_bytes(b"x" * 100)
    monkeypatch.setattr("evaluator.runner.zygote.BUILT_BYTES", 99)
    assert Built.found_in([str(tmp_path)]).files == {}


def judged(source: str, world_size: int, **budgets: float) -> Report:
    job = Job(
        attempt_id=uuid4(),
        problem_id=1,
        target="cpu-gloo",
        world_size=world_size,
        file_name="1_allreduce_pytorch.py",
        source=source,
        limits=Limits(**budgets),
    )
    return evaluate(job, with_timing=False)


@pytest.mark.sandbox
@pytest.mark.parametrize("world_size", [2, 4])
def test_one_compiler_run_serves_all_ranks(world_size: int) -> None:
    report = judged(EXTENSION, world_size)
    assert report.code is Code.CORRECT, report.message
    for rank in report.ranks:
        assert set(re.findall(r"compiler runs (\d+)", rank.log)) == {"1"}, rank.log


@pytest.mark.sandbox
def test_later_launches_load_what_the_first_has_built_and_nothing_else_reaches_them() -> None:
    note = """
import pathlib
note, place = pathlib.Path("/tmp/home/note"), pathlib.Path(os.environ["TORCH_EXTENSIONS_DIR"]) / "late"
print("compiled", os.path.exists(COUNT), "note", note.exists(), "late", place.exists(), flush=True)
if os.environ["RANK"] == "0":  # whose words are looked at: nobody else of the same launch may be seen in them
    note.write_text("x")
    if not os.path.exists(COUNT):
        place.write_text("written after the first launch")
"""
    arm = Arm("candidate", world_size=2, threads=1, limits=ResourceLimits(memory_bytes=2 * 1024**3))
    try:
        arm.submit(EXTENSION + note)
        arm.wait_up()
        said = []
        for _ in range(3):
            with Launch(arm, [], source_bytes=4096, target_bytes=4096, diagnose=fault_of) as launch:
                launch.load(["tensor"], 300)
                said.append(launch.logs()[0])
    finally:
        arm.stop()
    assert "compiled True note False late False" in said[0]
    assert all("compiled False note False late False" in words for words in said[1:]), said


@pytest.mark.sandbox
def test_a_build_that_fails_is_a_compile_error_and_is_tried_once() -> None:
    broken = EXTENSION.replace("return PyLong_FromLong(2 *", "return no_such_function(2 *")
    began = time.monotonic()
    report = judged(broken, 2)
    assert report.code is Code.COMPILE_ERROR, report.message
    assert "Error building extension 'twice_ext'" in report.message
    assert any("no_such_function" in rank.error for rank in report.ranks)
    assert time.monotonic() - began < 120
