# expect: invalid_file
# message: line 3
def solution(A_local, B_local:
    return A_local
