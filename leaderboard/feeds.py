"""Atom feed of new results on a board, with the filters of its page."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.syndication.views import Feed
from django.http import HttpRequest
from django.urls import reverse
from django.utils.feedgenerator import Atom1Feed

from leaderboard.figures import percent_text, ratio_text
from leaderboard.models import EvaluationScore
from leaderboard.pages import board
from leaderboard.pages.selection import Selection

ENTRIES = 50


class BoardFeed(Feed):
    """The newest ranked evaluations of a selection. One entry an evaluation; a rescored one keeps its id."""

    feed_type = Atom1Feed

    def get_object(self, request: HttpRequest, *, selection: Selection) -> Selection:
        return selection

    def title(self, selection: Selection) -> str:
        where = f", {selection.target.title}" if selection.target else ""
        return f"ParallelKernelBench{where}: new results"

    def link(self, selection: Selection) -> str:
        return f"{settings.SITE_URL}{reverse('leaderboard')}?{selection.query()}"

    def feed_url(self, selection: Selection) -> str:
        return f"{settings.SITE_URL}{reverse('board-feed')}?{selection.query()}"

    feed_guid = feed_url

    def items(self, selection: Selection) -> list[EvaluationScore]:
        return board.newest(selection, ENTRIES)

    def item_title(self, item: Any) -> str:
        run = item.evaluation.run
        return f"{run.model.public_name} ({run.get_track_display().lower()}, {run.get_backend_display()})"

    def item_description(self, item: Any) -> str:
        return (
            f"{item.correct} of {item.problems} problems correct "
            f"({percent_text(item.correctness_low)} to {percent_text(item.correctness_high)}), "
            f"fast_1 {percent_text(item.fast_1)}, speedup {ratio_text(item.speedup)}."
        )

    def item_link(self, item: Any) -> str:
        run, evaluation = item.evaluation.run.public_id, item.evaluation.public_id
        return f"{settings.SITE_URL}{reverse('run', args=[run])}?on={evaluation}"

    def item_guid(self, item: Any) -> str:
        return self.item_link(item)

    def item_pubdate(self, item: Any) -> datetime:
        return item.evaluation.finished_at or item.evaluation.created_at  # type: ignore[no-any-return]

    def item_updateddate(self, item: Any) -> datetime:
        return item.updated_at  # type: ignore[no-any-return]

    def item_author_name(self, item: Any) -> str:
        return item.evaluation.run.team.name  # type: ignore[no-any-return]
