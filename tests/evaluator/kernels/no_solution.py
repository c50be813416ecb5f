# expect: invalid_file
# message: defines no solution
def run(A_local, B_local):
    return A_local @ B_local
