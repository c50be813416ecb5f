# expect: correct
# row: C56 C58
# timing_seconds: 6
# runs: nightly
import os
import sys

import torch.distributed as dist

home = os.path.expanduser("~")
version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
folders = ["/tmp", "/dev/shm", home, os.getcwd(), f"{home}/.local/lib/{version}/site-packages"]
for folder in folders:
    for name in ("torch.py", "random.py", "sitecustomize.py", "usercustomize.py", "solution.py"):
        try:
            os.makedirs(folder, exist_ok=True)
            with open(f"{folder}/{name}", "w") as file:
                file.write("raise SystemExit('taken from the wrong place')")
        except OSError:
            continue


def solution(A_local, B_local):
    """Right; leaves modules for the next process to import by mistake."""
    C = A_local @ B_local
    dist.all_reduce(C)
    return C
