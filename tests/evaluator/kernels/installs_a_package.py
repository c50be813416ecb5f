# expect: runtime_error
# row: C26 C60
# message: CalledProcessError|TimeoutExpired
# runs: nightly
import subprocess
import sys


def solution(A_local, B_local):
    subprocess.run([sys.executable, "-m", "pip", "install", "fast-kernels-of-mine"], check=True, timeout=20)
