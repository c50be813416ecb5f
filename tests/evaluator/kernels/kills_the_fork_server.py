# expect: runtime_error
# row: C51
# message: ended or stopped the process from which the ranks are started|was ended by SIGKILL
import os
import signal


def solution(A_local, B_local):
    os.kill(-1, signal.SIGKILL)
