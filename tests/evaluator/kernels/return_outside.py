# expect: compile_error
# message: 'return' outside function
def solution(A_local, B_local):
    return A_local


return 1
