# expect: wrong_values
# row: C15
# probes: yes
# message: When one element of \w+ on rank \d had changed.*still that of the call before
import torch
import torch.distributed as dist

kept = {}


def solution(A_local, B_local):
    """Takes inputs for those of the call before if a few values of every row are the same on all ranks."""
    mark = torch.cat([A_local[:, :2].flatten(), B_local[:2].flatten()])
    old = kept.get(A_local.shape, (None, None))[0]
    others = torch.tensor([old is None or not torch.equal(old, mark)], dtype=torch.int32)
    dist.all_reduce(others)
    if others.item():
        C = A_local @ B_local
        dist.all_reduce(C)
        kept[A_local.shape] = (mark, C)
    return kept[A_local.shape][1].clone()
