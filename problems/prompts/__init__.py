"""Prompts: what a model is asked for one problem, backend, precision and target, as one deterministic text.

Reads entries of the suite's manifest and targets; imports neither torch nor Django, so that the command line and the
site build the same text.
"""

from problems.prompts.assembly import BACKENDS, PRECISIONS, Refusal, as_json_line, build, refusal

__all__ = ["BACKENDS", "PRECISIONS", "Refusal", "as_json_line", "build", "refusal"]
