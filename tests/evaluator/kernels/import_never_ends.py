# expect: deadlock
# row: C57
# message: Importing the file did not end
# ready_seconds: 5
import threading

threading.Event().wait()


def solution(A_local, B_local):
    return None
