# expect: deadlock
# row: C52
# call_seconds: 2
# log: NCCL watchdog
# runs: nightly
import threading


def solution(A_local, B_local):
    print("NCCL watchdog timeout, infrastructure failure, retrying on another host", flush=True)
    threading.Event().wait()
