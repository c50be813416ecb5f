"""``manage.py register_worker NAME --target TARGET``: make a worker known and print what its host must be told."""

from __future__ import annotations

import os
import re
import secrets
from argparse import ArgumentParser
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from leaderboard import audit, broker, broker_acl
from leaderboard.models import Target, Worker
from pkbsite import broker_users


class Command(BaseCommand):
    help = "Registers a worker for one target, lets it into the broker, and prints the settings of its host, once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="name of the worker, PKB_WORKER_NAME on its host")
        parser.add_argument("--target", required=True, help="name of the target that it evaluates for")
        parser.add_argument("--new-key", action="store_true", help="replace the key of a worker that is known")
        parser.add_argument(
            "--broker",
            dest="address",
            help="address of the broker as the host reaches it (REDIS_URL of the site, without password)",
        )
        parser.add_argument(
            "--given-key", action="store_true", help="take the key from PKB_WORKER_KEY; again and again changes nothing"
        )

    def handle(
        self, *, name: str, target: str, new_key: bool, given_key: bool, address: str | None = None, **options: Any
    ) -> None:
        key = _given_key() if given_key else secrets.token_hex(32)
        with transaction.atomic():
            served = Target.objects.filter(name=target).first()
            if served is None:
                known = ", ".join(Target.objects.values_list("name", flat=True)) or "none; run: manage.py load_suite"
                raise CommandError(f"There is no target {target!r}. Known are: {known}.")
            worker = Worker.objects.select_for_update().filter(name=name).first()
            if worker is not None and worker.target_id != served.pk:
                raise CommandError(f"Worker {name!r} serves {worker.target.name}; another target needs another name.")
            if worker is not None and not (new_key or given_key):
                raise CommandError(f"Worker {name!r} is known. --new-key replaces its key; the old one is void then.")
            if worker is None or worker.key != key:
                worker = _save(worker or Worker(name=name, target=served), key)
        if problem := _let_into_broker(worker):
            self.stderr.write(problem)
        if not given_key:
            url = broker_users.worker_url(address or settings.REDIS_URL, name, key)
            self.stdout.write(f"REDIS_URL={url}\nPKB_TARGET={target}\nPKB_WORKER_NAME={name}\nPKB_WORKER_KEY={key}")


def _let_into_broker(worker: Worker) -> str:
    """Set up the worker's user; why that did not work, as a sentence, or "". It can be done later just as well."""
    if not settings.BROKER_USERS:
        return ""
    try:
        broker_acl.install([worker])
    except broker.BrokerUnavailable as error:
        return f"The broker does not answer ({error}); the housekeeping process lets the worker in when it does."
    except broker_acl.NotAllowed as error:
        return f"The broker does not let the site set up users ({error}). Do it there: manage.py broker_acl"
    return ""


def _save(worker: Worker, key: str) -> Worker:
    action = "add worker" if worker.pk is None else "replace key"
    worker.key = key
    try:
        worker.full_clean()
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from error
    worker.save()
    audit.write(action, worker)
    return worker


def _given_key() -> str:
    key = os.environ.get("PKB_WORKER_KEY", "")
    if not re.fullmatch(r"[0-9a-f]{64}", key):
        raise CommandError(f"PKB_WORKER_KEY has {len(key)} characters; a key is 64 hexadecimal digits.")
    return key
