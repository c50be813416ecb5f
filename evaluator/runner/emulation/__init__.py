"""Process groups for W ranks on one device: a c10d backend with the surface and the meaning of NCCL's.

NCCL refuses two ranks on one GPU, and gloo has no ``all_to_all`` for CUDA tensors, no uneven ``all_gather`` and other
forms than NCCL. This backend, ``emulated``, gives every rank of one machine what NCCL would: collectives in order per
group, beside the host until somebody waits, the same checks and refusals. It is slow, since all bytes go through host
memory and loopback; targets that use it are for correctness only. CPU tensors work as well.
"""

from .group import BACKEND, EmulatedGroup, register

__all__ = ["BACKEND", "EmulatedGroup", "register"]
