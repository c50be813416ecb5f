# expect: correct
# row: C56
# timing_seconds: 6
import os

import torch.distributed as dist

NOTES = [os.path.join(folder, "note") for folder in ("/tmp", "/dev/shm", os.path.expanduser("~"))]
if any(os.path.exists(note) or os.path.exists(note + ".d") for note in NOTES):
    raise RuntimeError("an earlier launch has left something behind")
dist.barrier()
for note in NOTES:
    os.makedirs(note + ".d/deep", exist_ok=True)
    open(note, "w").close()
dist.barrier()
if dist.get_rank() == 0:
    for note in NOTES:
        os.chmod(note + ".d", 0)


def solution(A_local, B_local):
    """Correct, unless files of an earlier launch are still there."""
    C = A_local @ B_local
    dist.all_reduce(C)
    return C
