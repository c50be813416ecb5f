"""Stands in for ``python -m evaluator judge`` and starts in milliseconds: standard library only.

A source holds a line "# judge: WORDS": a code, "sleep SECONDS", or "fail", which dies without a report.
"""

from __future__ import annotations

import json
import re
import sys
import time


def main() -> None:
    job = json.load(sys.stdin)
    words = (re.findall(r"# judge: (.*)", job["source"]) or ["correct"])[0].split()
    progress = {"attempt_id": job["attempt_id"], "sequence": 0, "phase": "trials", "done": 1, "total": 5}
    print(json.dumps(progress), flush=True)
    seconds = float(words[1]) if words[0] == "sleep" else 0.01
    time.sleep(seconds)
    if words[0] == "fail":
        sys.exit("the driver is gone")
    code = "correct" if words[0] == "sleep" else words[0]
    same = ("attempt_id", "problem_id", "problem_digest", "target", "world_size", "precision")
    report = {
        **{name: job[name] for name in same},
        "code": code,
        "message": f"The stub says {code}.",
        "phases": [{"phase": "static", "status": "passed"}],
        "seconds": seconds,
    }
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
