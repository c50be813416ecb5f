"""The broker of these tests is a list: what would be sent, and what would be marked as closed."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import UUID

import pytest

from evaluator.contract import Job, Orders
from leaderboard import broker, dispatch


@dataclass
class FakeBroker:
    """``jobs``: wake-ups sent, by queue and job. ``up`` False: it does not answer."""

    up: bool = True
    jobs: list[tuple[str, Job]] = field(default_factory=list)
    closed: list[UUID] = field(default_factory=list)
    lengths: dict[str, int] = field(default_factory=dict)
    reaper_known: bool = True
    orders: dict[str, Orders] = field(default_factory=dict)

    def _check(self) -> None:
        if not self.up:
            raise broker.BrokerUnavailable("down")


@pytest.fixture(autouse=True)
def messages(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    fake = FakeBroker()

    def send_task(name: str, *, args: list[str], queue: str, **options: object) -> None:
        if not fake.up:
            raise dispatch.OperationalError("down")
        fake.jobs.append((queue, Job.model_validate_json(args[0])))

    def mark_closed(ids: list[UUID]) -> None:
        fake._check()
        fake.closed.extend(ids)

    def queue_lengths(queues: list[str]) -> dict[str, int]:
        fake._check()
        return {name: fake.lengths.get(name, 0) for name in queues}

    def reaper_came_by(seconds: float) -> bool:
        fake._check()
        return fake.reaper_known

    def give_orders(orders: dict[str, Orders]) -> None:
        fake._check()
        fake.orders.update(orders)

    monkeypatch.setattr(broker, "give_orders", give_orders)
    monkeypatch.setattr(dispatch.app, "send_task", send_task)
    monkeypatch.setattr(broker, "mark_closed", mark_closed)
    monkeypatch.setattr(broker, "queue_lengths", queue_lengths)
    monkeypatch.setattr(broker, "reaper_came_by", reaper_came_by)
    return fake
