"""The documents of the folder ``docs``, as pages of the site."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.urls import reverse
from django.utils.safestring import SafeString, mark_safe
from django.utils.text import slugify
from markdown_it.token import Token

from leaderboard.markdown import MARKDOWN

FOLDER = Path(settings.BASE_DIR) / "docs"
_DOCUMENT = re.compile(r"(?:docs/)?([a-z_]+)\.md(#.*)?")


@dataclass(frozen=True)
class Document:
    """``html`` is rendered with HTML in the text switched off; headings have ids, so that links into it work."""

    name: str
    title: str
    html: SafeString | str = ""


def documents() -> list[Document]:
    """Name and title of each document, by title."""
    found = [Document(path.stem, _title(path.read_text(encoding="utf-8"))) for path in FOLDER.glob("*.md")]
    return sorted(found, key=lambda document: document.title)


def read(name: str) -> Document | None:
    """The document, rendered; None if there is none of that name."""
    path = FOLDER / f"{name}.md"
    if not re.fullmatch(r"[a-z_]+", name) or not path.is_file():
        return None
    text = path.read_text(encoding="utf-8")
    tokens = MARKDOWN.parse(text)
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", slugify(tokens[index + 1].content))
        if token.type == "table_open":  # what scrolls must be reached by keyboard
            token.attrSet("tabindex", "0")
        for child in token.children or []:
            _point_to_page(child)
    html = MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}).replace("<pre>", '<pre tabindex="0">')
    return Document(name, _title(text), mark_safe(html))  # noqa: S308 (our own documents, rendered with html off)


def _point_to_page(token: Token) -> None:
    """Links between documents lead to their pages, not to files."""
    found = _DOCUMENT.fullmatch(str(token.attrGet("href") or "")) if token.type == "link_open" else None
    if found:
        token.attrSet("href", reverse("document", args=[found[1]]) + (found[2] or ""))


def _title(text: str) -> str:
    return text.partition("\n")[0].lstrip("# ")
