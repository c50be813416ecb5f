# expect: race
# row: C36 C37
# message: wrong 50 ms later
import threading
import time

import torch.distributed as dist


def solution(A_local, B_local):
    C = A_local @ B_local
    dist.all_reduce(C)

    def work():
        time.sleep(0.02)
        C.zero_()

    threading.Thread(target=work).start()
    return C
