"""Search over models, problems and teams, and for the id of a run or a file. Finds only what the reader may see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from django.db.models import Exists, OuterRef, Q
from django.urls import reverse

from leaderboard.models import RankedModel, Run, Submission, Team
from problems.models import Problem

MAX_LENGTH = 100
SHOWN = 20  # of each kind


@dataclass(frozen=True)
class Hit:
    """Something that was found: what it is called, what is said beside it, and its address."""

    name: str
    beside: str
    address: str


@dataclass(frozen=True)
class Kind:
    """Hits of one kind. ``more``: there are more than are shown."""

    title: str
    hits: list[Hit]
    more: bool = False


@dataclass(frozen=True)
class Found:
    """``error``: why nothing was looked for, in a sentence for the reader."""

    query: str
    kinds: list[Kind] = field(default_factory=list)
    error: str = ""

    @property
    def number(self) -> int:
        return sum(len(kind.hits) for kind in self.kinds)

    @property
    def only(self) -> Hit | None:
        """The hit, if there is exactly one."""
        return next(hit for kind in self.kinds for hit in kind.hits) if self.number == 1 else None


def search(text: str, user: Any) -> Found:
    """What ``text`` is part of, or the number or id of. At most eight queries, whatever the text."""
    query = " ".join(text.replace("\x00", " ").split())
    if not query:
        return Found("")
    if len(query) > MAX_LENGTH:
        error = f"The search text has {len(query)} characters; at most {MAX_LENGTH} are looked for. Shorten it."
        return Found(query[:MAX_LENGTH], error=error)
    kinds = (_models(query, user), _problems(query), _teams(query, user), _by_id(query, user))
    return Found(query, [kind for kind in kinds if kind.hits])


def _models(query: str, user: Any) -> Kind:
    """By slug and public name; by the name and organisation behind an alias only for the model's team and staff."""
    seen = Run.objects.visible_to(user).filter(model=OuterRef("pk"))
    own = RankedModel.objects.filter(team__in=Team.objects.of(user)).values("pk")
    inside = Q() if getattr(user, "is_staff", False) else Q(pk__in=own)
    named = Q(name__icontains=query) | Q(organisation__icontains=query)
    public = Q(alias__icontains=query) | (Q(alias="") & (named | Q(slug__icontains=query)))
    models = RankedModel.objects.filter(Exists(seen) | Q(pk__in=own)).filter(public | (inside & named))
    found = list(models.select_related("team").order_by("name", "pk")[: SHOWN + 1])
    hits = [Hit(m.public_name, m.public_organisation or m.team.name, reverse("model", args=[m.slug])) for m in found]
    return Kind("Models", hits[:SHOWN], more=len(hits) > SHOWN)


def _problems(query: str) -> Kind:
    """By number, and by parts of slug, title and older names. There are as many as the suite has, so all are read."""
    wanted = query.casefold()
    plain = wanted.replace(" ", "_").replace("-", "_")
    hits = []
    for number, slug, title, aliases in Problem.objects.values_list("number", "slug", "title", "aliases"):
        names = [slug, *aliases]
        exact = str(number) == wanted.lstrip("#")
        if exact or wanted in title.casefold() or any(plain in name.casefold() for name in names):
            hit = Hit(f"{number} {title}", slug, reverse("problem", args=[number]))
            hits.insert(0, hit) if exact else hits.append(hit)
    return Kind("Problems", hits[:SHOWN], more=len(hits) > SHOWN)


def _teams(query: str, user: Any) -> Kind:
    """By name and slug: teams with a result that the reader may see, own teams, and all for staff."""
    teams = Team.objects.filter(Q(name__icontains=query) | Q(slug__icontains=query))
    if not getattr(user, "is_staff", False):
        seen = Run.objects.visible_to(user).filter(team=OuterRef("pk"))
        teams = teams.filter(Exists(seen) | Q(pk__in=Team.objects.of(user).values("pk")))
    found = list(teams.order_by("name", "pk")[: SHOWN + 1])
    hits = [Hit(team.name, team.slug, reverse("team", args=[team.slug])) for team in found]
    return Kind("Teams", hits[:SHOWN], more=len(hits) > SHOWN)


def _by_id(query: str, user: Any) -> Kind:
    """The run or the file that has exactly this id."""
    visible = Run.objects.visible_to(user)
    run = visible.filter(public_id=query.casefold()).select_related("model").first()
    if run is not None:
        return Kind("Runs", [Hit(f"Run {run.public_id}", run.model.public_name, reverse("run", args=[run.public_id]))])
    files = Submission.objects.filter(public_id=query.casefold(), run__in=visible.active())
    file = files.select_related("problem").first()
    if file is not None:
        address = reverse("submission", args=[file.public_id])
        return Kind("Files", [Hit(file.file_name, f"problem {file.problem.number}", address)])
    return Kind("Runs", [])
