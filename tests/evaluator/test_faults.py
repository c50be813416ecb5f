"""The same failure has the same id; places of the host are not told; dumps say where a rank stood."""

from pathlib import Path

import pytest

from evaluator.contract import Code
from evaluator.judge.faults import SUBMISSION, Fault, RankState, failure_id, shorten_paths, where

DUMP = f"""Thread 0x00007f3f0a (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "{SUBMISSION}", line 99 in helper

Current thread 0x00007f3f0b (most recent call first):
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 3012 in all_reduce
  File "/x/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "{SUBMISSION}", line 12 in solution
  File "/pkb/runner/rank.py", line 90 in serve
  File "/pkb/runner/rank.py", line 190 in live
"""


def test_the_same_failure_has_the_same_id_whatever_its_numbers() -> None:
    one = Fault(Code.RUNTIME_ERROR, "Rank 2 failed: bad address 0x7f3e at line 12, 1.5e-3")
    other = Fault(Code.RUNTIME_ERROR, "Rank 3 failed: bad address 0xa1  at line 9, 2.25")
    assert one.failure_id == other.failure_id
    assert len(one.failure_id) == 12
    assert failure_id(Code.DEADLOCK, one.message) != one.failure_id
    assert Fault(Code.RUNTIME_ERROR, "another").failure_id != one.failure_id


def test_the_dump_tells_where_the_call_stood_and_in_what() -> None:
    assert where(DUMP) == "solution.py:12 in solution, in all_reduce (distributed_c10d.py:3012)"


def test_a_dump_cut_off_at_a_hundred_frames_still_tells_the_place() -> None:
    assert where(DUMP.partition('  File "/pkb')[0]).startswith("solution.py:12 in solution")


@pytest.mark.parametrize("dump", ["", "nonsense", "Thread 0x1\n" * 100, DUMP[:150], DUMP.replace(SUBMISSION, "/x.py")])
def test_a_dump_that_says_nothing_gives_no_place(dump: str) -> None:
    assert where(dump) == ""


def test_tracebacks_show_the_submission_by_name_and_no_place_of_the_host() -> None:
    text = f'File "{SUBMISSION}", line 3\nFile "/opt/somewhere/lib/python3.11/site-packages/torch/x.py", line 4\n'
    assert shorten_paths(text) == 'File "solution.py", line 3\nFile "torch/x.py", line 4\n'
    assert str(Path.home()) not in shorten_paths(f'File "{Path.home()}/lib/python3.12/json/a.py"')


def test_long_texts_are_cut_to_what_a_report_may_hold() -> None:
    state = RankState(0, error="x" * 100_000, line="y" * 5_000, pattern="z" * 5_000, log="l" * 100_000)
    result = state.result()
    assert len(result.error) == len(result.log) == 16_384
    assert result.line.endswith("…")
