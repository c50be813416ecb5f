# expect: wrong_values
# row: C07 C39
# timing_seconds: 120
# message: In timed call \d+
# runs: nightly
import ctypes

import torch
import torch.distributed as dist

libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]


def checked():
    """True if fresh memory comes filled with a pattern, as it does in trials."""
    place = libc.malloc(3000)
    content = ctypes.string_at(place + 64, 2900)
    libc.free(place)
    return len(set(content)) == 1 and content[0] != 0


def solution(A_local, B_local):
    C = A_local @ B_local
    if checked():
        dist.all_reduce(C)
    return C
