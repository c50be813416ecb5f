"""What is found on the GPUs between two jobs, and that a host with unclean ones takes no work until they are clean."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import redis
from structlog.testing import capture_logs

from evaluator import gpus
from evaluator.contract import Hello, Orders
from evaluator.gpus import GpusUnavailable
from evaluator.targets import targets
from evaluator.worker.cleanliness import AGAIN_SECONDS, PROBE, Cleanliness, of_target
from evaluator.worker.duty import NO_ORDERS, Duty
from tests.gpu_host import GpuHost

TARGET = targets()["gpu-emulated"]


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuHost:
    host = GpuHost.make(tmp_path, gpus=2)
    for name, value in host.environment(os.environ["PATH"]).items():
        monkeypatch.setenv(name, value)
    return host


def probe(*numbers: int) -> tuple[int, str]:
    """Exit status and what it prints."""
    done = subprocess.run([*PROBE, *map(str, numbers)], capture_output=True, text=True, timeout=60)
    return done.returncode, (done.stdout + done.stderr).strip()


# The probe


def test_a_working_gpu_passes(host: GpuHost) -> None:
    assert probe(0, 1) == (0, "GPUs that work: 2")


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("uninitialised", "cuInit fails with error 999."),
        ("fewer", "CUDA sees 1 of the 2 GPUs."),
        ("full", "GPU 0: cuMemAlloc_v2 fails with CUDA_ERROR_OUT_OF_MEMORY."),
        ("poisoned", "GPU 0: cuMemsetD32_v2 fails with CUDA_ERROR_LAUNCH_FAILED."),
        ("wrong", "GPU 0: 1 of 1048576 words that it was set to hold came back wrong."),
    ],
)
def test_a_broken_gpu_is_named_with_what_the_driver_says(host: GpuHost, mode: str, sentence: str) -> None:
    host.cuda(mode)
    assert probe(0, 1) == (1, sentence)


def test_a_host_without_the_drivers_library_is_told(host: GpuHost) -> None:
    (host.folder / "libcuda.so.1").write_text("no library")
    status, said = probe(0)
    assert status == 1
    assert said.startswith("The driver's library cannot be loaded: ")


@pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="this host has no NVIDIA GPU")
def test_a_real_gpu_is_clean() -> None:
    assert probe(0) == (0, "GPUs that work: 1")
    assert Cleanliness(TARGET).look_again() == ""


# What is looked at


def clean(clock: Clock | None = None, **options: Any) -> Cleanliness:
    """Looked at once, and found clean."""
    cleanliness = Cleanliness(TARGET, clock=clock or Clock(), clean_seconds=0, **options)
    assert cleanliness.look_again() == ""
    return cleanliness


def test_gpus_of_cpu_targets_are_nobodys_concern() -> None:
    assert of_target("cpu-gloo") is None
    assert of_target("abacus") is None
    assert of_target(TARGET.name) is not None


def test_memory_of_a_gpu_of_the_target_must_come_back(host: GpuHost) -> None:
    cleanliness = clean()
    host.uses(60, 80_000)  # the driver's own varies, and the second GPU is not the target's
    assert cleanliness.look_after_job() == ""
    host.uses(904, 4)
    assert cleanliness.look_before_job() == "900 MiB on GPU 0 are in use although no job runs."


def test_what_a_job_has_left_is_told_with_the_time_it_was_given(host: GpuHost) -> None:
    cleanliness = Cleanliness(TARGET, clean_seconds=0.1)
    assert cleanliness.look_again() == ""
    host.uses(904, 4)
    assert cleanliness.look_after_job() == "900 MiB on GPU 0 are in use 0.1 s after the job has ended."


def test_memory_that_was_in_use_before_the_worker_started_is_found(host: GpuHost) -> None:
    host.uses(5_120, 4)
    cleanliness = Cleanliness(TARGET, clock=Clock())
    assert cleanliness.look_again() == "4096 MiB on GPU 0 are in use although no job runs."
    assert cleanliness.look_before_job()  # seeing it twice makes it no cleaner


def test_memory_that_was_freed_may_not_be_taken_again(host: GpuHost) -> None:
    host.uses(800, 4)
    cleanliness = clean()
    host.uses(4, 4)
    assert cleanliness.look_before_job() == ""
    host.uses(800, 4)
    assert cleanliness.look_before_job().startswith("796 MiB on GPU 0")


def test_a_process_is_found_even_without_memory(host: GpuHost) -> None:
    cleanliness = clean()
    host.runs("4711, /usr/bin/python3", "[N/A], [N/A]")
    assert cleanliness.look_before_job() == "Process 4711 (python3) uses a GPU although no job runs."


def test_a_poisoned_gpu_is_found_after_the_job_and_not_before_the_next(host: GpuHost) -> None:
    """The probe takes time, so it runs once for each job."""
    cleanliness = clean()
    host.cuda("poisoned")
    assert cleanliness.look_before_job() == ""
    assert cleanliness.look_after_job() == (
        "The health probe of the GPUs failed with status 1. GPU 0: cuMemsetD32_v2 fails with CUDA_ERROR_LAUNCH_FAILED."
    )


@pytest.mark.parametrize(
    ("mode", "words"), [("hangs", "The health probe of the GPUs did not end within 0.5 s."), ("dies", "status -6")]
)
def test_a_probe_without_an_answer_is_a_finding(host: GpuHost, mode: str, words: str) -> None:
    host.cuda(mode)
    assert words in Cleanliness(TARGET, probe_seconds=0.5).look_again()


def test_a_gpu_that_is_gone_is_a_finding(host: GpuHost) -> None:
    cleanliness = clean()
    host.uses()
    assert cleanliness.look_before_job() == "The driver does not list GPU 0 any more."
    assert cleanliness.look_after_job() == "The target gpu-emulated needs 1 GPU; this host has none."


def test_what_hangs_in_the_driver_is_left_alone_and_nothing_is_sent_after_it(
    host: GpuHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process in such a driver survives SIGKILL. Here it survives because the signal is not sent."""
    (host.folder / "driver hangs").touch()
    monkeypatch.setattr(gpus, "QUERY_SECONDS", 0.2)
    monkeypatch.setattr(gpus, "DEATH_SECONDS", 0.1)
    killed: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(gpus.os, "killpg", lambda group, _: killed.append(group))
        with pytest.raises(GpusUnavailable, match=r"^nvidia-smi did not end within 0\.2 s\.$"):
            gpus.read()
    (host.folder / "driver hangs").unlink()
    with pytest.raises(GpusUnavailable, match=f"process {killed[0]} was killed and is stuck"):
        gpus.read()
    os.killpg(killed[0], 9)
    os.waitid(os.P_PID, killed[0], os.WEXITED | os.WNOWAIT)
    assert len(gpus.read()) == 2


# What the worker makes of it


class Site:
    """The site's side of a worker: gives orders, hears what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.away = False

    def orders(self) -> Orders:
        if self.away:
            raise redis.ConnectionError
        return Orders(takes_work=True)

    def say(self, kind: str, hello: Hello) -> None:
        assert kind == "hello"
        self.told.append(hello.refuses)


def duty_of(site: Site, cleanliness: Cleanliness) -> Duty:
    return Duty(site, Hello(target=TARGET.name, host="rack-7"), cleanliness)  # type: ignore[arg-type]


def test_an_unclean_host_takes_no_work_until_a_later_look_finds_it_clean(host: GpuHost) -> None:
    site, clock = Site(), Clock()
    duty = duty_of(site, Cleanliness(TARGET, clock=clock, clean_seconds=0))
    stopped: list[str] = []
    duty.stop_reading = lambda: stopped.append(duty.refusal)
    assert duty.look() == ""
    assert duty.may_begin() == ""
    host.cuda("wrong")
    duty.end_job()
    assert "came back wrong" in duty.refusal
    assert stopped == site.told == [duty.refusal] == [duty.unclean]
    host.cuda("works")
    with capture_logs() as early:
        clock.now += AGAIN_SECONDS - 1
        assert duty.look() == site.told[0]
        assert duty.may_begin() == site.told[0]
    assert early == []  # nobody looked
    clock.now += 1
    with capture_logs() as late:
        assert duty.look() == ""
    assert [entry["event"] for entry in late] == ["GPUs looked at", "GPUs are clean, work is taken", "orders changed"]
    assert site.told[1:] == [""]
    assert duty.hello.versions["driver"] == "580.159.03"  # it says anew what it is


def test_a_host_that_becomes_unclean_between_two_jobs_begins_none(host: GpuHost) -> None:
    site = Site()
    duty = duty_of(site, clean())
    assert duty.may_begin() == ""
    host.runs("4711, python")
    assert duty.may_begin() == "Process 4711 (python) uses a GPU although no job runs."
    assert site.told == [duty.refusal]


def test_a_host_whose_driver_is_away_at_the_start_works_once_it_is_there(host: GpuHost) -> None:
    site, clock = Site(), Clock()
    (host.folder / "nvidia-smi").rename(host.folder / "away")
    duty = duty_of(site, Cleanliness(TARGET, clock=clock))
    assert duty.look() == "The target gpu-emulated needs GPUs. There is no nvidia-smi."
    (host.folder / "away").rename(host.folder / "nvidia-smi")
    clock.now += AGAIN_SECONDS
    assert duty.look() == ""
    assert duty.hello.devices == ("NVIDIA H200",)


def test_a_clean_host_waits_for_orders_and_keeps_the_last_ones(host: GpuHost) -> None:
    site = Site()
    duty = duty_of(site, clean())
    site.away = True
    assert duty.look() == NO_ORDERS
    site.away = False
    assert duty.look() == ""
    site.away = True
    assert duty.look() == ""
    host.uses(904, 4)
    assert duty.may_begin().startswith("900 MiB")  # unclean, whatever the orders


def test_the_probe_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import runpy, sys; before = set(sys.modules); runpy.run_path(sys.argv[1]); print(*set(sys.modules) - before)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code, PROBE[-1]], capture_output=True, text=True, check=True)
    assert {name.partition(".")[0] for name in done.stdout.split()} <= sys.stdlib_module_names
