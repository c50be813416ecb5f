# expect: runtime_error
# row: C55
# hint: read-only
from pathlib import Path


def solution(A_local, B_local):
    Path("/note").write_text("x")
