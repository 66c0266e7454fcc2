"""Turns markdown-it's inline tokens into runs of text."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from operator import attrgetter

from markdown_it.token import Token

from rdchat.ui.style.opening import is_openable
from rdchat.ui.transcript.markdown.blocks import Run
from rdchat.ui.transcript.markdown.formulas import FORMULAS
from rdchat.ui.transcript.markdown.syntax import MAX_FORMULA

_look = attrgetter(*(field.name for field in fields(Run) if field.name != "text"))
_BARE_ADDRESS = re.compile(r"https?://[^\s<>\"'`]*[^\s<>\"'`.,;:!?)\]*]", re.IGNORECASE)


def merged(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return the runs without empty ones; neighbours that look the same become one."""
    looks: list[tuple[Run, list[str]]] = []
    for run in runs:
        if not run.text:
            continue
        if looks and not run.maths and _look(looks[-1][0]) == _look(run):
            looks[-1][1].append(run.text)
        else:
            looks.append((run, [run.text]))
    return tuple(run if len(texts) == 1 else replace(run, text="".join(texts)) for run, texts in looks)


def inline_runs(tokens: list[Token]) -> Iterator[Run]:
    """Yield the runs of a paragraph; neighbours may have the same style."""
    depth = {"strong": 0, "em": 0, "s": 0}
    address = ""
    for token in tokens:
        name = token.type.removesuffix("_open").removesuffix("_close")
        if name in depth:
            depth[name] += token.nesting
        elif name == "link":
            address = str(token.attrGet("href") or "") if token.nesting > 0 else ""
        else:
            openable = is_openable(address)
            links = (address, "") if openable else ("", address)
            yield from _text(token, Run("", depth["strong"] > 0, depth["em"] > 0, depth["s"] > 0, False, *links))


def _text(token: Token, look: Run) -> Iterable[Run]:
    match token.type:
        case "maths":
            return [formula_run(token, look)]
        case "code_inline" | "footnote" as kind:
            is_code = kind == "code_inline"
            return [replace(look, text=token.content, code=is_code, raised=not is_code)]
        case "softbreak" | "hardbreak":
            return [replace(look, text="\n")]
        case "image":
            source = str(token.attrGet("src") or "")
            return [replace(look, text=f"{token.content} ({source})" if token.content else source)]
        case _ if look.href or look.refused:
            return [replace(look, text=token.content)]
    return _with_bare_addresses(token.content, look)


def formula_run(token: Token, look: Run) -> Run:
    """Return a formula as a run; its source if it is unfinished or cannot be drawn."""
    display = token.type == "maths_block" or token.info == "display"
    if not token.content:
        return replace(look, text=token.markup)
    if len(token.content) > MAX_FORMULA or FORMULAS.cannot_draw(token.content, display):
        return replace(look, text=token.markup, undrawn=True)
    return replace(look, text=token.markup, maths=token.content, display=display)


def _with_bare_addresses(text: str, look: Run) -> Iterator[Run]:
    end = 0
    for match in _BARE_ADDRESS.finditer(text):
        yield replace(look, text=text[end : match.start()])
        yield replace(look, text=match[0], href=match[0])
        end = match.end()
    yield replace(look, text=text[end:])
