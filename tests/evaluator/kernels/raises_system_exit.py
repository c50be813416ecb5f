# expect: runtime_error
# row: C32
# message: SystemExit
import sys


def solution(A_local, B_local):
    sys.exit(0)
