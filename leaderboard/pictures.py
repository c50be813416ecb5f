"""Pictures of the site for previews of links (Open Graph), drawn from the data: no browser, no font of the machine."""

from __future__ import annotations

import io
from functools import cache

import fontpkg_noto_sans
from PIL import Image, ImageDraw, ImageFont

from leaderboard.figures import percent_text, ratio_text
from leaderboard.pages.board import Board, Row

WIDTH, HEIGHT = 1200, 630
ROWS = 6
FONT = fontpkg_noto_sans.ROOT / "files" / "NotoSans[wdth,wght].ttf"
GROUND, INK, MUTED, ACCENT, TRACK, LINE = "#ffffff", "#1a1f26", "#565f6b", "#0b5cad", "#e3e7ec", "#d8dce2"
LEFT, TOP, STEP = 60, 196, 64
NAME_WIDTH, BAR_LEFT, BAR_WIDTH = 400, 520, 300


def of_board(board: Board) -> bytes:
    """PNG of 1200 × 630 pixels with the first rows of the board in the order of ranks."""
    image = Image.new("RGB", (WIDTH, HEIGHT), GROUND)
    draw = ImageDraw.Draw(image)
    selection = board.selection
    draw.rectangle((0, 0, WIDTH, 10), fill=ACCENT)
    _text(draw, LEFT, 30, "ParallelKernelBench", 44, INK)
    where = selection.target.title if selection.target else "no target yet"
    words = f"{where}, {len(board.scope.numbers)} problems" + (
        f" of {selection.scope_label}" if selection.scoped else ""
    )
    _text(draw, LEFT, 94, _fitting(draw, words, 26, WIDTH - 2 * LEFT), 26, MUTED)
    for x, head in ((BAR_LEFT, "correct"), (950, "fast_1"), (1060, "speedup")):
        _text(draw, x, 146, head, 22, MUTED)
    draw.line((LEFT, 184, WIDTH - LEFT, 184), fill=LINE, width=2)
    rows = board.rows(0, ROWS, vectors=False)
    for number, row in enumerate(rows):
        _row(draw, TOP + number * STEP, row)
    if not rows:
        _text(draw, LEFT, TOP + 20, "No run is ranked here yet.", 30, MUTED)
    if board.as_of:
        _text(draw, LEFT, HEIGHT - 42, f"As of {board.as_of:%Y-%m-%d}, {len(board.order)} runs", 22, MUTED)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


def _row(draw: ImageDraw.ImageDraw, y: int, row: Row) -> None:
    shown = row.shown
    _text(draw, LEFT, y + 2, str(row.place.rank) if row.place else "", 28, MUTED)
    _text(draw, LEFT + 52, y + 2, _fitting(draw, row.run.model.public_name, 30, NAME_WIDTH), 30, INK)
    draw.rounded_rectangle((BAR_LEFT, y + 12, BAR_LEFT + BAR_WIDTH, y + 36), 5, fill=TRACK)
    if shown.rate:
        draw.rounded_rectangle(
            (BAR_LEFT, y + 12, BAR_LEFT + max(6, round(shown.rate * BAR_WIDTH)), y + 36), 5, fill=ACCENT
        )
    _text(draw, BAR_LEFT + BAR_WIDTH + 14, y + 6, f"{shown.correct}/{shown.problems}", 24, INK)
    _text(draw, 950, y + 6, percent_text(shown.fast_1), 24, INK)
    _text(draw, 1060, y + 6, ratio_text(shown.speedup), 24, INK)


def _text(draw: ImageDraw.ImageDraw, x: float, y: float, text: str, size: int, colour: str) -> None:
    draw.text((x, y), text, font=_font(size), fill=colour)


@cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(FONT, size)


def _fitting(draw: ImageDraw.ImageDraw, text: str, size: int, width: int) -> str:
    """The text, cut with an ellipsis where it is wider than ``width`` pixels."""
    font = _font(size)
    if draw.textlength(text, font=font) <= width:
        return text
    while text and draw.textlength(f"{text}…", font=font) > width:
        text = text[:-1]
    return f"{text}…"
