"""The walls around a submission: policy as data, launching by bubblewrap, limits, and hold over every process inside.

A submission is hostile from its compilation on. ``Sandbox.start(SandboxSpec(...))`` runs a command that sees the
runtime and what is bound for it, and nothing else of the host; ``Sandbox.isolation`` says what was found in force.
"""

from evaluator.sandbox.explain import user_namespace_remedy
from evaluator.sandbox.job import Sandbox
from evaluator.sandbox.policy import (
    Bind,
    ResourceLimits,
    SandboxLeftovers,
    SandboxSpec,
    SandboxUnavailable,
    SeccompProfile,
    Violation,
    nvidia_devices,
)
from evaluator.sandbox.processes import FreezeFailed
from evaluator.sandbox.runtime import find_bwrap, python_command
from evaluator.sandbox.unwalled import UnwalledJob

__all__ = [
    "Bind",
    "FreezeFailed",
    "ResourceLimits",
    "Sandbox",
    "SandboxLeftovers",
    "SandboxSpec",
    "SandboxUnavailable",
    "SeccompProfile",
    "UnwalledJob",
    "Violation",
    "find_bwrap",
    "nvidia_devices",
    "python_command",
    "user_namespace_remedy",
]
