# expect: too_slow|deadlock
# row: C52
# call_seconds: 2
# log: xxxx
# runs: nightly
def solution(A_local, B_local):
    while True:
        print("x" * 1000)
