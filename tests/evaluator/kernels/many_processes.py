# expect: runtime_error
# message: processes and threads|Resource temporarily unavailable|can't start new thread
import os
import time


def solution(A_local, B_local):
    for _ in range(2000):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
