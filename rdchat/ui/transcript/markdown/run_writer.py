"""Writes runs of text as Markdown: emphasis, code, links, and escapes where the text would mean something else."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from rdchat.ui.transcript.markdown.blocks import Run

_Unit = tuple[list[str], str]  # marks of emphasis, and the text that they enclose
_STYLES = (("**", "*"), ("**", "_"), ("__", "*"))  # marks of bold and italic text
# an escaped bracket that opens would begin a formula
_SPECIAL = re.compile(r"[\\`*~\]<&$]|!\Z|:(?=//)|(?<![^\W_])_|_(?![^\W_])")
_SPACE = re.compile(r"^\s|[^\S\n]$|\n\Z", re.MULTILINE)
_LINE_START = re.compile(r"^(\d{0,9})([#+\-=>:|.)])|#(?=#*$)", re.MULTILINE)


def written_runs(runs: Sequence[Run], means_the_same: Callable[[str], bool]) -> str:
    """Return runs as Markdown.

    Args:
        runs: Of one paragraph, heading or cell.
        means_the_same: Whether a text is read as these runs. The first that is, of a few, is taken: one without
            escapes, if possible.
    """
    plain = _emphasised(list(_units(runs, _STYLES[0], escaped=False)))
    if means_the_same(plain):
        return plain
    texts = [_escape_lines(_emphasised(list(_units(runs, style, escaped=True)))) for style in _STYLES]
    return next(filter(means_the_same, texts), texts[0])


def normal(runs: Sequence[Run]) -> tuple[str, list[Run]]:
    """Return runs in a form to compare: without the look of spaces, and whether a formula can be drawn."""
    looks = [
        replace(run, text=run.text.strip(), maths="", display=False, undrawn=bool(run.maths or run.undrawn))
        for run in runs
    ]
    return "".join(run.text for run in runs), [look for look in looks if look.text]


def _units(runs: Sequence[Run], style: tuple[str, str], *, escaped: bool) -> Iterator[_Unit]:
    for link, linked in groupby(runs, lambda run: run.href or run.refused):
        group = list(linked)
        units = [(_marks(run, style), _word(run, escaped=escaped)) for run in group]
        if not link:
            yield from units
        elif len(group) == 1 and group[0].href == group[0].text:
            yield units[0][0], f"<{link}>" if escaped else link
        else:
            around = [mark for mark in units[0][0] if all(mark in marks for marks, _ in units)]
            inside = [([mark for mark in marks if mark not in around], text) for marks, text in units]
            yield around, f"[{_emphasised(inside)}]({_destination(link)})"


def _marks(run: Run, style: tuple[str, str]) -> list[str]:
    return [mark for on, mark in ((run.bold, style[0]), (run.italic, style[1]), (run.strike, "~~")) if on]


def _emphasised(units: Sequence[_Unit]) -> str:
    """Return text with marks; spaces at their ends stay outside of the marks, as Markdown requires."""
    text, open_marks = "", list[str]()
    for index, (marks, written) in enumerate([*units, ([], "")]):
        while any(mark not in marks for mark in open_marks):
            inside = text.rstrip()
            text = inside + open_marks.pop() + text[len(inside) :]
        begun = written.lstrip()
        text += written[: len(written) - len(begun)]
        if begun:
            new = [mark for mark in marks if mark not in open_marks]
            new.sort(
                key=lambda mark: next((n for n, unit in enumerate(units[index:]) if mark not in unit[0]), len(units))
            )
            open_marks += reversed(new)
            text += "".join(reversed(new)) + begun
    return text


def _word(run: Run, *, escaped: bool) -> str:
    if run.code:
        longest = max(map(len, re.findall("`+", run.text)), default=0)
        pad = " " if re.match(r"`|.*`$| .* $", run.text) and run.text.strip() else ""
        ticks = "`" * (longest + 1)
        return f"{ticks}{pad}{run.text}{pad}{ticks}"
    if run.raised:
        return f"[^{run.text[1:]}"
    if not escaped or run.maths or run.undrawn:
        return run.text
    text = _SPECIAL.sub(r"\\\g<0>", run.text)
    return text.replace("[", "&#91;") if run.href or run.refused else text


def _destination(address: str) -> str:
    bracketed = re.sub(r"[<>\\&]", r"\\\g<0>", address)
    return f"<{bracketed}>" if re.search(r"[()<>\s\\&]", address) else address


def _escape_lines(text: str) -> str:
    """Escape what would begin another block or vanish: signs at the start of lines, and spaces at either end."""
    text = _LINE_START.sub(lambda match: f"{match[1]}\\{match[2]}" if match[2] else "\\#", text)
    return _SPACE.sub(lambda match: f"&#{ord(match[0])};", text)
