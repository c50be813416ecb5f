# expect: too_slow
# message: still computing
# call_seconds: 2
def solution(A_local, B_local):
    n = 0
    while True:
        n += 1
