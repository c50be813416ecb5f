"""Charts: the script that draws them is served from its package, and every chart says the same as its table."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from django.contrib.staticfiles import finders
from django.template.loader import render_to_string
from django.test import Client

from leaderboard.plots import Head, Plot
from pkbsite.finders import PLOTLY, PlotlyFinder


@pytest.mark.django_db  # Django looks after its connections at the end of every request, of a file as well
def test_plotly_comes_from_its_package_and_nothing_else_of_it() -> None:
    assert str(finders.find(PLOTLY)).endswith("package_data/plotly.min.js")
    assert finders.find("plotly/widgetbundle.js") is None
    assert [name for name, _ in PlotlyFinder().list([])] == ["plotly.min.js"]
    answer = Client().get(f"/static/{PLOTLY}")
    assert answer.status_code == 200
    assert b"plotly.js" in next(iter(answer.streaming_content))
    answer.close()
    assert answer["Content-Type"].startswith("text/javascript")


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", "<b>&amp;"])
def test_names_in_a_chart_stay_text(name: str) -> None:
    plot = Plot("k", name, name, [{"type": "bar", "x": [1], "text": [name]}], [Head(name)], [[(name, "/x/")]])
    html = render_to_string("partials/plot.html", {"plot": plot})
    assert name not in html
    data = re.search(r'<script type="application/json">(.*?)</script>', html, re.DOTALL)
    assert data is not None
    assert json.loads(unescape(data[1]))["traces"][0]["text"] == [name]
