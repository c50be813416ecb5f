# expect: deadlock
# row: C52
# message: solution\.py:\d+ in solution
# call_seconds: 2
import time


def solution(A_local, B_local):
    time.sleep(1e6)
