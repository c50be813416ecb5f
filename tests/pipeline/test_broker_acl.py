"""What the credentials of a GPU host are good for in the broker, against a real server: its own work, no more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import redis
from django.core.management import CommandError, call_command

from evaluator import transport
from evaluator.contract import Hello, Orders, Signed
from evaluator.messaging import EVALUATE_TASK, RECORD_TASK, claim_key, closed_key, host_queue, orders_key
from leaderboard import broker_acl
from leaderboard.models import Run, Worker
from pkbsite import broker_users
from tests.factories import TargetFactory, WorkerFactory
from tests.pipeline.conftest import PASSWORD, Broker, Site, wait_for, wait_for_verdicts

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def worker(broker: Broker) -> Worker:
    """A worker of h100x4; beside it, one of h100x8 and a second one of h100x4."""
    target = TargetFactory(name="h100x4")
    worker = WorkerFactory(name="gpu-1", target=target)
    broker_acl.install([worker, WorkerFactory(name="gpu-2", target=target), _other()])
    return worker


def _other() -> Worker:
    return Worker.objects.filter(name="gpu-8").first() or WorkerFactory(
        name="gpu-8", target=TargetFactory(name="h100x8")
    )


def _as(broker: Broker, worker: Worker) -> redis.Redis:
    return broker.client(broker_users.worker_url(broker.url, worker.name, worker.key))


FORBIDDEN = [
    # jobs of another target, and of another host
    ("LLEN", "eval.h100x8"),
    ("LRANGE", "eval.h100x8", "0", "-1"),
    ("BRPOP", "eval.h100x8", "0.01"),
    ("RPOP", "eval.h100x8"),
    ("LPUSH", "eval.h100x8", "x"),
    ("LPUSH", "eval.h100x4-more", "x"),
    ("BRPOP", "host.gpu-2", "0.01"),
    ("LPUSH", "host.gpu-2", "x"),
    # an own queue beside a foreign one
    ("BRPOP", "eval.h100x4", "eval.h100x8", "0.01"),
    # what others hold
    ("HGETALL", "unacked.eval.h100x8"),
    ("HGET", "unacked.eval.h100x8", "tag"),
    ("HDEL", "unacked.eval.h100x8", "tag"),
    ("ZREM", "unacked_index.eval.h100x8", "tag"),
    ("HGET", "unacked.results", "tag"),
    ("HGET", "unacked.web", "tag"),
    # reports of others
    ("BRPOP", "results", "0.01"),
    ("RPOP", "results"),
    ("LRANGE", "results", "0", "-1"),
    ("LINDEX", "results", "0"),
    ("LLEN", "results"),
    ("LSET", "results", "0", "x"),
    ("LTRIM", "results", "1", "0"),
    ("RPUSH", "results", "x"),
    ("DEL", "results"),
    ("SET", "results", "x"),
    ("EXPIRE", "results", "1"),
    ("RENAME", "results", "eval.h100x4"),
    ("COPY", "results", "eval.h100x4"),
    ("LMOVE", "results", "eval.h100x4", "RIGHT", "LEFT"),
    ("BLMOVE", "results", "eval.h100x4", "RIGHT", "LEFT", "0.01"),
    # the web side's own work, and where its messages go
    ("LPUSH", "web", "x"),
    ("SADD", "_kombu.binding.results", "x"),
    ("SADD", "_kombu.binding.web", "x"),
    ("SMEMBERS", "_kombu.binding.eval.h100x4"),
    # what the site says
    ("SET", "pkb:closed:1", "1"),
    ("GET", "pkb:orders:gpu-2"),
    ("SET", "pkb:orders:gpu-1", "{}"),
    ("GET", "pkb:claim:h100x4:1"),
    ("SET", "pkb:claim:h100x8:1", "gpu-1"),
    ("SET", "pkb:claim:h100x4:1", "gpu-1", "GET"),
    # the server
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("KEYS", "*"),
    ("SCAN", "0"),
    ("RANDOMKEY",),
    ("DBSIZE",),
    ("SELECT", "1"),
    ("SWAPDB", "0", "1"),
    ("CONFIG", "GET", "*"),
    ("CONFIG", "SET", "dir", "/tmp"),
    ("INFO",),
    ("MONITOR",),
    ("SHUTDOWN", "NOSAVE"),
    ("SAVE",),
    ("BGREWRITEAOF",),
    ("REPLICAOF", "127.0.0.1", "6379"),
    ("SYNC",),
    ("MODULE", "LIST"),
    ("ACL", "LIST"),
    ("ACL", "SETUSER", "worker.gpu-1", "+@all"),
    ("ACL", "WHOAMI"),
    ("CLIENT", "LIST"),
    ("CLIENT", "KILL", "TYPE", "normal"),
    ("CLIENT", "PAUSE", "1000"),
    ("CLIENT", "NO-EVICT", "on"),
    ("LATENCY", "LATEST"),
    ("SLOWLOG", "GET"),
    ("MEMORY", "USAGE", "results"),
    ("OBJECT", "FREQ", "results"),
    # scripts
    ("EVAL", "return 1", "0"),
    ("EVALSHA", "0" * 40, "0"),
    ("SCRIPT", "LOAD", "return 1"),
    ("FUNCTION", "LIST"),
    ("FCALL", "f", "0"),
    # Celery's remote control and its events
    ("PUBLISH", "/0.celery.pidbox", "x"),
    ("SUBSCRIBE", "/0.celery.pidbox"),
    ("PSUBSCRIBE", "*"),
    ("SPUBLISH", "x", "x"),
    ("PUBSUB", "CHANNELS"),
]


def test_a_host_may_not(broker: Broker, worker: Worker) -> None:
    """Each is refused for lack of rights, not because it is wrong or nothing is there."""

    def answer(command: tuple[str, ...]) -> str:
        try:
            with _as(broker, worker) as client:
                return repr(client.execute_command(*command))
        except redis.exceptions.NoPermissionError:
            return "refused"
        except redis.RedisError as error:
            return repr(error)

    answers = {" ".join(command): answer(command) for command in FORBIDDEN}
    assert {command: answer for command, answer in answers.items() if answer != "refused"} == {}


def test_a_host_may_do_its_work(broker: Broker, worker: Worker) -> None:
    site = broker.client()
    site.lpush("eval.h100x4", "job")
    site.set(orders_key("gpu-1"), Orders(takes_work=True).model_dump_json())
    site.set(closed_key("1"), "1")
    with _as(broker, worker) as client:
        assert client.brpop(["eval.h100x4", host_queue("gpu-1")], timeout=1) == (b"eval.h100x4", b"job")
        with client.pipeline() as pipe:  # as Celery keeps what it holds
            pipe.zadd("unacked_index.eval.h100x4", {"tag": 1}).hset("unacked.eval.h100x4", "tag", "job").execute()
        assert client.get(orders_key("gpu-1"))
        assert client.exists(closed_key("1"))
        assert client.set(claim_key("h100x4", "1"), "gpu-1", nx=True, px=60_000)
        assert client.lpush("results", "report") == 1
    assert site.ttl(claim_key("h100x4", "1")) > 0


def test_wrong_and_old_passwords_and_nobody_are_refused(broker: Broker, worker: Worker) -> None:
    former = worker.key
    worker.key = "ab" * 32
    broker_acl.install([worker])
    for url in (
        broker_users.worker_url(broker.url, worker.name, former),
        broker_users.worker_url(broker.url, "gpu-9", worker.key),
        f"redis://127.0.0.1:{broker.port}/0",
    ):
        with broker.client(url) as client, pytest.raises(redis.exceptions.AuthenticationError):
            client.ping()
    with _as(broker, worker) as client:
        assert client.ping()


def test_rights_that_were_widened_by_hand_are_narrowed_again(broker: Broker, worker: Worker) -> None:
    broker.client().execute_command("ACL", "SETUSER", "worker.gpu-1", "+@all", "allkeys")
    broker_acl.install([worker])
    with _as(broker, worker) as client, pytest.raises(redis.exceptions.NoPermissionError):
        client.flushall()


def test_the_printed_file_gives_the_same_rights(broker: Broker, worker: Worker, tmp_path: Path) -> None:
    printed = StringIO()
    call_command("broker_acl", stdout=printed)
    assert worker.key not in printed.getvalue()
    assert broker_users.password(worker.key) not in printed.getvalue()
    broker.stop()
    file = tmp_path / "users.acl"
    file.write_text(f"user default on >{PASSWORD} ~* &* +@all\n" + printed.getvalue())
    broker.start("--aclfile", str(file))
    with _as(broker, worker) as client:
        assert client.ping()
        with pytest.raises(redis.exceptions.NoPermissionError):
            client.execute_command("LLEN", "eval.h100x8")


def test_a_real_worker_asks_for_no_more_than_it_may(site: Site, submit: Callable[..., Run]) -> None:
    """The server's log of refused commands stays empty over a whole life: start, job, cancel of its queue, end."""
    site.start("results", "evaluation")
    wait_for_verdicts(site, submit("judge: correct", "judge: code too_slow"))
    site.running["evaluation"].terminate()
    site.running["evaluation"].wait(60)
    assert site.broker.client().acl_log() == []


def test_registering_lets_the_host_in_and_prints_what_it_needs(broker: Broker, worker: Worker) -> None:
    out = StringIO()
    call_command("register_worker", "gpu-5", target="h100x4", stdout=out)
    printed = dict(line.split("=", 1) for line in out.getvalue().splitlines())
    assert set(printed) == {"REDIS_URL", "PKB_TARGET", "PKB_WORKER_NAME", "PKB_WORKER_KEY"}
    with broker.client(printed["REDIS_URL"]) as client:
        assert client.ping()
    out = StringIO()
    call_command("register_worker", "gpu-6", target="h100x4", address="rediss://broker.example.org:7000/0", stdout=out)
    assert out.getvalue().startswith("REDIS_URL=rediss://worker.gpu-6:")
    assert "@broker.example.org:7000/0\n" in out.getvalue()


def test_a_site_without_the_right_to_make_users_says_so(broker: Broker, worker: Worker, settings: object) -> None:
    broker.client().execute_command("ACL", "SETUSER", "modest", "on", ">pw", "~*", "+@all", "-acl")
    settings.REDIS_URL = f"redis://modest:pw@127.0.0.1:{broker.port}/0"  # type: ignore[attr-defined]
    with pytest.raises(CommandError, match=r"does not let the site set up users .*acl"):
        call_command("broker_acl", "--install", stdout=StringIO())
    errors = StringIO()
    call_command("register_worker", "gpu-5", target="h100x4", stdout=StringIO(), stderr=errors)
    assert "manage.py broker_acl" in errors.getvalue()
    broker_acl.keep_up()  # housekeeping goes on


def test_a_broker_that_is_gone_keeps_nobody_from_registering(broker: Broker, worker: Worker) -> None:
    broker.stop()
    errors = StringIO()
    call_command("register_worker", "gpu-5", target="h100x4", stdout=StringIO(), stderr=errors)
    assert "lets the worker in when it does" in errors.getvalue()
    assert Worker.objects.filter(name="gpu-5").exists()


def test_housekeeping_lets_workers_into_a_new_broker(site: Site) -> None:
    site.start("housekeeping", "beat")
    site.broker.stop()
    site.broker.start()

    def enters() -> bool:
        try:
            with site.broker.client(site.worker_url) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    wait_for(enters, "the worker to be let in", site)


GARBAGE = [
    b"\x00\xff\x00",
    b"{",
    b"[" * 100_000,
    b"null",
    b'{"headers": {"task": "record"}}',
    b'{"headers": {"task": "record"}, "body": "!"}',
    b'{"headers": {"task": "record"}, "body": 7, "properties": {}}',
    json.dumps(transport.envelope("os.system", "true", "results")).encode(),
    json.dumps({**transport.envelope(RECORD_TASK, "x", "results"), "body": "W10="}).encode(),
]


@pytest.mark.parametrize("item", GARBAGE, ids=range(len(GARBAGE)))
def test_what_is_no_message_is_refused(item: bytes) -> None:
    with pytest.raises(transport.Refused):
        transport.argument_of(item, RECORD_TASK)


def test_an_item_that_is_too_long_is_not_even_read() -> None:
    with pytest.raises(transport.Refused, match=f"at most {transport.MAX_ITEM_BYTES} are taken"):
        transport.argument_of(b"x" * (transport.MAX_ITEM_BYTES + 1), RECORD_TASK)


def _with_callbacks(argument: str) -> bytes:
    """A message that asks the worker to send another one, to the web side's queue, when it is done."""
    program = (
        "import sys, json, base64\n"
        "from celery import Celery\n"
        "app = Celery()\n"
        "then = app.signature('reap', queue='web')\n"
        "body = [[sys.argv[1]], {}, {'callbacks': [then], 'errbacks': [then], 'chain': None, 'chord': None}]\n"
        "print(base64.b64encode(json.dumps(body).encode()).decode())\n"
    )
    body = subprocess.run([sys.executable, "-c", program, argument], capture_output=True, text=True, check=True).stdout
    message = transport.envelope(RECORD_TASK, argument, "results")
    message["body"] = body.strip()
    message["headers"] |= {"eta": "2999-01-01T00:00:00+00:00", "timelimit": [0.001, 0.001], "retries": "x"}
    message["properties"]["delivery_info"] = {"exchange": "", "routing_key": "web"}
    return json.dumps(message).encode()


def test_nothing_that_a_host_writes_into_the_results_queue_reaches_further(site: Site) -> None:
    """Bytes that would end a Celery worker, and messages that would make it send others: only their text is read."""
    site.start("results")
    hello = Hello(target=site.worker.target.name, versions={"torch": "9.9"}).model_dump_json()
    signed = Signed.seal(worker=site.worker.name, kind="hello", body=hello, key=bytes.fromhex(site.worker.key))
    broker_acl.install([site.worker])
    with site.broker.client(site.worker_url) as client:
        for item in [*GARBAGE, _with_callbacks(signed.model_dump_json())]:
            client.lpush("results", item)
    wait_for(
        lambda: Worker.objects.get(pk=site.worker.pk).versions.get("torch") == "9.9", "the hello to be recorded", site
    )
    assert site.running["results"].poll() is None
    assert site.log("results").count("item of a queue dropped") == len(GARBAGE)
    assert site.broker.client().llen("web") == 0


def test_an_evaluation_worker_outlives_garbage_in_its_queue(site: Site, submit: Callable[..., Run]) -> None:
    site.start("results", "evaluation")
    with site.broker.client(site.worker_url) as client:
        for item in [*GARBAGE, json.dumps(transport.envelope(EVALUATE_TASK, "{}", "x")).encode()]:
            client.lpush(site.worker.target.queue, item)
    assert wait_for_verdicts(site, submit("judge: correct"))["correct"].code == "correct"
