"""docker-compose.yml starts what ./run starts: the same commands, with the environment that each process reads."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pkbsite import environment, processes

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
VALUES = {"python": "python", "data": "/data", "host": "0.0.0.0", "port": "8000", "target": "${PKB_TARGET:-h100x4}"}  # noqa: S104
BY_NAME = {process.name: process for process in processes.PROCESSES}


def test_every_process_has_its_service() -> None:
    assert set(SERVICES) == set(BY_NAME) | {"postgres", "redis", "migrate"}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_service_runs_the_command_of_its_process(name: str) -> None:
    assert SERVICES[name]["command"] == [argument.format(**VALUES) for argument in BY_NAME[name].argv]


@pytest.mark.parametrize("name", BY_NAME)
def test_a_service_gets_the_environment_of_its_process_and_nothing_else(name: str) -> None:
    assert set(SERVICES[name]["environment"]) == set(BY_NAME[name].environment)


def test_a_gpu_host_gets_no_secret_of_the_site() -> None:
    worker = SERVICES["evaluation"]
    secrets = {setting.name for setting in environment.SETTINGS if setting.kind == "secret"} | {"DATABASE_URL"}
    assert not secrets & set(worker["environment"])
    assert "env_file" not in worker, "an .env file may hold the site's secrets"
    assert "volumes" not in worker
    assert "PASSWORD" not in str(worker), "it has a user of its own in the broker"


def test_a_gpu_host_drops_every_capability_and_opens_what_bubblewrap_needs() -> None:
    worker = SERVICES["evaluation"]
    assert worker["cap_drop"] == ["ALL"]
    assert "cap_add" not in worker
    assert "privileged" not in worker
    assert set(worker["security_opt"]) == {"seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"}
    assert worker["profiles"] == ["worker"], "a web host must not start it"


def test_the_defaults_are_those_of_the_settings() -> None:
    """A default that is written down twice must not say two things."""
    own = {"DATABASE_URL", "REDIS_URL", "PKB_DATA", "ALLOWED_HOSTS"}  # other here: the services have names
    for name, value in SERVICES["web"]["environment"].items():
        if name not in own:
            default = environment.BY_NAME[name].default
            assert value == f"${{{name}:-{default}}}"


def test_nothing_but_the_broker_and_the_site_has_a_port_and_both_stay_on_the_host_by_default() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert ports == {"web": ["${WEB_BIND:-127.0.0.1}:8000:8000"], "redis": ["${REDIS_BIND:-127.0.0.1}:6379:6379"]}


def test_images_are_built_here_or_have_plain_names() -> None:
    stages = re.findall(r"^FROM .* AS (\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    for service in SERVICES.values():
        if "build" in service:
            assert service["build"]["target"] in stages
        assert re.fullmatch(r"[a-z-]+(:\d+)?", service["image"]), service["image"]


def test_every_folder_that_the_images_copy_is_there() -> None:
    """An image built from a folder that has moved would only fail on the operator's machine."""
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert copied
    assert all((ROOT / path).exists() for line in copied for path in line.split())
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert all((ROOT / path).exists() for path in kept)


def test_docker_compose_accepts_the_file() -> None:
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not installed")
    command = [docker, "compose", "--profile", "worker", "config", "--format", "json"]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stderr
    assert set(json.loads(finished.stdout)["services"]) == set(SERVICES)
