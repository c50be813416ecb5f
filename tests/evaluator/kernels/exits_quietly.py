# expect: runtime_error
# row: C32
# message: exit status 0
import os


def solution(A_local, B_local):
    os._exit(0)
