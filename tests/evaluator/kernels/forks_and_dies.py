# expect: runtime_error
# row: C57
# message: exit status 7
import os


def solution(A_local, B_local):
    if os.fork() == 0:
        while True:
            os.sched_yield()
    os._exit(7)
