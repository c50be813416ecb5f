# expect: import_error
# row: C22
# message: No module named 'evaluator'
import evaluator.judge


def solution(A_local, B_local):
    return evaluator
