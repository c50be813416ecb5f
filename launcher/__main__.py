"""Entry point of ``./run`` and ``./test``: ``python launcher/__main__.py run|test [ARGUMENTS]``."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:  # started by path, as the two scripts do: then Python put this folder on the path, not its parent
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from launcher.console import Refusal, fail


def main() -> int:
    command, arguments = sys.argv[1], sys.argv[2:]
    if command == "test":
        from launcher.checks import main as run_checks

        entry = run_checks
    else:
        from launcher.site import main as run_site

        entry = run_site
    try:
        return entry(arguments)
    except Refusal as refusal:
        fail(refusal)
        return 1


if __name__ == "__main__":
    sys.exit(main())
