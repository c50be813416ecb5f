# expect: wrong_values
# row: C14 C48
# probes: yes
# message: When the inputs of rank \d had changed.*still that of the call before
# runs: nightly
import torch
import torch.distributed as dist

kept = {}


def solution(A_local, B_local):
    """A rank whose own inputs are those of the call before hands out what it has, whatever the others got."""
    shape = (A_local.shape, B_local.shape[1])
    C = A_local @ B_local
    own = C.clone()
    dist.all_reduce(C)
    if shape in kept and torch.equal(kept[shape][0], own):
        return kept[shape][1].clone()
    kept[shape] = (own, C)
    return C.clone()
