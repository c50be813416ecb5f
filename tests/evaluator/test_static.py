"""The static phase reads sources without running them, whatever the sources hold."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.contract import MAX_SOURCE_BYTES, Code
from evaluator.judge.faults import Fault
from evaluator.judge.mechanisms import scan
from evaluator.judge.static import examine


@pytest.mark.parametrize(
    "source",
    [
        "def solution(a):\n    return a\n",
        "solution = lambda a: a\n",
        "if True:\n    def solution(a):\n        return a\n",
        "from math import *\n",
        "from operator import add as solution\n",
        "class solution:\n    pass\n",
        "solution: object = print\n",
    ],
)
def test_files_that_may_define_solution_pass(source: str) -> None:
    examine(source)


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("", "empty"),
        (" \n\n", "empty"),
        ("x = 1\n", "defines no solution"),
        ("def solve(a):\n    return a\n", "defines no solution"),
        ("def solution(a:\n", "Syntax error in line 1"),
        ("def solution(a):\nreturn a\n", "Syntax error in line 2"),
        ("x = '\0'\n", "null bytes"),
        ("x = '\ud800'\n", "UTF-8"),
        ("solution = " + "(" * 5_000 + ")" * 5_000, "nested"),
        ("solution = " + "-" * 100_000 + "1", "nested"),
        ("solution = 1\n#" + "x" * MAX_SOURCE_BYTES, "at most 1000000 are allowed"),
    ],
)
def test_files_that_cannot_be_judged_get_their_sentence(source: str, sentence: str) -> None:
    with pytest.raises(Fault, match=sentence) as caught:
        examine(source)
    assert caught.value.code is Code.INVALID_FILE


@given(st.text(max_size=300))
def test_any_text_is_examined_or_refused(source: str) -> None:
    try:
        examine(source)
    except Fault as fault:
        assert fault.code is Code.INVALID_FILE
    scan(source)
