"""Runs the tests of the emulated process groups with four ranks on one CUDA device, and prints what went wrong.

    python -m benchmarks.gpu.emulation [--json FILE]

Every operation of NCCL's surface on the world and three sub-groups, all dtypes, uneven splits, asynchronous handles
(tests/evaluator/emulation/cases.py). Needs torch and pytest. Exit status 1 if a case fails.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from tests.evaluator.emulation.test_emulation import SIZE, run_ranks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ranks = run_ranks(Path(folder), "cuda")
    wrong = {case: [rank[case] for rank in ranks if rank[case]] for case in ranks[0]}
    if options.json:
        options.json.write_text(json.dumps(wrong, indent=1) + "\n", encoding="utf-8")
    for case, errors in wrong.items():
        print(case, "passed" if not errors else f"FAILED: {errors[0]}", flush=True)
    print(f"{sum(not errors for errors in wrong.values())} of {len(wrong)} cases passed on {SIZE} ranks of one GPU.")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
