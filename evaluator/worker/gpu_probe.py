"""Whether CUDA works on these GPUs, as a program of its own: ``python -I gpu_probe.py 0 1``, GPUs as nvidia-smi counts.

Every GPU gets a context, sets some memory to a value of its own and gives it back right. Exit status 0 and a line that
says so, or 1 and a sentence. Only the standard library and the driver's library: importing torch would take seconds,
and what a broken driver does to this process touches nobody else. Whoever starts it keeps a clock, for it may hang.

Functions and their arguments: CUDA driver API, reference manual (cuda.h).
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

LIBRARY = "libcuda.so.1"
WORDS = 1 << 20  # of 32 bits on each GPU
PATTERN = 0x5AC3_A53C


class ProbeFailed(Exception):
    """The driver refuses, or a GPU answers wrongly, in one sentence."""


class Driver:
    """The driver's library. Raises ProbeFailed if it is not there."""

    def __init__(self) -> None:
        try:
            self._library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise ProbeFailed(f"The driver's library cannot be loaded: {error}.") from error

    def call(self, name: str, *arguments: object) -> None:
        """Call a function of the library. Raises ProbeFailed with its name and the driver's word for the error."""
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise ProbeFailed(f"{name} fails with {self._word(status)}.")

    def _word(self, status: int) -> str:
        word = ctypes.c_char_p()
        known = self._library.cuGetErrorName(ctypes.c_int(status), ctypes.byref(word)) == 0
        return word.value.decode() if known and word.value else f"error {status}"


def probe(numbers: Sequence[int]) -> None:
    """Try each of these GPUs. Raises ProbeFailed for the first that does not work."""
    # The driver reads these when it starts. Its own order of GPUs is by speed, that of nvidia-smi by bus.
    os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, numbers))
    driver = Driver()
    driver.call("cuInit", ctypes.c_uint(0))
    count = ctypes.c_int()
    driver.call("cuDeviceGetCount", ctypes.byref(count))
    if count.value != len(numbers):
        raise ProbeFailed(f"CUDA sees {count.value} of the {len(numbers)} GPUs.")
    for position, number in enumerate(numbers):
        try:
            _try(driver, position, PATTERN ^ number)
        except ProbeFailed as failure:
            raise ProbeFailed(f"GPU {number}: {failure}") from failure


def _try(driver: Driver, position: int, value: int) -> None:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    driver.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(position))
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver.call("cuCtxSetCurrent", context)
    memory, size = ctypes.c_uint64(), ctypes.c_size_t(4 * WORDS)
    driver.call("cuMemAlloc_v2", ctypes.byref(memory), size)
    driver.call("cuMemsetD32_v2", memory, ctypes.c_uint(value), ctypes.c_size_t(WORDS))
    answer = (ctypes.c_uint32 * WORDS)()
    driver.call("cuMemcpyDtoH_v2", answer, memory, size)
    if bytes(answer) != value.to_bytes(4, sys.byteorder) * WORDS:
        wrong = sum(word != value for word in answer)
        raise ProbeFailed(f"{wrong} of {WORDS} words that it was set to hold came back wrong.")
    driver.call("cuMemFree_v2", memory)
    driver.call("cuDevicePrimaryCtxRelease_v2", device)


def main() -> int:
    """The program; returns its exit status."""
    numbers = [int(argument) for argument in sys.argv[1:]]
    try:
        probe(numbers)
    except ProbeFailed as failure:
        print(failure)
        return 1
    print(f"GPUs that work: {len(numbers)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
