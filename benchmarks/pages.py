"""How long pages take with 10,000, 100,000 and 1,000,000 verdicts, and whether they grow with the number of verdicts.

    python -m tests.postgres -m benchmarks.pages [--sizes 10000 100000 1000000] [--repeats 15] [--json FILE]

Makes one PostgreSQL database a size (benchmarks.load_data), starts gunicorn as ``./run`` does (two workers, four
threads) in front of each, and asks all of them for the same pages in turn, so that whatever else the machine does
falls on every size alike. Cold: the version of the scores has just changed, and nothing of the page is in the cache.
Warm: the page was asked for before. Times are those of the client, from the request to the last byte (exports: to the
first).
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from urllib.parse import urlsplit, urlunsplit

import psycopg

from launcher.network import free_port
from pkbsite.processes import PROCESSES

ROOT = Path(__file__).resolve().parent.parent
SIZES = (10_000, 100_000, 1_000_000)
BY_HAND = 40_000
PATIENCE = 120.0
CLIENTS, RATE_SECONDS = 4, 5.0
KEY = "a-key-for-a-benchmark-only-0123456789-abcdefghij"
# As leaderboard.versions.bump does: every page is cold afterwards.
BUMP = "update leaderboard_scoreversion set token = md5(random()::text)"
RUNS = "select public_id from leaderboard_run order by id limit 2"  # the same runs in every database


@dataclass
class Site:
    """A database of one size with a web server in front of it."""

    size: int
    database: str
    port: int
    addresses: dict[str, str] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    rate: float = 0.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    server = os.environ.get("DATABASE_URL")
    if not server:
        sys.exit(
            "Give a PostgreSQL server in DATABASE_URL, or start this with: python -m tests.postgres -m benchmarks.pages"
        )
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "SECRET_KEY": KEY, "PKB_DATA": folder, "LOG_LEVEL": "ERROR", "ALLOWED_HOSTS": "*"}
        _command(environment, "collectstatic", "--no-input", "--verbosity", "0")
        sites = [_filled(server, size, environment) for size in sorted(options.sizes)]
        with _serving(sites, environment):
            for site in sites:
                site.addresses = _addresses(site)
            _measure(sites, options.repeats)
            for site in sites:
                site.rate = _rate(site)
    _report(sites)
    if options.json:
        options.json.write_text(json.dumps([_plain(site) for site in sites], indent=1) + "\n")
    return 0


def _filled(server: str, size: int, environment: dict[str, str]) -> Site:
    """A database with about ``size`` verdicts: filled run by run up to ``BY_HAND``, from there on by copies."""
    smallest, name = SIZES[0], f"pages_{size}"
    if size <= smallest:
        _made(
            server, name, "template1", environment, ["migrate", "--verbosity", "0"], ["load_suite"], verdicts=smallest
        )
    else:
        _filled(server, smallest, environment)
        _made(server, "pages_by_hand", f"pages_{smallest}", environment, verdicts=BY_HAND)
        copies = max(0, (size - BY_HAND) // (BY_HAND - smallest))
        _made(server, name, "pages_by_hand", environment, copies=copies)
    return Site(size, _address(server, name), free_port())


def _made(
    server: str, name: str, template: str, environment: dict[str, str], *commands: list[str], **load: int
) -> None:
    """Make a database, unless it is there, and fill it with what ``load`` says as an option of benchmarks.load_data."""
    with psycopg.connect(server, autocommit=True) as connection:
        if connection.execute("select 1 from pg_database where datname = %s", [name]).fetchone():
            return
        connection.execute(f'create database "{name}" template "{template}"')
    own = {**environment, "DATABASE_URL": _address(server, name)}
    for command in commands:
        _command(own, *command)
    for option, number in load.items():
        if number:
            _module(own, "benchmarks.load_data", f"--{option}", str(number))
    with psycopg.connect(own["DATABASE_URL"], autocommit=True) as made:
        made.execute("vacuum analyze")


def _address(server: str, database: str) -> str:
    return urlunsplit(urlsplit(server)._replace(path=f"/{database}"))


def _command(environment: dict[str, str], *arguments: str) -> None:
    subprocess.run([sys.executable, "manage.py", *arguments], cwd=ROOT, env=environment, check=True)


def _module(environment: dict[str, str], *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", *arguments], cwd=ROOT, env=environment, check=True)


@contextmanager
def _serving(sites: list[Site], environment: dict[str, str]) -> Iterator[None]:
    web = next(process for process in PROCESSES if process.name == "web")
    running = []
    try:
        for site in sites:
            places = {"python": sys.executable, "host": "127.0.0.1", "port": str(site.port), "data": "", "target": ""}
            running.append(
                subprocess.Popen(
                    [part.format(**places) for part in web.argv],
                    cwd=ROOT,
                    env={**environment, "DATABASE_URL": site.database},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,
                )
            )
        for site in sites:
            _await(site)
        yield
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGTERM)
        for process in running:
            process.wait(30)


def _await(site: Site) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        try:
            _get(site, "/healthz")
            return
        except OSError:
            time.sleep(0.3)
    sys.exit(f"The site with {site.size} verdicts did not answer within {PATIENCE:.0f} s.")


def _addresses(site: Site) -> dict[str, str]:
    with psycopg.connect(site.database) as connection:
        first, second = (row[0] for row in connection.execute(RUNS).fetchall())
    return {
        "leaderboard": "/",
        "leaderboard with charts": "/?charts=on",
        "leaderboard, one type": "/?type=tensor",
        "run": f"/runs/{first}/",
        "problem": "/problems/13/",
        "compare": f"/compare/?run={first}&run={second}",
        "CSV, first byte": "/leaderboard.csv",
    }


def _get(site: Site, address: str, *, first_byte: bool = False) -> tuple[float, int]:
    """Seconds, and bytes on the wire; with ``first_byte`` the rest is not waited for."""
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=120)
    started = time.perf_counter()
    connection.request("GET", address, headers={"Accept-Encoding": "gzip"})
    answer = connection.getresponse()
    body = answer.read(1 if first_byte else None)
    seconds = time.perf_counter() - started
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{address} answered {answer.status}")
    return seconds, len(body)


def _measure(sites: list[Site], repeats: int) -> None:
    for page in sites[0].addresses:
        for site in sites:  # code and connections of both workers are warm, whatever the page costs
            for _ in range(4):
                _get(site, site.addresses[page])
        for _ in range(repeats):
            for site in sites:
                _timed(site, page, "cold")
                _timed(site, page, "warm")
        print(f"measured: {page}", file=sys.stderr, flush=True)


def _timed(site: Site, page: str, state: str) -> None:
    address, first_byte = site.addresses[page], page.endswith("first byte")
    if state == "cold":
        with psycopg.connect(site.database, autocommit=True) as connection:
            connection.execute(BUMP)
    else:
        for _ in range(4):  # each of the two workers has a cache of its own
            _get(site, address)
    seconds, size = _get(site, address, first_byte=first_byte)
    site.times.setdefault(f"{page}, {state}", []).append(seconds)
    site.bytes[page] = size


def _rate(site: Site) -> float:
    """Leaderboards a second, warm, asked for by several clients at once."""
    counts, end = [0] * CLIENTS, time.monotonic() + RATE_SECONDS

    def ask(client: int) -> None:
        while time.monotonic() < end:
            _get(site, "/")
            counts[client] += 1

    clients = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    return sum(counts) / RATE_SECONDS


def _p95(values: list[float]) -> float:
    return quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


def _report(sites: list[Site]) -> None:
    heads = " | ".join(f"{site.size:,} p50 / p95 ms" for site in sites)
    print(f"| page | {heads} | ratio of p50, last / first |")
    print("|---|" + "--:|" * (len(sites) + 1))
    for key in sites[0].times:
        cells = " | ".join(f"{1e3 * median(s.times[key]):.0f} / {1e3 * _p95(s.times[key]):.0f}" for s in sites)
        print(f"| {key} | {cells} | {median(sites[-1].times[key]) / median(sites[0].times[key]):.2f} |")
    print()
    for page in (page for page in sites[0].bytes if not page.endswith("first byte")):
        print(f"{page}: " + ", ".join(f"{site.bytes[page] / 1000:.1f} kB" for site in sites) + " on the wire")
    print("leaderboards a second: " + ", ".join(f"{site.rate:.0f}" for site in sites))


def _plain(site: Site) -> dict[str, object]:
    return {
        "verdicts": site.size,
        "seconds": {key: [round(value, 5) for value in values] for key, values in site.times.items()},
        "bytes": site.bytes,
        "leaderboards_per_second": round(site.rate, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
