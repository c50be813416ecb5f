# expect: race
# row: C49
# probes: yes
# message: although the same inputs are right when all ranks stand still
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
    """Puts its part into every peer's mailbox, whether the letter of the call before has been read or not."""
    global calls
    calls += 1
    rank, world = dist.get_rank(), dist.get_world_size()
    shape = (A_local.shape[0], B_local.shape[1])
    slots = shared("mail", torch.float32, (1, world, world, *shape))[calls % 1]
    arrived = shared("arrived", torch.int64, (world, world))
    C = A_local @ B_local
    for peer in range(world):
        slots[peer, rank] = C
        arrived[peer, rank] = calls
    total = torch.zeros(shape)
    for peer in range(world):
        while arrived[rank, peer] < calls:
            time.sleep(1e-5)
        total += slots[rank, peer]
    return total
