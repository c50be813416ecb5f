"""Gives a process group written in Python the store that groups of torch's own have.

Symmetric memory meets over ``ProcessGroup.getStore()``, from torch 2.11 on without asking Python. But the constructor
that torch offers to subclasses leaves the store empty, the other one builds no subclass, and nothing sets it later: a
rendezvous would follow a null pointer. So a group of torch's own is made with the store, and its pointer is moved over.
"""

from __future__ import annotations

import ctypes

import torch.distributed as dist
from torch._C._distributed_c10d import Store

WORDS = 8  # of a ProcessGroup that are looked at; the store follows the class pointer and the reference counts


def hand_over(store: Store, group: dist.ProcessGroup) -> None:
    """Lets ``group.get_group_store()``, and what asks for it in C++, find ``store``.

    Raises RuntimeError if this torch lays out its process groups in another way.
    """
    donor = dist.ProcessGroup(store, group.rank(), group.size())
    wanted = _object(store).value
    for given, taken in zip(_words(donor), _words(group), strict=True):
        if given.value == wanted and not taken.value:
            given.value, taken.value = taken.value, given.value  # moved: each reference is dropped once
            break
    if group.get_group_store() is None:
        raise RuntimeError("the process group did not take a store: symmetric memory could not meet over it")


def _object(wrapper: object) -> ctypes.c_void_p:
    """The pointer to the C++ object that a pybind11 object holds right behind its header."""
    return ctypes.c_void_p.from_address(id(wrapper) + object.__basicsize__)


def _words(group: dist.ProcessGroup) -> list[ctypes.c_void_p]:
    """The first words of the C++ object, in place."""
    start = _object(group).value
    assert start is not None
    size = ctypes.sizeof(ctypes.c_void_p)
    return [ctypes.c_void_p.from_address(start + size * place) for place in range(WORDS)]
