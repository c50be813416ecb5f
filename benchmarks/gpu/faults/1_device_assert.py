"""An index out of range in a gather on the device."""

# expect: runtime_error
# says: device-side assert

import torch


def solution(tensor):
    flat = tensor.flatten()
    return flat[torch.full((flat.numel(),), flat.numel() + 7, device=tensor.device)].view_as(tensor)
