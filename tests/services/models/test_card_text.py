"""Cards come out as plain markdown: no HTML, no images, no front matter, and code as it was written."""

import time
from collections.abc import Callable

import pytest

from rdchat.services.models.hub_search import plain_card

CASES = {
    "front matter": ("---\nlicense: mit\ntags:\n- a\n---\n# Title\n", "# Title"),
    "front matter that never ends": ("---\nlicense: mit\n# Title", "---\nlicense: mit\n# Title"),
    "nothing but front matter": ("---\nlicense: mit\n---", ""),
    "a rule is no front matter": ("Text\n\n---\n\nMore", "Text\n\n---\n\nMore"),
    "a byte order mark and Windows' line ends": ("\ufeff---\r\nx: 1\r\n---\r\nHello\r\n", "Hello"),
    "an image": ("See ![a plot](https://x.example/p.png) here", "See a plot here"),
    "an image without words": ("See ![](p.png) here", "See  here"),
    "a badge": ("[![Licence](https://x.example/b.svg)](https://x.example/l)", "[Licence](https://x.example/l)"),
    "a badge without words": ("[![](b.svg)](https://x.example/l)", ""),
    "an image by reference": ("![a plot][plot]", "a plot"),
    "an HTML image": ('A <img src="https://x.example/p.png" width=3 alt="A  plot"/>', "A"),
    "an HTML image over lines": ('<p><img\n  alt="A plot"\n  src="p.png"\n>A</p>', "A"),
    "an HTML link": ('<a href="https://x.example/">Paper</a>', "Paper"),
    "an HTML link to code": ('<a href="javascript:alert(1)">Click</a>', "Click"),
    "an HTML link that would break out": ('<a href="https://x.example/) [b](https://y.example">A</a>', "A"),
    "a link around an image": ('<a href="https://x.example/"><img alt="Logo" src="l.png"></a>Text', "Text"),
    "a heading": ('<h1 align="center">Title</h1>', "# Title"),
    "a list": ("<ul><li>One</li><li>Two</li></ul>", "- One\n- Two"),
    "indented HTML is no code": ("<div>\n    <b>Bold</b>\n</div>", "Bold"),
    "a comment": ("A<!-- hidden\nwords -->B", "AB"),
    "a comment that never ends": ("A<!-- B", "A<!-- B"),
    "a script": ("A<script>alert(1)</script>B<STYLE>p {}</STYLE>C", "ABC"),
    "tags that are no HTML": (
        "It writes <think> and <|im_end|>, a < b > c",
        "It writes <think> and <|im_end|>, a < b > c",
    ),
    "code in a line": ("Use `<b>` and `![x](y)`", "Use `<b>` and `![x](y)`"),
    "fenced code": (
        "```html\n<b>![x](y)</b>\n<!-- kept -->\n```\n<b>B</b>",
        "```html\n<b>![x](y)</b>\n<!-- kept -->\n```\nB",
    ),
    "a fence with tildes inside backticks": ("````\n```\n~~~\n<i>\n````\n<i>I</i>", "````\n```\n~~~\n<i>\n````\nI"),
    "a fence that never ends": ("```\n<b>x", "```\n<b>x"),
    "code in HTML": ("<code>pip</code>", "`pip`"),
}


@pytest.mark.parametrize(("card", "plain"), CASES.values(), ids=CASES)
def test_a_card_becomes_plain_markdown(card: str, plain: str) -> None:
    assert plain_card(card) == plain


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<a ",
        "<!--",
        "![",
        "[](",
        "<b",
        "`",
        '<a href="',
        "<a href=https://x.example>",
        "---\n",
        "```\n",
        "<script",
    ],
)
def test_hostile_cards_take_time_that_grows_with_their_length_alone(
    piece: str, record_property: Callable[[str, object], None]
) -> None:
    card = piece * (50_000 // len(piece))
    began = time.perf_counter()
    assert len(plain_card(card)) <= 2 * len(card)
    record_property("seconds", round(time.perf_counter() - began, 2))
