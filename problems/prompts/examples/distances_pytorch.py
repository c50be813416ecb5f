"""Overlap. Squared distances of this rank's queries to the keys of all ranks: out[:, s*n:(s+1)*n] = |q - k_s|^2.

Every rank shows its keys in symmetric memory. The copy engine fetches the keys of the next peer on a side stream,
without using an SM, while the matrix product with the keys that are already here runs on the main one.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem

_workspaces = {}


def workspace(like: torch.Tensor):
    """Symmetric buffer, its handle, two landing places and a side stream: made once per shape, then used again."""
    key = (tuple(like.shape), like.dtype, like.device)
    if key not in _workspaces:
        shown = symm_mem.empty(like.shape, dtype=like.dtype, device=like.device)
        handle = symm_mem.rendezvous(shown, dist.group.WORLD)
        landing = [torch.empty_like(shown), torch.empty_like(shown)]
        _workspaces[key] = shown, handle, landing, torch.cuda.Stream(like.device)
    return _workspaces[key]


def solution(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    shown, handle, landing, side = workspace(k)
    main = torch.cuda.current_stream()
    shown.copy_(k)
    handle.barrier(channel=0)  # the keys of all ranks are in place
    n = k.shape[0]
    out = torch.empty(q.shape[0], world * n, dtype=q.dtype, device=q.device)
    q_norm = q.float().square().sum(1, keepdim=True)
    side.wait_stream(main)
    freed = [None, None]  # event after which a landing place may be overwritten
    keys = k
    for hop in range(world):
        source = (rank + hop) % world
        if hop + 1 < world:  # fetch the next peer's keys while these are worked on
            place = (hop + 1) % 2
            with torch.cuda.stream(side):
                if freed[place] is not None:
                    side.wait_event(freed[place])
                landing[place].copy_(handle.get_buffer((rank + hop + 1) % world, k.shape, k.dtype))
                arrived = side.record_event()
        products = torch.matmul(q, keys.t()).float()
        block = q_norm + keys.float().square().sum(1) - 2 * products
        out[:, source * n : (source + 1) * n] = block.to(out.dtype)
        freed[hop % 2] = main.record_event()
        if hop + 1 < world:
            main.wait_event(arrived)
            keys = landing[place]
    handle.barrier(channel=1)  # nobody reads our keys any more: the next call may overwrite them
    return out
