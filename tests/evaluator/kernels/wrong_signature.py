# expect: import_error
# message: cannot take the problem's 2 arguments \(A_local, B_local\)
def solution(A_local):
    return A_local
