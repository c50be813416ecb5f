# expect: deadlock
# row: C50
# probes: yes
# call_seconds: 4
# message: it had ended in the trials
# hint: one call ahead
# runs: nightly
import mmap
import time

import torch
import torch.distributed as dist

rooms = {}
calls = 0


def shared(name, dtype, shape):
    """A tensor of zeros in memory that all ranks see."""
    if (name, shape) not in rooms:
        size = torch.empty((), dtype=dtype).element_size() * torch.Size(shape).numel()
        path = f"/dev/shm/{name}-{'-'.join(map(str, shape))}"
        if dist.get_rank() == 0:
            with open(path, "wb") as file:
                file.truncate(size)
        dist.barrier()
        with open(path, "r+b") as file:
            memory = mmap.mmap(file.fileno(), size)
        rooms[name, shape] = torch.frombuffer(memory, dtype=dtype).view(shape)
        dist.barrier()
    return rooms[name, shape]


def solution(A_local, B_local):
    """A barrier by flags that only say odd or even: a rank that is one call ahead shows the flag of the call before."""
    global calls
    calls += 1
    rank, world = dist.get_rank(), dist.get_world_size()
    flags = shared("flags", torch.int64, (world,))
    parts = shared("parts", torch.float32, (2, world, A_local.shape[0], B_local.shape[1]))[calls % 2]
    torch.mm(A_local, B_local, out=parts[rank])
    flags[rank] = calls % 2
    while any(flags[peer] != calls % 2 for peer in range(world)):
        time.sleep(1e-5)
    return parts.sum(0)
