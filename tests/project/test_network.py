"""What ./run says about ports and brokers, tried on real ones."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher import broker, network, strays
from launcher.console import Refusal
from launcher.datafolder import DataFolder


def test_a_taken_port_is_named_and_another_proposed() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        with pytest.raises(Refusal, match=f"port {port} of 127.0.0.1") as refusal:
            network.require_free("127.0.0.1", port)
    assert "--port" in refusal.value.remedy


def test_a_free_port_is_accepted() -> None:
    network.require_free("127.0.0.1", network.free_port())


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(Refusal, match=r"192\.0\.2\.1"):
        network.require_free("192.0.2.1", 8000)  # an address reserved for documentation


def test_the_embedded_broker_wants_its_password_and_keeps_what_it_was_given(tmp_path: Path) -> None:
    data = DataFolder.open(tmp_path)
    process, url = broker.embedded(Path(sys.executable), data)
    mark = "mark-of-the-broker-test"
    with subprocess.Popen(process.command, stdout=subprocess.DEVNULL, env={strays.MARK: mark}) as server:
        deadline = time.monotonic() + 10
        while not process.ready("") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert network.broker_answers(url) == ""
        assert strays.marked(mark) == {server.pid}, "a broker that hides its environment would outlive a killed ./run"
        assert "NOAUTH" in network.broker_answers(f"redis://127.0.0.1:{url.rsplit(':', 1)[1]}")
        assert "WRONGPASS" in network.broker_answers(url.replace(data.secret("broker_password"), "guess"))
        server.terminate()
    assert (tmp_path / "broker" / "appendonlydir").is_dir()
    assert (tmp_path / "broker" / "valkey.conf").stat().st_mode & 0o777 == 0o600


def test_a_broker_that_does_not_answer_is_refused_by_the_name_of_its_setting() -> None:
    with pytest.raises(Refusal, match="REDIS_URL") as refusal:
        broker.require(f"redis://127.0.0.1:{network.free_port()}/0")
    assert "Connection refused" in refusal.value.what
