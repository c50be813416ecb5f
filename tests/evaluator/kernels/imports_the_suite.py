# expect: import_error
# row: C22
# message: No module named 'problems'
from problems.suite import registry


def solution(A_local, B_local):
    return registry
