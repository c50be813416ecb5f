# expect: wrong_structure
# row: C29
# message: share memory with each other
def solution(A_local, B_local):
    return B_local[:1].expand(A_local.shape[0], -1).clone()[:1].expand(A_local.shape[0], -1)
