"""``manage.py register_worker NAME --target TARGET``: make a worker known and print the key that signs its messages."""

from __future__ import annotations

import os
import re
import secrets
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from leaderboard import audit
from leaderboard.models import Target, Worker


class Command(BaseCommand):
    help = "Registers a worker for one target and prints its key, which is shown this once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("name", help="name of the worker, PKB_WORKER_NAME on its host")
        parser.add_argument("--target", required=True, help="name of the target that it evaluates for")
        parser.add_argument("--new-key", action="store_true", help="replace the key of a worker that is known")
        parser.add_argument(
            "--given-key", action="store_true", help="take the key from PKB_WORKER_KEY; again and again changes nothing"
        )

    def handle(self, *, name: str, target: str, new_key: bool, given_key: bool, **options: Any) -> None:
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
                _save(worker or Worker(name=name, target=served), key)
        if not given_key:
            self.stdout.write(f"PKB_TARGET={target} PKB_WORKER_NAME={name} PKB_WORKER_KEY={key}")


def _save(worker: Worker, key: str) -> None:
    action = "add worker" if worker.pk is None else "replace key"
    worker.key = key
    try:
        worker.full_clean()
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from error
    worker.save()
    audit.write(action, worker)


def _given_key() -> str:
    key = os.environ.get("PKB_WORKER_KEY", "")
    if not re.fullmatch(r"[0-9a-f]{64}", key):
        raise CommandError(f"PKB_WORKER_KEY has {len(key)} characters; a key is 64 hexadecimal digits.")
    return key
