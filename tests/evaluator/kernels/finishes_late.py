# expect: wrong_values
# row: C36
# message: right 50 ms later
import threading
import time

import torch
import torch.distributed as dist


def solution(A_local, B_local):
    out = torch.zeros(A_local.shape[0], B_local.shape[1])
    a, b = A_local.clone(), B_local.clone()

    def work():
        time.sleep(0.01)
        C = a @ b
        dist.all_reduce(C)
        out.copy_(C)

    threading.Thread(target=work).start()
    return out
