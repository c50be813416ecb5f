"""The supervisor of ./run: readiness, a process that dies, the order of stopping, and that nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher import strays, supervisor
from launcher.console import Refusal
from launcher.supervisor import Process, Supervisor

MARK = "mark-of-the-tests"
ROOT = Path(supervisor.__file__).parent.parent


@pytest.fixture
def watcher(tmp_path: Path) -> Iterator[Supervisor]:
    with Supervisor(ROOT, tmp_path, MARK) as watcher:
        yield watcher
    assert not strays.marked(MARK)


def fake(name: str, script: str, **options: object) -> Process:
    """A process of the site, played by a few lines of Python; it is ready when it has printed 'up'."""
    ready: Callable[[str], str] = lambda log: "ready" if "up" in log else ""  # noqa: E731
    command = [sys.executable, "-u", "-c", script]
    return Process(name=name, command=command, env=dict(os.environ), ready=ready, **options)  # type: ignore[arg-type]


SLEEPS = "import time; print('up'); time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(60)"


def test_says_who_is_ready(watcher: Supervisor, capsys: pytest.CaptureFixture[str]) -> None:
    watcher.await_ready(watcher.start(fake("beat", SLEEPS)))
    assert "beat" in capsys.readouterr().out


def test_a_dead_process_is_named_with_its_last_words_and_a_remedy(watcher: Supervisor) -> None:
    script = "import time; print('up', flush=True); time.sleep(0.3); raise SystemExit('no more memory for me')"
    running = watcher.start(fake("results worker", script, remedy="Buy memory."))
    watcher.await_ready(running)
    with pytest.raises(Refusal) as refusal:
        watcher.watch()
    assert refusal.value.what == "results worker has ended (exit status 1)."
    assert "no more memory for me" in refusal.value.evidence
    assert refusal.value.remedy.startswith("Buy memory.")
    assert "results-worker.log" in refusal.value.remedy


def test_a_process_that_dies_before_it_is_ready_is_noticed_while_another_is_awaited(watcher: Supervisor) -> None:
    slow = watcher.start(fake("web", "import time; time.sleep(60)"))
    watcher.start(fake("beat", "raise SystemExit(3)"))
    with pytest.raises(Refusal, match=r"beat has ended \(exit status 3\)"):
        watcher.await_ready(slow)


def test_a_process_that_never_gets_ready_is_not_waited_for_without_end(watcher: Supervisor) -> None:
    with pytest.raises(Refusal, match="web was not ready after 0 s"):
        watcher.await_ready(watcher.start(fake("web", "import time; time.sleep(60)", patience=0.3)))


def test_an_old_log_does_not_make_a_process_look_ready(watcher: Supervisor, tmp_path: Path) -> None:
    (tmp_path / "web.log").write_text("up, said the process of yesterday\n")
    running = watcher.start(fake("web", "import time; time.sleep(60)", patience=0.5))
    with pytest.raises(Refusal, match="was not ready"):
        watcher.await_ready(running)


def test_the_last_process_stops_after_the_others(tmp_path: Path) -> None:
    events = tmp_path / "events"
    script = (
        "import signal, sys, time\n"
        "def stop(*_):\n"
        f"    time.sleep(DELAY); open({str(events)!r}, 'a').write('NAME '); sys.exit()\n"
        "signal.signal(signal.SIGTERM, stop); print('up'); time.sleep(60)"
    )
    with Supervisor(ROOT, tmp_path, MARK) as watcher:
        for name, delay, last in (("broker", "0", True), ("web", "0.4", False)):
            running = watcher.start(fake(name, script.replace("NAME", name).replace("DELAY", delay), last=last))
            watcher.await_ready(running)
    assert events.read_text().split() == ["web", "broker"]


def test_a_process_that_ignores_the_request_is_killed_after_its_grace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Supervisor(ROOT, tmp_path, MARK) as watcher:
        running = watcher.start(fake("web", STUBBORN, grace=0.3, killed="was busy"))
        watcher.await_ready(running)
    assert running.popen.returncode == -signal.SIGKILL
    assert re.search("web +was busy", capsys.readouterr().out)


def test_grandchildren_in_sessions_of_their_own_do_not_outlive_the_run(tmp_path: Path) -> None:
    inner = [sys.executable, "-c", STUBBORN]
    outer = f"import subprocess, time; subprocess.Popen({inner!r}, start_new_session=True); print('up'); time.sleep(60)"
    with Supervisor(ROOT, tmp_path, MARK) as watcher:
        watcher.await_ready(watcher.start(fake("evaluation", outer)))
        assert len(strays.marked(MARK)) == 2
    assert not strays.marked(MARK)


def test_a_killed_run_is_cleaned_up_by_the_janitor(tmp_path: Path) -> None:
    script = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from pathlib import Path\n"
        "from launcher.supervisor import Process, Supervisor\n"
        f"command = [sys.executable, '-u', '-c', {SLEEPS!r}]\n"
        "process = Process('web', command, {}, lambda log: 'ready' if 'up' in log else '')\n"
        f"with Supervisor(Path({str(ROOT)!r}), Path({str(tmp_path)!r}), {MARK!r}) as watcher:\n"
        "    watcher.await_ready(watcher.start(process))\n"
        "    print('started', flush=True)\n"
        "    watcher.watch()\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None
        while "started" not in run.stdout.readline():
            assert run.poll() is None
        assert len(strays.marked(MARK)) == 1
        run.kill()
    deadline = time.monotonic() + 15
    while strays.marked(MARK) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not strays.marked(MARK)


def test_a_log_over_its_limit_is_moved_and_its_writer_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    with log.open("ab", buffering=0) as writer:
        writer.write(b"x" * 2000)
        supervisor.limit(log, size=1000)
        writer.write(b"after\n")
    assert log.read_bytes() == b"after\n"
    assert (tmp_path / "web.log.1").stat().st_size == 2000


def test_a_log_under_its_limit_stays(tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    log.write_bytes(b"x" * 1000)
    supervisor.limit(log, size=1000)
    assert log.stat().st_size == 1000
