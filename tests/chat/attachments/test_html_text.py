"""Each word that a browser or Jupyter shows is in the text, as it is shown; what is left out is marked."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rdchat.chat.attachments.html_text import html_to_text, notebook_text

TAGS = """
    a abbr address article aside audio b bdi bdo big blockquote body button caption center cite code col data dd del
    details dfn dialog dir div dl dt em fieldset figcaption figure font footer form h1 h2 h3 h4 h5 h6 header hgroup html
    i ins kbd label legend li main map mark menu meter nav nobr ol optgroup output p picture pre progress q rp rt ruby s
    samp search section select slot small span strike strong sub summary sup table tbody td textarea tfoot th thead time
    title tr tt u ul unknown var video x-own
"""
AROUND = ["", "ul", "ol", "li", "table", "tr", "td", "pre", "blockquote", "dl", "select", "figure", "p", "a", "sup"]
# What no browser shows where scripts run, and options that were not chosen.
UNSEEN = ("script", "style", "noscript", "template", "iframe", "object", "canvas", "option")


@pytest.mark.parametrize("around", AROUND)
def test_no_element_of_a_page_takes_its_words_away(around: str) -> None:
    lost = []
    for tag in TAGS.split():
        page = f"<{around}>one<{tag}>two</{tag}>three</{around}>four" if around else f"one<{tag}>two</{tag}>three four"
        text = html_to_text(page)
        if any(text.count(word) != 1 for word in ("one", "two", "three", "four")):
            lost.append((tag, text))
    assert not lost


@pytest.mark.parametrize("around", AROUND)
def test_what_no_browser_shows_is_left_out(around: str) -> None:
    for tag in UNSEEN:
        page = f"<{around}>one<{tag}>two</{tag}>three</{around}>"
        assert "two" not in html_to_text(page), tag


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<pre><code>def f():\n    <b>return</b> 1\n</code></pre>", "```\ndef f():\n    return 1\n```"),
        ("<pre>a = 1<br>b = 2<div>c</div>d</pre>", "```\na = 1\nb = 2c\nd\n```"),
        ("<pre>```\nx\n```</pre><p>end", "````\n```\nx\n```\n````\n\nend"),
        ("<pre>`````</pre>", "``````\n`````\n``````"),
        ('<ol start="3"><li>a<li>b<li value=7>c<li></li><li>d</ol>', "3. a\n4. b\n7. c\n9. d"),
        ("<ol start=x><li>a</ol><ol start=0><li>b</ol>", "1. a\n\n0. b"),
        ("<ol type=a><li>a<li value=26>z<li>b</ol>", "a. a\nz. z\naa. b"),
        ("<ol type=A start=52><li>a<li>b<li value=703>c<li value=0>d</ol>", "AZ. a\nBA. b\nAAA. c\n0. d"),
        ("<ol type=I start=39><li>a<li>b<li value=3999>c<li>d</ol>", "XXXIX. a\nXL. b\nMMMCMXCIX. c\n4000. d"),
        ("<ol><li type=a>a<li type=I>b<li>c</ol>", "a. a\nII. b\n3. c"),
        ("<ol style='color: red; list-style-type: Lower-Alpha'><li>a</ol>", "a. a"),
        ("<ol style='list-style: upper-roman inside'><li>a</ol>", "I. a"),
        ("<ol type=a style='list-style:none'><li>(1) a</ol>", "- (1) a"),
        ("<ol start=-1><li>a<li>b</ol><ol start=' +5x'><li>c</ol>", "-1. a\n0. b\n\n5. c"),
        ("<ol start=123456><li>a</ol><ol start=99999999999><li>b</ol>", "123456. a\n\n1. b"),
        ("<table><tr><td><ol type=i><li>a<li>b</ol><ul><li>c</ul></table>", "| i. a ii. b - c |\n| --- |"),
        ("<table><tr><td colspan=-1 rowspan=-1>a<td>b</table>", "| a | b |\n| --- | --- |"),
        ("<ol type=I><li value=4>a</ol><ol type=i start=39><li>b</ol>", "IV. a\n\nxxxix. b"),
        ("<table><tr><td>1<td><pre>a\n  b</pre><td>2</table>", "1\n\n```\na\n  b\n```\n\n2"),
        ("<ul>Fruit<li>a<script>x</script></ul>", "  Fruit\n- a"),
        ("<table><caption>Table <b>1</b></caption><tr><td>a</table>", "Table 1\n\n| a |\n| --- |"),
        ("<svg><title>t</title><style>s</style><text>Sales <tspan>2025</tspan></text><text>up</text></svg>",
         "Sales 2025\n\nup"),
        ("<math alttext='x^2'><mi>x</mi></math> <math><mi>y</mi></math>", "[formula x^2] [formula ]"),
        ("<input placeholder=Name>", "Name"),
    ],
)  # fmt: skip
def test_pages_are_read_as_they_are_shown(page: str, text: str) -> None:
    assert html_to_text(page) == text


PICTURE = "iVBORw0KGgo" * 200
NOTEBOOK: dict[str, Any] = {
    "nbformat": 4,
    "cells": [
        {"cell_type": "markdown", "source": ["# Title\n", "words"], "attachments": {"a.png": {"image/png": PICTURE}}},
        {"cell_type": "raw", "source": "raw words"},
        {
            "cell_type": "code",
            "source": ["def f():\n", "    return 1\n"],
            "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["printed\n", "twice\n"]},
                {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mE\x1b[0m", "line two"]},
                {"output_type": "display_data", "data": {"image/png": PICTURE, "text/plain": ["<Figure>"]}},
                {"output_type": "execute_result", "data": {"text/html": "<p>table", "text/plain": "plain"}},
                {"output_type": "display_data", "data": {}},
                {"output_type": "execute_result", "data": {"text/plain": "4711"}},
                {"output_type": "execute_result", "data": {"application/x-own": {"a": 1}}},
            ],
        },
    ],
}
SHOWN = """# Title
words

raw words

```
def f():
    return 1
```

```
printed
twice
```

```
E
line two
```

[image/png]

table

```
4711
```

[application/x-own]"""


def test_a_notebook_is_read_as_jupyter_shows_it() -> None:
    assert notebook_text(json.dumps(NOTEBOOK)) == (SHOWN, "Its pictures were left out.")


# Names, kinds and what Jupyter does not show: the plain form of an output that has a richer one.
SILENT = {"cell_type", "output_type", "name", "ename", "evalue", "application/x-own", "image/png", "a"}


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path to each text."""
    for key, each in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(each, str) and key not in SILENT:
            yield (*path, key)
        elif isinstance(each, dict | list):
            yield from places(each, (*path, key))


@pytest.mark.parametrize("path", [*places(NOTEBOOK)])
def test_each_text_of_a_notebook_is_read(path: tuple[Any, ...]) -> None:
    notebook = json.loads(json.dumps(NOTEBOOK))
    place = notebook
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = "sentinel"
    has_richer = "text/plain" in path and len(NOTEBOOK["cells"][2]["outputs"][path[3]]["data"]) > 1
    assert ("sentinel" in notebook_text(json.dumps(notebook))[0]) != has_richer


@pytest.mark.parametrize("text", ["{", "[]", '{"worksheets": []}', '{"cells": [1]}', '{"cells": [{"source": 1}]}'])
def test_a_notebook_in_another_form_is_read_as_it_is(text: str) -> None:
    assert notebook_text(text) == (
        text,
        "It was read as JSON: it is damaged, or not in the present format of notebooks.",
    )


def test_a_picture_in_the_words_of_a_cell_is_left_out() -> None:
    cell = {"cell_type": "markdown", "source": f"a ![b](data:image/png;base64,{PICTURE}) c"}
    text = json.dumps({"cells": [cell]})
    assert notebook_text(text) == ("a ![b]([picture]) c", "Its pictures were left out.")


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a <s>1</s> <strike>2</strike> <del>3</del>", "a ~~1~~ ~~2~~ ~~3~~"),
        ("m<sup>2</sup> CO<sub>2</sub> 1<sup>st</sup> x<sub>i</sub>", "m² CO₂ 1^{st} x_{i}"),
        ("<table><tr><td>m<sup>2</sup><td><s>a</s></table>", "| m² | ~~a~~ |\n| --- | --- |"),
        ("<table><tr><td rowspan=2>R<td>A<tr><td>B<tr><td>C<td>D</table>",
         "| R | A |\n| --- | --- |\n|  | B |\n| C | D |"),
        ("<table><tr><td>A<td rowspan=2>R<tr><td>B</table>", "| A | R |\n| --- | --- |\n| B |  |"),
        ("<table><tr><td colspan=x>A<td colspan=0>B<td colspan=99999999999>C</table>",
         "| A | B | C |\n| --- | --- | --- |"),
        ("<input type=checkbox checked>Yes <input type=radio>No <input value=Ada> <input type=password value=x>",
         "[x] Yes [ ] No Ada"),
        ("Size: <select><option>S<option selected>M</select> <textarea>typed</textarea>", "Size: M typed"),
        ("<p>a<![a >b<![if !IE]>c<![endif]></p>", "abc"),
        ("<p>a</p>3 < 4 and <b", "a\n\n3 < 4 and <b"),
    ],
)  # fmt: skip
def test_what_pages_of_the_web_strike_raise_merge_and_ask(page: str, text: str) -> None:
    assert html_to_text(page) == text


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<tr><td>Name<td>Price<tr><td>Tea<td>3", "| Name | Price |\n| --- | --- |\n| Tea | 3 |\n\nend"),
        (
            "<tr><td>A</td><td>b <table><tr><td>in<td>ner</table> c</td><td>D</td></tr><tr><td>E",
            "| A | b in ner c | D |\n| --- | --- | --- |\n| E |\n\nend",
        ),
        ("<tr><td><ul><li>A<li>B</ul></td><td>C</td></tr>", "| - A - B | C |\n| --- | --- |\n\nend"),
    ],
)
def test_no_cell_of_a_table_is_lost(page: str, text: str) -> None:
    assert html_to_text(f"<table>{page}</table><p>end") == text
    assert html_to_text(f"<table>{page}") == text.removesuffix("\n\nend")


def test_each_paragraph_of_a_quote_is_one() -> None:
    page = (
        "<blockquote><p>One<p>Two<br>lines<ul><li>A<li>B</ul><blockquote>Deep</blockquote></blockquote></blockquote>Out"
    )
    assert html_to_text(page) == "> One\n\n> Two\n> lines\n\n> - A\n> - B\n\n> > Deep\n\nOut"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<pre>x = 1\ny = 2</pre>", "> ```\n> x = 1\n> y = 2\n> ```"),
        ("<table><tr><th>A<tr><td>1</table>", "> | A |\n> | --- |\n> | 1 |"),
        ("a<hr>b", "> a\n\n> ---\n\n> b"),
        ("<table><tr><td><blockquote>q</blockquote></table>b", "> | q |\n> | --- |\n\n> b"),
    ],
)
def test_all_that_a_quote_holds_is_marked_and_nothing_behind_it(page: str, text: str) -> None:
    assert html_to_text(f"<blockquote>{page}</blockquote><p>after") == f"{text}\n\nafter"
