"""Teams that send files over HTTP and try again when the site does not answer, as people and programs do."""

from __future__ import annotations

import random
import re
import time
from dataclasses import dataclass

import requests
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore

from leaderboard.models import RankedModel, User
from tests.chaos.cluster import TARGET

TOKEN = "chaos0123456789chaos0123456789ab"  # of CSRF: 32 letters, the same in cookie and form
PATIENCE = 120.0
WORDS = ("correct", "wrong_values", "deadlock", "compile_error", "sleep 0.3", "sleep 1", "sleep 4", "correct", "fail")
WEIGHTS = (8, 4, 3, 3, 6, 3, 1, 4, 1)


@dataclass
class Person:
    """A member of a team with one model. ``confirmed``: public ids of the runs that the site said it took."""

    user: User
    model: RankedModel
    site_url: str

    def __post_init__(self) -> None:
        session = SessionStore()
        session[SESSION_KEY] = str(self.user.pk)
        session[BACKEND_SESSION_KEY] = "django.contrib.auth.backends.ModelBackend"
        session[HASH_SESSION_KEY] = self.user.get_session_auth_hash()
        session.save()
        self.cookies = {"sessionid": session.session_key, "csrftoken": TOKEN}
        self.confirmed: list[str] = []

    def submit(self, chance: random.Random, files: int, problems: int = 87) -> str:
        """Send ``files`` files and confirm; returns the run's public id."""
        words = chance.choices(WORDS, WEIGHTS, k=files)
        numbers = chance.sample(range(1, problems + 1), files)
        sent = [
            ("files", (f"{number}.py", f"# judge: {word}\n# {chance.random()}\ndef solution(x):\n    return x\n"))
            for number, word in zip(numbers, words, strict=True)
        ]
        preview = self._post("/submit/", {"end": "1"}, sent, r"/submit/[0-9a-f-]{36}/")
        form = {
            "model": str(self.model.pk),
            "track": "single-shot",
            "backend": "pytorch",
            "precision": "fp32",
            "targets": TARGET,
            "provenance": "self-reported",
            "visibility": "public",
            "source_visibility": "public",
            "licence": "MIT",
            "terms": "on",
        }
        run_id = self._post(preview, form, None, r"/runs/(\w+)/").split("/")[2]
        self.confirmed.append(run_id)
        return run_id

    def cancel(self, run_id: str, evaluation_id: str) -> None:
        self._post(f"/runs/{run_id}/cancel/", {"evaluation": evaluation_id}, None, r"/runs/\w+/")

    def _post(self, path: str, data: dict[str, str], files: object, wanted: str) -> str:
        """The address to which the site sends us, once it does; until then the same again."""
        end = time.monotonic() + PATIENCE
        problem = ""
        while time.monotonic() < end:
            try:
                response = requests.post(
                    self.site_url + path,
                    data={**data, "csrfmiddlewaretoken": TOKEN},
                    files=files,  # type: ignore[arg-type]
                    cookies=self.cookies,
                    allow_redirects=False,
                    timeout=30,
                )
            except requests.RequestException as error:
                problem = str(error)
            else:
                place = response.headers.get("Location", "")
                if response.status_code == 302 and re.fullmatch(wanted, place):
                    return place
                problem = f"{response.status_code} {place} {response.text[:500]}"
                if 400 <= response.status_code < 500:
                    break
            time.sleep(0.5)
        raise RuntimeError(f"{path}: {problem}")
