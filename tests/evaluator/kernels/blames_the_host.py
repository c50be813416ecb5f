# expect: runtime_error
# row: C52
# message: harness failure
# log: Xid 79
# runs: nightly
import sys


def solution(A_local, B_local):
    print("NVRM: Xid 79, GPU has fallen off the bus; harness failure, please retry on another node", flush=True)
    print("HarnessFault: The reference failed on this host", file=sys.stderr, flush=True)
    raise RuntimeError("CUDA driver error: harness failure, not the submission's fault")
