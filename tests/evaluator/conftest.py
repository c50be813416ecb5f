"""One thread for torch in the test process: its idle threads spin, and the machine has better use for its CPUs."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    import torch

    torch.set_num_threads(1)
