# expect: correct
# row: C46
# timing_seconds: 120
# decision: faster
import mmap

import torch
import torch.distributed as dist

buffers = {}


def shared(shape):
    """A tensor (ranks, *shape) in memory that all ranks see."""
    if shape not in buffers:
        world = dist.get_world_size()
        count = world * shape[0] * shape[1]
        path = f"/dev/shm/parts-{shape[0]}-{shape[1]}"
        if dist.get_rank() == 0:
            with open(path, "wb") as file:
                file.truncate(4 * count)
        dist.barrier()
        with open(path, "r+b") as file:
            memory = mmap.mmap(file.fileno(), 4 * count)
        buffers[shape] = torch.frombuffer(memory, dtype=torch.float32).view(world, *shape)
        dist.barrier()
    return buffers[shape]


def solution(A_local, B_local):
    """All-reduce through shared memory: every rank writes its product, then every rank adds all of them."""
    parts = shared((A_local.shape[0], B_local.shape[1]))
    torch.mm(A_local, B_local, out=parts[dist.get_rank()])
    dist.barrier()
    total = parts.sum(0)
    dist.barrier()
    return total
