"""``manage.py broker_acl``: the broker's users of all workers, printed or set up."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from leaderboard import broker, broker_acl
from leaderboard.models import Worker


class Command(BaseCommand):
    help = "Prints the broker's users of all workers as lines of an ACL file; with --install, sets them up there."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--install", action="store_true", help="set them up in the broker of REDIS_URL")

    def handle(self, *, install: bool, **options: Any) -> None:
        workers = Worker.objects.select_related("target")
        if not install:
            self.stdout.write(broker_acl.acl_file(workers), ending="")
            return
        try:
            number = broker_acl.install(workers)
        except broker_acl.NotAllowed as error:
            raise CommandError(
                f"The broker does not let the site set up users ({error}). Give the site's user +acl|setuser "
                "there, or load what this command prints without --install."
            ) from error
        except broker.BrokerUnavailable as error:
            raise CommandError(f"The broker of REDIS_URL does not answer ({error}).") from error
        self.stdout.write(f"Set up the broker's users of {number} workers.")
