"""``manage.py prepare``: everything that a new version or a new site needs before its processes start."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand


class Command(BaseCommand):
    help = "Migrates the database, loads the suite, rescores by new rules, collects static files, makes the first admin"

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--skip-static", action="store_true", help="static files have been collected (in an image)")
        parser.add_argument("--worker", help="also register this worker, with the key in PKB_WORKER_KEY")
        parser.add_argument("--target", help="target of that worker")

    def handle(self, *, skip_static: bool, worker: str | None, target: str | None, **options: Any) -> None:
        """One process for all of it: Django starts once, not five times."""
        call_command("migrate", interactive=False, verbosity=0)
        call_command("load_suite", stdout=self.stdout)
        call_command("rescore", "--outdated", stdout=self.stdout)
        if not skip_static:
            call_command("collectstatic", interactive=False, verbosity=0)
        if worker:
            call_command("register_worker", worker, "--target", target or "", "--given-key", stdout=self.stdout)
        call_command("first_admin", stdout=self.stdout)
