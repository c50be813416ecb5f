"""Whatever is sent, each file gets its own sentence, good files are not lost, and nothing is half stored."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leaderboard.intake import Sent, missing_problems, preview, reading, sources
from leaderboard.models import SourceFile, Upload
from problems.models import Suite
from tests.factories import ProblemFactory, ProblemVersionFactory, SuiteFactory, UserFactory

pytestmark = pytest.mark.django_db
GOOD = b"def solution(x):\n    return x\n"


@pytest.fixture
def suite() -> Suite:
    suite = SuiteFactory(size=0)
    for number, slug, aliases in [
        (1, "allreduce", []),
        (13, "gemm_allreduce", ["gemm_all_reduce"]),
        (36, "ulysses_gather_seq_scatter_heads", []),
    ]:
        problem = ProblemFactory(number=number, slug=slug, aliases=aliases)
        suite.problem_versions.add(ProblemVersionFactory(problem=problem))
    return suite


def send(suite: Suite, *files: tuple[str, bytes]) -> list[dict[str, Any]]:
    upload = preview(UserFactory(), [Sent(path, io.BytesIO(data)) for path, data in files], suite=suite)
    upload.refresh_from_db()
    return upload.findings


def one(suite: Suite, path: str, data: bytes) -> dict[str, Any]:
    (finding,) = send(suite, (path, data))
    return finding


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("13_gemm_allreduce_cuda.py", 13),
        ("gemm_allreduce.py", 13),
        ("13-gemm-allreduce-triton.py", 13),
        ("13.py", 13),
        ("solutions_cuda_bf16_h100_acme_model-1/13_gemm_all_reduce_cuda.py", 13),
        ("sample_2/1_allreduce_cuda.py", 1),
        ("1_allreduce_step_3_cuda.py", 1),
    ],
)
def test_file_finds_its_problem(suite: Suite, path: str, number: int) -> None:
    finding = one(suite, path, GOOD)
    assert (finding["status"], finding["problem"], finding["warnings"]) == ("accepted", number, [])


def test_name_wins_over_a_shifted_number(suite: Suite) -> None:
    finding = one(suite, "37_ulysses_gather_seq_scatter_heads_cuda.py", GOOD)
    assert (finding["status"], finding["problem"]) == ("accepted", 36)
    assert finding["warnings"] == ["Taken by its name; its number is 36 here."]


def test_number_is_the_last_resort(suite: Suite) -> None:
    finding = one(suite, "13_fused_matmul_and_sum_cuda.py", GOOD)
    assert finding["problem"] == 13
    assert finding["warnings"] == ["Taken by its number: no problem is called fused_matmul_and_sum."]


def test_misspelt_name_gets_a_suggestion_not_a_wrong_problem(suite: Suite) -> None:
    finding = one(suite, "1_gemm_allredcue_cuda.py", GOOD)
    assert finding["code"] == "unknown_problem"
    assert finding["sentence"] == "No problem is called gemm_allredcue. Did you mean 13_gemm_allreduce?"


def test_sample_and_step_are_read_from_names(suite: Suite) -> None:
    findings = send(suite, ("sample_0/1_allreduce_cuda.py", GOOD), ("sample_12/1_allreduce_cuda.py", GOOD))
    assert [(f["status"], f["sample"]) for f in findings] == [("accepted", 0), ("accepted", 12)]


def test_folder_name_fills_the_form(suite: Suite) -> None:
    path = "solutions_triton_bf16_h100_acme_some_model-1.5/1_allreduce_triton.py"
    upload = preview(UserFactory(), [Sent(path, io.BytesIO(GOOD))], suite=suite)
    assert upload.guesses == {
        "backend": "triton",
        "precision": "bf16",
        "hardware": "h100",
        "provider": "acme",
        "model": "some_model-1.5",
    }
    assert [p.number for p in missing_problems(upload, suite)] == [13, 36]


BAD_FILES = {
    "unknown_problem": ("99_unheard_of_cuda.py", GOOD, "No problem of this suite is called unheard_of."),
    "not_python_name": ("1_allreduce_cuda.cu", GOOD, "does not end in .py"),
    "empty": ("1_allreduce_cuda.py", b" \n", "The file is empty."),
    "too_large": ("1_allreduce_cuda.py", GOOD + b"#" * 1_000_000, "Larger than 1.0 MB"),
    "binary": ("1_allreduce_cuda.py", b"x = 1\ny = '\0'\n", "line 2 holds a zero byte"),
    "not_utf8": ("1_allreduce_cuda.py", b"x = 1\n# \xe9t\xe9\n", "byte 0xe9 in line 2"),
    "syntax_error": ("1_allreduce_cuda.py", b"def solution(x):\n    return x +\n", "in line 2, column 15"),
    "no_solution": ("1_allreduce_cuda.py", b"def run(x):\n    return x\n", "defines no `solution`"),
}


@pytest.mark.parametrize("code", BAD_FILES)
def test_bad_file_gets_its_own_sentence_and_costs_the_good_one_nothing(suite: Suite, code: str) -> None:
    path, data, words = BAD_FILES[code]
    findings = send(suite, (path, data), ("13_gemm_allreduce_cuda.py", GOOD))
    bad, good = sorted(findings, key=lambda f: f["status"] == "accepted")
    assert bad["code"] == code
    assert words in bad["sentence"]
    assert good["status"] == "accepted"
    assert [source.text.encode() for source in SourceFile.objects.all()] == [GOOD]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("def solution(x): return x".encode("utf-16"), "encoded as UTF-16"),
        (b"# -*- coding: latin-1 -*-\n" + GOOD, "declares the encoding latin-1"),
    ],
)
def test_other_encodings_are_refused(suite: Suite, data: bytes, words: str) -> None:
    finding = one(suite, "1_allreduce_cuda.py", data)
    assert finding["code"] == "not_utf8"
    assert words in finding["sentence"]


def test_byte_order_mark_is_removed(suite: Suite) -> None:
    finding = one(suite, "1_allreduce_cuda.py", b"\xef\xbb\xbf" + GOOD)
    assert finding["warnings"] == ["The byte-order mark at its start was removed."]
    assert SourceFile.objects.get().text.encode() == GOOD


@pytest.mark.parametrize("code", ["solution = compile_it()", "from other import solution", "class solution: ..."])
def test_solution_may_be_bound_in_any_way(suite: Suite, code: str) -> None:
    assert one(suite, "1_allreduce.py", code.encode())["status"] == "accepted"


@pytest.mark.parametrize("evil", ["(" * 100_000, "-" * 900_000 + "1", "x" + "[1" * 100_000, "f(" * 50_000])
def test_source_that_kills_a_parser_harms_no_other_file(suite: Suite, evil: str) -> None:
    findings = send(suite, ("1_allreduce_cuda.py", evil.encode()), ("13_gemm_allreduce_cuda.py", GOOD))
    assert [f["status"] for f in findings] == ["refused", "accepted"]
    assert findings[0]["code"] in {"syntax_error", "unparsable"}


def test_two_files_for_one_problem_are_refused_both(suite: Suite) -> None:
    other = GOOD.replace(b"x\n", b"x + 0\n")
    findings = send(suite, ("1_allreduce_cuda.py", GOOD), ("allreduce.py", other), ("13.py", GOOD))
    assert [f["code"] for f in findings] == ["two_files", "two_files", "accepted"]
    assert "this one and allreduce.py" in findings[0]["sentence"]


def test_copy_of_a_file_is_ignored(suite: Suite) -> None:
    findings = send(suite, ("1_allreduce_cuda.py", GOOD), ("copy/1_allreduce_cuda.py", GOOD))
    assert [f["code"] for f in findings] == ["accepted", "copy"]


def test_zip_is_opened(suite: Suite) -> None:
    data = zipped(("a/1_allreduce_cuda.py", GOOD), ("a/13_gemm_allreduce_cuda.py", GOOD), ("__MACOSX/._x.py", b"x"))
    findings = send(suite, ("all.zip", data))
    assert [f["code"] for f in findings] == ["accepted", "accepted", "system_file"]
    assert SourceFile.objects.count() == 1  # equal texts are stored once


def _symlink() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("1_allreduce_cuda.py")
    info.external_attr = 0o120777 << 16
    return info


def _encrypted() -> bytes:
    data = bytearray(zipped(("1_allreduce_cuda.py", GOOD), compression=zipfile.ZIP_STORED))
    data[6] |= 1  # the flag in the local header
    data[data.index(b"PK\x01\x02") + 8] |= 1  # and in the list of files
    return bytes(data)


BAD_ZIPS = {
    "too_many_files": (zipped(*[(f"{i}.py", b"") for i in range(10_000)]), "The zip holds 10,000 files"),
    "unsafe_path": (zipped(("../../1_allreduce_cuda.py", GOOD)), "leads out of the zip"),
    "zip_ratio": (zipped(("1_allreduce_cuda.py", b"#" * 900_000)), "times its size"),
    "nested_zip": (zipped(("inner.zip", zipped(("1_allreduce_cuda.py", GOOD)))), "A zip inside a zip"),
    "symlink": (zipped((_symlink(), b"/etc/passwd")), "A symbolic link"),
    "encrypted": (_encrypted(), "Encrypted"),
    "zip_broken": (zipped(("1_allreduce_cuda.py", GOOD))[:60], "cut off or damaged: 60 bytes arrived"),
    "zip_empty": (zipped(), "holds no files"),
    "too_large": (
        zipped(("1_allreduce_cuda.py", b"#" * 1_000_001), compression=zipfile.ZIP_STORED),
        "Larger than 1.0 MB",
    ),
}


@pytest.mark.parametrize("code", BAD_ZIPS)
def test_bad_zip_gets_its_own_sentence(suite: Suite, code: str) -> None:
    data, words = BAD_ZIPS[code]
    findings = send(suite, ("all.zip", data), ("13.py", GOOD))
    bad, good = sorted(findings, key=lambda f: f["status"] == "accepted")
    assert bad["code"] == code
    assert words in bad["sentence"]
    assert good["status"] == "accepted"


@pytest.mark.parametrize("name", ["/etc/1_allreduce_cuda.py", "C:\\1_allreduce_cuda.py", "a\\..\\..\\1_allreduce.py"])
def test_absolute_and_backslash_paths_are_refused(suite: Suite, name: str) -> None:
    assert one(suite, "all.zip", zipped((name, GOOD)))["code"] == "unsafe_path"


def test_zip_in_disguise_is_still_a_zip_inside_a_zip(suite: Suite) -> None:
    assert one(suite, "all.zip", zipped(("1_allreduce_cuda.py", zipped(("x", b"")))))["code"] == "nested_zip"


def test_zip_entry_without_a_name_is_refused(suite: Suite) -> None:
    data = zipped(("x", GOOD)).replace(b"x", b"\0")  # zipfile cuts names at a zero byte
    assert one(suite, "all.zip", data)["code"] == "unsafe_path"


def test_size_that_a_zip_states_is_not_believed(suite: Suite) -> None:
    """A header that states 10 bytes for 900,000: the reader stops at what was stated and notices."""
    data = bytearray(zipped(("1_allreduce_cuda.py", b"#" * 900_000)))
    entry = data.index(b"PK\x01\x02")
    data[entry + 24 : entry + 28] = (10).to_bytes(4, "little")
    assert one(suite, "all.zip", bytes(data))["status"] == "refused"


def test_list_of_files_that_would_fill_the_memory_is_not_read(suite: Suite) -> None:
    data = bytearray(zipped(("1_allreduce_cuda.py", GOOD)))
    data[-10:-6] = (3_000_000).to_bytes(4, "little")
    finding = one(suite, "all.zip", bytes(data))
    assert "lists far more than 2,000 files" in finding["sentence"]


def test_limits_hold_over_all_files_of_an_upload(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_ENTRIES", 2)
    monkeypatch.setattr(reading.Budget, "__init__", lambda self: self.__dict__.update(entries=2, unpacked=1_000))
    findings = send(suite, ("all.zip", zipped(("1_allreduce.py", GOOD))), ("13.py", GOOD), ("36.py", GOOD))
    assert sorted(f["code"] for f in findings) == ["accepted", "accepted", "too_many_files"]


def test_failure_while_storing_leaves_nothing(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise RuntimeError("disk full")

    monkeypatch.setattr("leaderboard.audit.write", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        send(suite, ("13.py", GOOD))
    assert not Upload.objects.exists()
    assert not SourceFile.objects.exists()


names = st.text(min_size=1, max_size=40).map(lambda text: f"{text}.py") | st.sampled_from(["13.py", "a.zip", "../x.py"])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files=st.lists(st.tuples(names, st.binary(max_size=200)), max_size=3))
def test_no_bytes_and_no_names_crash_the_preview(suite: Suite, files: list[tuple[str, bytes]]) -> None:
    findings = send(suite, *files)
    assert len(findings) >= len(files)
    assert all(finding["sentence"] for finding in findings)


@settings(max_examples=200, deadline=None)
@given(
    start=st.integers(0, 200),
    junk=st.binary(max_size=8),
    members=st.lists(st.tuples(names.filter(lambda name: "\0" not in name), st.binary(max_size=80))),
)
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
def test_no_damage_to_a_zip_crashes_the_reader(start: int, junk: bytes, members: list[tuple[str, bytes]]) -> None:
    data = bytearray(zipped(*members))
    data[start : start + len(junk)] = junk
    contents = reading.read([Sent("all.zip", io.BytesIO(bytes(data)))])
    assert contents.entries or contents.findings


@settings(max_examples=30, deadline=None)
@given(texts=st.lists(st.text(max_size=100), max_size=5))
def test_parser_answers_for_every_source(texts: list[str]) -> None:
    assert len(sources.parse(texts)) == len(texts)
