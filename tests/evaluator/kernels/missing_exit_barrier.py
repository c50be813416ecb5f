# expect: race
# row: C49
# probes: yes
# message: although the same inputs are right when all ranks stand still
# hint: before a rank writes memory that a peer reads
import mmap

import torch
import torch.distributed as dist

buffers = {}


def shared(shape, copies):
    """A tensor (copies, ranks, *shape) in memory that all ranks see."""
    if shape not in buffers:
        world = dist.get_world_size()
        count = copies * world * shape[0] * shape[1]
        path = f"/dev/shm/parts-{shape[0]}-{shape[1]}"
        if dist.get_rank() == 0:
            with open(path, "wb") as file:
                file.truncate(4 * count)
        dist.barrier()
        with open(path, "r+b") as file:
            memory = mmap.mmap(file.fileno(), 4 * count)
        buffers[shape] = torch.frombuffer(memory, dtype=torch.float32).view(copies, world, *shape)
        dist.barrier()
    return buffers[shape]


def solution(A_local, B_local):
    """All-reduce through shared memory; nobody waits until all have read before the next call writes."""
    parts = shared((A_local.shape[0], B_local.shape[1]), 1)[0]
    torch.mm(A_local, B_local, out=parts[dist.get_rank()])
    dist.barrier()
    return parts.sum(0)
