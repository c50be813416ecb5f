"""Static files that come inside of Python packages without a ``static`` folder of their own."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage, Storage

PLOTLY = "plotly/plotly.min.js"


class PlotlyFinder(BaseFinder):
    """Serves the one script of the plotly package, and none of the data sets and notebook parts beside it."""

    def find(self, path: str, find_all: bool = False, **options: Any) -> str | list[str]:
        """The file's place on this machine if ``path`` is it, else an empty list, as Django's finders answer."""
        if path != PLOTLY:
            return []
        place = str(_folder() / "plotly.min.js")
        return [place] if find_all else place

    def list(self, ignore_patterns: Any) -> Iterator[tuple[str, Storage]]:
        """For collectstatic: the name below STATIC_ROOT is ``PLOTLY``."""
        storage = FileSystemStorage(location=_folder())
        storage.prefix = "plotly"  # type: ignore[attr-defined] # as Django's own finder marks where files go
        yield "plotly.min.js", storage


def _folder() -> Path:
    """Where the package keeps its script. The package itself is not imported: the site needs nothing else of it."""
    spec = importlib.util.find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("plotly is not installed; it is in the extra 'web' of pyproject.toml")
    return Path(spec.origin).parent / "package_data"
