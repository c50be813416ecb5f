# expect: deadlock
# message: Importing the file did not end
# ready_seconds: 5
import threading

threading.Event().wait()


def solution(A_local, B_local):
    return None
