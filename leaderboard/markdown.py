"""Markdown as this site renders it: CommonMark with tables; HTML in the text is shown, never interpreted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token


class Renderer(RendererHTML):
    """Columns aligned to the right get the site's class for numbers: its policy allows no style attributes."""

    def renderToken(self, tokens: Sequence[Token], idx: int, options: Any, env: Any) -> str:
        token = tokens[idx]
        style = token.attrs.pop("style", "")
        if style == "text-align:right":
            token.attrJoin("class", "num")
        return super().renderToken(tokens, idx, options, env)


MARKDOWN = MarkdownIt("commonmark", {"html": False}, renderer_cls=Renderer).enable("table")
