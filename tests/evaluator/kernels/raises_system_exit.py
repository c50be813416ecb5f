# expect: runtime_error
# message: SystemExit
import sys


def solution(A_local, B_local):
    sys.exit(0)
