# expect: correct
# row: C46
# timing_seconds: 120
# decision: faster
import mmap

import torch
import torch.distributed as dist

buffers = {}
calls = {}


def shared(shape):
    """Two tensors (ranks, *shape) in memory that all ranks see, for even and odd calls."""
    if shape not in buffers:
        world = dist.get_world_size()
        count = 2 * world * shape[0] * shape[1]
        path = f"/dev/shm/parts-{shape[0]}-{shape[1]}"
        if dist.get_rank() == 0:
            with open(path, "wb") as file:
                file.truncate(4 * count)
        dist.barrier()
        with open(path, "r+b") as file:
            memory = mmap.mmap(file.fileno(), 4 * count)
        buffers[shape] = torch.frombuffer(memory, dtype=torch.float32).view(2, world, *shape)
        calls[shape] = 0
        dist.barrier()
    calls[shape] += 1
    return buffers[shape][calls[shape] % 2]


def solution(A_local, B_local):
    """All-reduce through shared memory: every rank writes its product, then every rank adds all of them.

    One barrier is enough: parts are overwritten two calls later, and by then all ranks have passed the barrier of the
    call between, so that they are done with these.
    """
    parts = shared((A_local.shape[0], B_local.shape[1]))
    torch.mm(A_local, B_local, out=parts[dist.get_rank()])
    dist.barrier()
    return parts.sum(0)
