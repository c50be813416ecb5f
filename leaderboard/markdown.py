"""Markdown as this site renders it: CommonMark with tables; HTML in the text is shown, never interpreted."""

from __future__ import annotations

from markdown_it import MarkdownIt

MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable("table")
