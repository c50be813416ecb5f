# expect: runtime_error
# row: C55
# hint: read-only
# runs: nightly
import os


def solution(A_local, B_local):
    """Puts a link in the place of its own file, where the judge would find another one."""
    os.symlink("/etc/passwd", "/submission/link")
