# expect: wrong_values
# row: C03 C10
# message: only this rank's own share
def solution(A_local, B_local):
    return A_local @ B_local
