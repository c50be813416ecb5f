"""What is done to the site. Each fault leaves everything running again, apart from what it did to the work."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import redis

from evaluator.messaging import RESULTS_QUEUE, evaluation_queue
from tests.chaos.cluster import LEASE_SECONDS, TARGET, WORKERS, Cluster

LATE = 2 * LEASE_SECONDS  # seconds that a message is held back: longer than any lease
FULL_SECONDS = 3.0
SKEWS = (-86_400.0, -3_600.0, 3_600.0, 86_400.0)


@dataclass
class Chaos:
    """Breaks ``cluster`` as ``random`` says. ``seen``: copies of messages that passed, to be sent again later."""

    cluster: Cluster
    random: random.Random
    seen: list[tuple[str, bytes]] = field(default_factory=list)

    def redis(self) -> redis.Redis:
        return redis.Redis(port=self.cluster.broker_port, socket_timeout=10)

    def kill_evaluation(self) -> None:
        self._kill(self.random.choice(WORKERS))

    def kill_both_evaluation_workers(self) -> None:
        for name in WORKERS:
            self.cluster.kill(name)
        self._rest()
        self.cluster.start(*WORKERS)

    def kill_results(self) -> None:
        self._kill("results")

    def kill_beat(self) -> None:
        self._kill("beat")

    def kill_housekeeping(self) -> None:
        self._kill("housekeeping")

    def kill_web(self) -> None:
        self._kill("web")

    def kill_everything(self) -> None:
        """Power cut: every process at once, the database too."""
        self.cluster.down.add("database")
        self.cluster.database.kill()
        for name in self.cluster.names:
            self.cluster.kill(name)
        self._rest()
        self.cluster.database.start_again()
        self.cluster.down.discard("database")
        self.cluster.start("broker")
        self.cluster.start(*self.cluster.names[1:])

    def restart_broker(self) -> None:
        """Killed and started with the file that it wrote every second."""
        self._kill("broker")

    def flush_broker(self) -> None:
        with self.redis() as client:
            client.flushall()

    def restart_database(self) -> None:
        self.cluster.database.restart()

    def kill_database(self) -> None:
        self.cluster.down.add("database")
        self.cluster.database.kill()
        self._rest()
        self.cluster.database.start_again()
        self.cluster.down.discard("database")

    def full_disk(self) -> None:
        """The database's file system has not a byte left: verdicts and artifacts cannot be stored."""
        filler = self.cluster.database.folder / "filler"
        with filler.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                try:
                    while True:
                        file.write(os.urandom(size))
                except OSError:
                    continue
        time.sleep(FULL_SECONDS)
        filler.unlink()
        self.cluster.supervise()

    def pause_evaluation(self) -> None:
        """A host that freezes for longer than its lease and then goes on as if nothing had happened."""
        name = self.random.choice(WORKERS)
        self.cluster.pause(name)
        time.sleep(LATE)
        self.cluster.resume(name)

    def duplicate_messages(self) -> None:
        """Everything that waits, twice; and what passed before, again."""
        with self._held_back() as messages, self.redis() as client:
            for queue, message in [*messages, *messages, *self.random.sample(self.seen, min(20, len(self.seen)))]:
                client.lpush(queue, message)

    def reorder_messages(self) -> None:
        with self._held_back() as messages, self.redis() as client:
            self.random.shuffle(messages)
            for queue, message in messages:
                client.lpush(queue, message)

    def delay_messages(self) -> None:
        """Half of what waits arrives after the leases have ended."""
        with self._held_back() as messages, self.redis() as client:
            late = [item for item in messages if self.random.random() < 0.5]
            for item in messages:
                if item not in late:
                    client.lpush(*item)
        time.sleep(LATE)
        with self.redis() as client:
            for queue, message in late:
                client.lpush(queue, message)

    def clock_jump(self) -> None:
        """A host's clock is wrong by an hour or a day, forwards or backwards; it stays so until the next jump."""
        name = self.random.choice(WORKERS)
        self.cluster.skew[name] = self.random.choice(SKEWS)
        self._kill(name)

    def _kill(self, name: str) -> None:
        self.cluster.kill(name)
        self._rest()
        self.cluster.start(name)

    def _rest(self) -> None:
        time.sleep(self.random.uniform(0, 3))

    def _held_back(self) -> HeldBack:
        return HeldBack(self)


class HeldBack:
    """Stops the recorder for a while, so that messages wait, and takes them all out of the queues."""

    def __init__(self, chaos: Chaos) -> None:
        self.chaos = chaos

    def __enter__(self) -> list[tuple[str, bytes]]:
        self.chaos.cluster.pause("results")
        time.sleep(self.chaos.random.uniform(1, 3))
        messages = []
        with self.chaos.redis() as client:
            for queue in (RESULTS_QUEUE, evaluation_queue(TARGET)):
                while (message := client.rpop(queue)) is not None:
                    messages.append((queue, message))
        self.chaos.seen = [*self.chaos.seen, *messages][-500:]
        return messages

    def __exit__(self, *_: object) -> None:
        self.chaos.cluster.resume("results")


FAULTS: dict[str, Callable[[Chaos], None]] = {
    name: getattr(Chaos, name)
    for name in (
        "kill_evaluation",
        "kill_both_evaluation_workers",
        "kill_results",
        "kill_beat",
        "kill_housekeeping",
        "kill_web",
        "kill_everything",
        "restart_broker",
        "flush_broker",
        "restart_database",
        "kill_database",
        "full_disk",
        "pause_evaluation",
        "duplicate_messages",
        "reorder_messages",
        "delay_messages",
        "clock_jump",
    )
}
