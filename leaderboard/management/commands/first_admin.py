"""``manage.py first_admin``: on a site without an admin, make one and print its one-time password."""

from __future__ import annotations

import secrets
from typing import Any

from allauth.account.models import EmailAddress
from django.core.management.base import BaseCommand
from django.db import transaction

from leaderboard import audit
from leaderboard.models import User

NAME = "admin"


class Command(BaseCommand):
    help = "Makes the first admin and prints the password, which is shown this once; does nothing if there is an admin."

    def handle(self, *args: Any, **options: Any) -> None:
        with transaction.atomic():
            if User.objects.filter(is_superuser=True).exists():
                return
            name = NAME
            while User.objects.filter(username=name).exists():  # somebody has signed up under that name
                name = f"{NAME}-{secrets.token_hex(2)}"
            password = secrets.token_urlsafe(12)
            user = User.objects.create_superuser(name, f"{name}@localhost", password)
            # No mail reaches that address, and signing in asks for a confirmed one.
            EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
            audit.write("make first admin", user)
        self.stdout.write(f"First admin: user {name}, one-time password {password} (shown this once; change it)")
