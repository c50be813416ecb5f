"""Documents keep to the site's content security policy, whatever their tables say."""

from leaderboard.markdown import MARKDOWN


def test_numbers_are_aligned_by_a_class_and_nothing_by_a_style() -> None:
    html = MARKDOWN.render("| a | b | c |\n|---:|:---:|---|\n| 1 | 2 | 3 |\n")
    assert '<td class="num">1</td>' in html
    assert "<td>2</td>" in html
    assert "style" not in html


def test_html_is_shown_and_not_interpreted() -> None:
    assert "<script>" not in MARKDOWN.render("<script>alert(1)</script>\n\na <b>b</b>\n")
