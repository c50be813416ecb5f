"""``./run``: the whole site on one machine, from an empty folder to an open page."""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from launcher import broker, doctor, environment, network, supervisor
from launcher.console import Refusal, say
from launcher.datafolder import DataFolder
from launcher.supervisor import Interrupted, Supervisor
from pkbsite import broker_users, processes
from pkbsite import environment as settings

ROOT = environment.ROOT
TARGET = "cpu-gloo"
WORKER_NAME = "local"
LINES_SHOWN = 15
BUSY_GRACE = 3.0  # seconds that an evaluation worker gets to end between two evaluations
DESCRIPTION = """\
Starts the site on this machine: pages, workers, broker and an evaluation worker for the target cpu-gloo.

  ./run         install what is missing, start everything, print the address; Ctrl-C stops it all
  ./run setup   only install
  ./run demo    start everything and submit the demonstration runs

Settings come from the environment (docs/operations.md); DATABASE_URL and REDIS_URL replace the embedded parts."""


@dataclass(frozen=True)
class Site:
    """What one start needs to know. ``redis_url`` is empty until the embedded broker has been prepared."""

    interpreter: Path
    data: DataFolder
    host: str
    port: int
    redis_url: str
    embedded: bool = False

    @property
    def worker_redis_url(self) -> str:
        """The broker as the evaluation worker reaches it: with its own rights, as a GPU host.

        Into a broker of the operator's it goes as the site does: who has which rights there is the operator's affair.
        """
        if not self.embedded:
            return self.redis_url
        return broker_users.worker_url(self.redis_url, WORKER_NAME, self.data.secret("worker_key"))

    @property
    def address(self) -> str:
        shown = "localhost" if self.host in {"127.0.0.1", "0.0.0.0", "::", "::1"} else self.host  # noqa: S104
        return f"http://{shown}:{self.port}"

    def web_environment(self) -> dict[str, str]:
        """Environment of the processes that may see the database. What the user has set wins."""
        names = ["localhost", "127.0.0.1", "[::1]", socket.gethostname(), self.host]
        chosen = {
            "SECRET_KEY": self.data.secret("secret_key"),
            "ALLOWED_HOSTS": ",".join(dict.fromkeys(names)),
            "SITE_URL": self.address,
            "LOG_FORMAT": "console",
        }
        fixed = {
            "DJANGO_SETTINGS_MODULE": "pkbsite.settings",
            "PKB_DATA": str(self.data.path),
            "REDIS_URL": self.redis_url,
            "PYTHONUNBUFFERED": "1",
        }
        return {**chosen, **os.environ, **fixed}

    def worker_environment(self, names: Sequence[str]) -> dict[str, str]:
        """Environment of the evaluation worker: of the site's settings only those in ``names``, as on a GPU host."""
        # Celery loads Django by itself where the last of these is set.
        site_settings = (set(settings.BY_NAME) - set(names)) | {"DJANGO_SETTINGS_MODULE"}
        inherited = {name: value for name, value in os.environ.items() if name not in site_settings}
        chosen = {
            "LOG_FORMAT": os.environ.get("LOG_FORMAT", "console"),
            "REDIS_URL": self.worker_redis_url,
            "PKB_TARGET": TARGET,
            "PKB_WORKER_NAME": WORKER_NAME,
            "PKB_WORKER_KEY": self.data.secret("worker_key"),
            "PYTHONUNBUFFERED": "1",
        }
        return {**inherited, **chosen}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("./run", description=DESCRIPTION, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("setup", "demo"), help="see above; without it, only start")
    parser.add_argument("--port", type=_port, default=8000, help="port of the site (8000)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (127.0.0.1: this machine only)")
    parser.add_argument("--data", type=Path, default=ROOT / "data", metavar="FOLDER", help="data folder (./data)")
    options = parser.parse_args(arguments)
    supervisor.interrupt_on_signals()
    try:
        if options.command == "setup":
            environment.prepare("run")
            say("Everything is installed; ./run starts the site.")
            return 0
        _start(options)
    except Interrupted:
        say("Stopped.")
        return 0


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; it must be a number from 1 to 65535")
    return int(text)


def _start(options: argparse.Namespace) -> NoReturn:
    data = DataFolder.open(options.data)
    lock = data.lock()
    network.require_free(options.host, options.port)
    interpreter = environment.prepare("run")
    site = Site(interpreter, data, options.host, options.port, os.environ.get("REDIS_URL", ""))
    lock.describe(site.address)
    say(f"Starting the site on the data folder {data.path}")
    try:
        with Supervisor(ROOT, data.logs, lock.mark) as watcher:
            _run(site, watcher, demo=options.command == "demo")
    finally:
        lock.release()


def _run(site: Site, watcher: Supervisor, *, demo: bool) -> NoReturn:
    if site.redis_url:
        broker.require(site.redis_url)
    else:
        process, url = broker.embedded(site.interpreter, site.data)
        site = replace(site, redis_url=url, embedded=True)
        watcher.await_ready(watcher.start(process))
    with doctor.Examination(site.interpreter, ROOT, watcher.mark) as examination:
        _prepare_database(site)
        verdict = examination.verdict()
    for line in verdict.lines:
        say(line)
    running = [watcher.start(process) for process in plan(site, verdict)]
    for started in running:
        watcher.await_ready(started)
    say(f"\nThe site is ready: {site.address}/")
    say(f"E-mails and everything else that the processes say: {site.data.logs}. Ctrl-C stops the site.")
    if demo:
        _manage(site, "demo", show=True)
    watcher.watch()


def _prepare_database(site: Site) -> None:
    """Bring database, suite and static files up to date and register the worker; on a new site, make the admin."""
    for line in _manage(site, "prepare", "--worker", WORKER_NAME, "--target", TARGET).splitlines():
        say(f"  {line}")


def _manage(site: Site, *arguments: str, show: bool = False) -> str:
    """Run a command of manage.py and return what it printed. Raises ``Refusal`` if it fails."""
    command = [str(site.interpreter), "manage.py", *arguments]
    env = {**site.web_environment(), "PKB_WORKER_KEY": site.data.secret("worker_key"), "LOG_LEVEL": "WARNING"}
    output = None if show else subprocess.PIPE
    finished = subprocess.run(command, cwd=ROOT, env=env, stdout=output, stderr=output, text=True, check=False)
    if finished.returncode != 0:
        raise Refusal(
            f"'manage.py {arguments[0]}' failed (exit status {finished.returncode}).",
            "Correct what it says, or start afresh with another data folder: --data FOLDER.",
            ((finished.stdout or "") + (finished.stderr or "")).splitlines()[-LINES_SHOWN:],
        )
    return (finished.stdout or "").strip()


def plan(site: Site, verdict: doctor.Verdict) -> list[supervisor.Process]:
    """The processes of ``pkbsite.processes`` as this start runs them."""
    values = {
        "python": str(site.interpreter),
        "data": str(site.data.path),
        "host": f"[{site.host}]" if ":" in site.host else site.host,
        "port": str(site.port),
        "target": TARGET,
    }
    return [_process(site, described, values, verdict) for described in processes.PROCESSES]


def _process(
    site: Site, described: processes.Process, values: Mapping[str, str], verdict: doctor.Verdict
) -> supervisor.Process:
    env = site.web_environment() if described.role == "web" else site.worker_environment(described.environment)
    if verdict.only_demonstration:
        env[doctor.ONLY_DEMONSTRATION] = "yes"
    process = supervisor.Process(
        name=described.name,
        command=[argument.format(**values) for argument in described.argv],
        env=env,
        ready=_page_answers(site) if described.name == "web" else _log_says(described.ready),
    )
    if described.role == "web":
        return process
    # An evaluation may take many minutes; the database knows that it has no verdict yet.
    busy = "was busy; what it evaluated is evaluated again after the next start"
    return replace(process, grace=BUSY_GRACE, killed=busy)


def _page_answers(site: Site) -> Callable[[str], str]:
    def ready(log: str) -> str:
        status, _ = network.get("localhost" if site.host in {"0.0.0.0", "::"} else site.host, site.port, "/readyz")  # noqa: S104
        return f"ready at {site.address}" if status == 200 else ""

    return ready


def _log_says(text: str) -> Callable[[str], str]:
    return lambda log: "ready" if text in log else ""
