"""The locks of versions fit pyproject.toml and each other, and install from any index."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "requirements"
REMEDY = "run: python requirements/lock.py"


def _lock_module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lock", FOLDER / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOCKS: dict[str, tuple[tuple[str, ...], str]] = _lock_module().LOCKS


@cache
def pins(name: str) -> dict[str, str]:
    lines = [line for line in (FOLDER / name).read_text().splitlines() if not line.startswith("#")]
    requirements = [Requirement(line) for line in lines]
    return {canonicalize_name(found.name): str(found.specifier).removeprefix("==") for found in requirements}


def wanted(extras: tuple[str, ...]) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [*project["dependencies"], *(text for extra in extras for text in project["optional-dependencies"][extra])]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("name", LOCKS)
def test_every_requirement_of_the_extras_is_locked_at_a_version_that_it_admits(name: str) -> None:
    locked = pins(name)
    for requirement in wanted(LOCKS[name][0]):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{name} lacks {requirement.name}; {REMEDY}"
        assert requirement.specifier.contains(version), f"{name} has {requirement.name} {version}; {REMEDY}"


@pytest.mark.parametrize("name", [name for name in LOCKS if name not in {"dev.txt", "bootstrap.txt"}])
def test_a_package_has_one_version_in_all_locks(name: str) -> None:
    everything = pins("dev.txt")
    assert {package: everything.get(package) for package in pins(name)} == pins(name), REMEDY


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_holds_exact_versions_and_no_index_link_or_local_build(name: str) -> None:
    for line in (FOLDER / name).read_text().splitlines()[1:]:
        assert re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*( ; python_full_version < \"[\d.]+\")?", line), line


def test_a_web_host_gets_no_torch_and_a_gpu_host_no_django() -> None:
    assert "torch" not in pins("web.txt")
    assert "torch" not in pins("worker.txt")
    assert not {name for name in pins("worker.txt") if "django" in name or name.startswith("psycopg")}


def test_no_extra_of_pyproject_is_forgotten() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {extra for extras, _ in LOCKS.values() for extra in extras} == set(project["optional-dependencies"])
