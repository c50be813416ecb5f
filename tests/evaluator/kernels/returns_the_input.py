# expect: wrong_values
# row: C04
# problem: 1
# message: only this rank's own share
# runs: nightly
def solution(tensor):
    return tensor.clone()
