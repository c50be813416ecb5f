# expect: wrong_values
# row: C28 C31
# runs: nightly
import sys

import torch

values = next(module for name, module in sys.modules.items() if name.endswith("runner.values"))
values._copy = lambda into, value: None


def solution(A_local, B_local):
    """The runner's copy does nothing: what is read is what lay in the region."""
    return torch.empty(A_local.shape[0], B_local.shape[1])
