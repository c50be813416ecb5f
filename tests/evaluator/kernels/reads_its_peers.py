# expect: correct
# row: C48 C59
# log: could read \[\]
import ctypes
import os

import torch.distributed as dist

libc = ctypes.CDLL(None, use_errno=True)


def readable():
    """Whatever of another process can be opened: memory, descriptors, environment; and what system calls give."""
    found = []
    for pid in (int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
        for name in ("mem", "environ", "maps", "auxv", "stack"):
            try:
                with open(f"/proc/{pid}/{name}", "rb") as file:
                    file.read(1)
                found.append(f"{pid}/{name}")
            except OSError:
                continue
        for folder in ("fd", "map_files", "cwd/.", "root/."):
            try:
                found += [f"{pid}/{folder}" for _ in os.listdir(f"/proc/{pid}/{folder}")]
            except OSError:
                continue
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            continue
        found += [f"{pid} descriptor {n}" for n in range(32) if libc.syscall(438, handle, n, 0) >= 0]
        buffer = ctypes.create_string_buffer(8)
        here = (ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8)
        there = (ctypes.c_size_t * 2)(id(found), 8)  # forked from one process: the same addresses are in use
        if libc.process_vm_readv(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0) > 0:
            found.append(f"{pid} by process_vm_readv")
        os.close(handle)
    return found


def solution(A_local, B_local):
    """Right; and says what it could read of its peers, whose inputs are not its own."""
    C = A_local @ B_local
    dist.all_reduce(C)
    print("could read", readable()[:5], flush=True)
    return C
