"""What runs inside the sandbox: a fork server and the ranks it forks.

Bound read-only into the sandbox as the package ``runner``; it may import the standard library, torch and itself, and
knows nothing of problems, seeds, expected values or verdicts. Whatever it says is evidence for the judge, no more: the
submission runs in the same processes and could change any of it.
"""
