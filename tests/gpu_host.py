"""Stands in for a GPU host: an ``nvidia-smi`` and a ``libcuda.so.1`` that say and do what files beside them ask for."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

NVIDIA_SMI = """#!/bin/sh
here=${0%/*}
[ -f "$here/driver hangs" ] && exec sleep 600
case "$*" in
    *compute-apps*) cat "$here/processes" ;;
    *query-gpu=driver_version*) echo "580.159.03, NVIDIA H200" ;;
    *query-gpu*) cat "$here/gpus" ;;
esac
"""
# Mode of the driver in the file FAKE_CUDA. Memory of the GPU is memory of the process.
LIBRARY = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef unsigned long long pointer;
static char mode[32];
static int is(const char *word) { return strcmp(mode, word) == 0; }
int cuInit(unsigned flags) {
    FILE *file = fopen(getenv("FAKE_CUDA"), "r");
    if (!file || fscanf(file, "%31s", mode) != 1) return 999;
    fclose(file);
    if (is("hangs")) for (;;) pause();
    if (is("dies")) abort();
    return is("uninitialised") ? 999 : 0;
}
int cuDeviceGetCount(int *count) {
    *count = !is("fewer");
    for (const char *at = getenv("CUDA_VISIBLE_DEVICES"); *at; at++) *count += *at == ',';
    return 0;
}
int cuDeviceGet(int *device, int position) { *device = position; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = mode; return 0; }
int cuCtxSetCurrent(void *context) { return context ? 0 : 201; }
int cuMemAlloc_v2(pointer *memory, size_t bytes) {
    if (is("full")) return 2;
    *memory = (pointer)malloc(bytes);
    return 0;
}
int cuMemsetD32_v2(pointer memory, unsigned value, size_t words) {
    if (is("poisoned")) return 719;
    for (size_t i = 0; i < words; i++) ((unsigned *)memory)[i] = value;
    if (is("wrong")) ((unsigned *)memory)[words - 1] ^= 1;
    return 0;
}
int cuMemcpyDtoH_v2(void *host, pointer memory, size_t bytes) { memcpy(host, (void *)memory, bytes); return 0; }
int cuMemFree_v2(pointer memory) { free((void *)memory); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuGetErrorName(int error, const char **name) {
    *name = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : error == 719 ? "CUDA_ERROR_LAUNCH_FAILED" : 0;
    return *name ? 0 : 1;
}
"""


@dataclass(frozen=True)
class GpuHost:
    """``folder`` must be the first in PATH; for CUDA it must be LD_LIBRARY_PATH, too, and FAKE_CUDA its file "cuda"."""

    folder: Path

    @classmethod
    def make(cls, folder: Path, gpus: int = 1) -> GpuHost:
        """A host with so many clean GPUs. Skips the test where no C compiler is."""
        compiler = shutil.which("cc")
        if compiler is None:
            pytest.skip("no C compiler to build the driver's stand-in with")
        tool, source = folder / "nvidia-smi", folder / "cuda.c"
        tool.write_text(NVIDIA_SMI)
        tool.chmod(0o755)
        source.write_text(LIBRARY)
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True, timeout=60
        )
        host = cls(folder)
        host.cuda("works")
        host.uses(*[4] * gpus)
        host.runs()
        return host

    def environment(self, path: str) -> dict[str, str]:
        """Variables of whoever is to find itself on this host."""
        folder = str(self.folder)
        return {"PATH": f"{folder}:{path}", "LD_LIBRARY_PATH": folder, "FAKE_CUDA": str(self.folder / "cuda")}

    def cuda(self, mode: str) -> None:
        """From now on the driver works, hangs, dies, or says and does something wrong."""
        (self.folder / "cuda").write_text(mode)

    def uses(self, *mib: int) -> None:
        """From now on each GPU has so many MiB in use."""
        lines = [
            f"{n}, NVIDIA H200, 580.159.03, 9.0, 143771, {used}, 1980, 1980, 41, 0x0" for n, used in enumerate(mib)
        ]
        (self.folder / "gpus").write_text("\n".join(lines) + "\n")

    def runs(self, *processes: str) -> None:
        """From now on these processes ("pid, name") compute on the GPUs."""
        (self.folder / "processes").write_text("".join(f"{process}\n" for process in processes))
