"""Vocab-parallel cross-entropy: one pass over the logits, one exchange of three numbers per token.

The reference crosses the link three times (maximum, target's logit, sum). Here every rank reads its logits once, keeps
a running maximum and a sum of exponentials relative to it, and shows (maximum, sum, target's logit) per token in
float32; after one barrier each rank combines what all show. The logits stay as they are.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl


@triton.jit
def local_part(logits, target, shown, tokens, width, first, BLOCK: tl.constexpr):
    """One program per token: shown[0] maximum, shown[1] sum of exp(z - maximum), shown[2] target's logit or 0."""
    token = tl.program_id(0).to(tl.int64)
    row = logits + token * width
    highest = -float("inf")
    total = 0.0
    for start in range(0, width, BLOCK):
        at = start + tl.arange(0, BLOCK)
        z = tl.load(row + at, mask=at < width, other=-float("inf")).to(tl.float32)
        now = tl.maximum(highest, tl.max(z, axis=0))
        # Where all is -inf so far there is nothing to rescale, and -inf - -inf would be NaN.
        base = tl.where(now == -float("inf"), 0.0, now)
        total = total * tl.exp(tl.where(highest == -float("inf"), -float("inf"), highest - base))
        total += tl.sum(tl.exp(z - base), axis=0)
        highest = now
    column = tl.load(target + token) - first
    own = (column >= 0) & (column < width)
    chosen = tl.load(row + tl.where(own, column, 0), mask=own, other=0.0).to(tl.float32)
    tl.store(shown + token, highest)
    tl.store(shown + tokens + token, total)
    tl.store(shown + 2 * tokens + token, chosen)


@triton.jit
def combine(pointers, loss, tokens, world, BLOCK: tl.constexpr):
    """loss = log of the sum over all ranks of exp(z), less the target's logit."""
    table = pointers.to(tl.pointer_type(tl.uint64))
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < tokens
    highest = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for q in range(world):
        shown = tl.multiple_of(tl.load(table + q).to(tl.pointer_type(tl.float32)), 16)
        highest = tl.maximum(highest, tl.load(shown + at, mask=inside, other=0.0))
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    chosen = tl.zeros((BLOCK,), dtype=tl.float32)
    for q in range(world):
        shown = tl.multiple_of(tl.load(table + q).to(tl.pointer_type(tl.float32)), 16)
        own_highest = tl.load(shown + at, mask=inside, other=0.0)
        total += tl.load(shown + tokens + at, mask=inside, other=0.0) * tl.exp(own_highest - highest)
        chosen += tl.load(shown + 2 * tokens + at, mask=inside, other=0.0)
    tl.store(loss + at, (tl.log(total) + highest - chosen).to(loss.dtype.element_ty), mask=inside)


BLOCK = 1024
_workspaces = {}


def workspace(tokens: int, device: torch.device, group: dist.ProcessGroup):
    """Symmetric float32 buffer (3, tokens) and its handle: made once per number of tokens and group."""
    key = (tokens, device, group.group_name)
    if key not in _workspaces:
        buffer = symm_mem.empty(3, tokens, dtype=torch.float32, device=device)
        _workspaces[key] = buffer, symm_mem.rendezvous(buffer, group)
    return _workspaces[key]


def solution(
    vocab_parallel_logits: torch.Tensor, target: torch.Tensor, group: dist.ProcessGroup | None = None
) -> torch.Tensor:
    group = dist.group.WORLD if group is None else group
    logits = vocab_parallel_logits.contiguous()
    tokens, width = target.numel(), logits.shape[-1]
    shown, handle = workspace(tokens, logits.device, group)
    local_part[(tokens,)](logits, target.contiguous(), shown, tokens, width, handle.rank * width, BLOCK=BLOCK)
    handle.barrier(channel=0)  # the parts of all ranks are there
    loss = torch.empty(target.shape, dtype=logits.dtype, device=logits.device)
    combine[(triton.cdiv(tokens, BLOCK),)](handle.buffer_ptrs_dev, loss, tokens, handle.world_size, BLOCK=BLOCK)
    handle.barrier(channel=1)  # everybody has read: the next call may overwrite
    return loss
