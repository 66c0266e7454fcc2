"""No pattern of rdchat takes time that grows faster than its text, as far as its own form shows."""

import ast
import importlib
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from re import (
    _constants as kinds,  # type: ignore[attr-defined]
    _parser as parser,  # type: ignore[attr-defined]
)
from typing import Any

import pytest

from tests.project.scripts import ROOT, parsed

# Letters of all kinds that patterns tell apart.
_LETTERS = frozenset(
    map(chr, [*range(0x180), 0x301, 0x3A9, 0x5D0, 0x2028, 0x3042, 0x6F22, 0xAC01, 0xE200, 0xFDD0, 0x1F642])
)
_WORDS = {
    kinds.CATEGORY_DIGIT: r"\d", kinds.CATEGORY_NOT_DIGIT: r"\D", kinds.CATEGORY_SPACE: r"\s",
    kinds.CATEGORY_NOT_SPACE: r"\S", kinds.CATEGORY_WORD: r"\w", kinds.CATEGORY_NOT_WORD: r"\W",
}  # fmt: skip
_SINGLE = {kinds.LITERAL, kinds.NOT_LITERAL, kinds.ANY, kinds.IN}
# A repeat of more than this counts as one without a bound.
_BOUND = 4096
_SEARCHES = {"search", "finditer", "sub", "subn", "findall", "split"}
_CALLS = {"match", "fullmatch", *_SEARCHES}

Node = tuple[Any, Any]


def _letters(node: Node) -> frozenset[str]:
    """Return the letters that a node may match, of all its parts together."""
    match node:
        case (kinds.LITERAL, code):
            return frozenset({chr(code), chr(code).lower(), chr(code).upper()})
        case (kinds.NOT_LITERAL, code):
            return _LETTERS - {chr(code)}
        case (kinds.ANY, _):
            return _LETTERS
        case (kinds.RANGE, (first, last)):
            return frozenset(each for each in _LETTERS if first <= ord(each) <= last) | {chr(first), chr(last)}
        case (kinds.CATEGORY, category):
            return frozenset(each for each in _LETTERS if re.match(_WORDS[category], each))
        case (kinds.IN, members):
            found = frozenset().union(*(_letters(each) for each in members if each[0] is not kinds.NEGATE))
            return _LETTERS - found if members[0][0] is kinds.NEGATE else found
        case (kinds.GROUPREF, _):
            return _LETTERS
    return frozenset().union(*(_letters(each) for part in _inside(node) for each in part))


def _inside(node: Node) -> list[Sequence[Node]]:
    """Return the ways through a node that holds others."""
    match node:
        case (kinds.MAX_REPEAT | kinds.MIN_REPEAT | kinds.POSSESSIVE_REPEAT, (_, _, body)):
            return [body]
        case (kinds.SUBPATTERN, (_, _, _, body)) | (kinds.ATOMIC_GROUP, body):
            return [body]
        case (kinds.BRANCH, (_, ways)):
            return list(ways)
        case (kinds.GROUPREF_EXISTS, (_, yes, no)):
            return [yes, no or []]
    return []


def _may_be_empty(node: Node) -> bool:
    match node:
        case (kinds.MAX_REPEAT | kinds.MIN_REPEAT | kinds.POSSESSIVE_REPEAT, (least, _, body)):
            return least == 0 or all(map(_may_be_empty, body))
        case (kinds.AT | kinds.ASSERT | kinds.ASSERT_NOT | kinds.GROUPREF, _):
            return True
    ways = _inside(node)
    return bool(ways) and any(all(map(_may_be_empty, way)) for way in ways)


@dataclass(frozen=True)
class _Open:
    """A part without a bound that gives letters back, and what stands behind it of the same letters."""

    letters: frozenset[str]
    behind: tuple[frozenset[str], ...] = ()

    def after(self, node: Node) -> "_Open | None":
        shared = self.letters & _letters(node)
        return _Open(self.letters, (*self.behind, shared)) if shared else None

    def meets(self, letters: frozenset[str]) -> bool:
        return all(each & letters for each in (self.letters, *self.behind))


def _assert_none_meets(before: frozenset[_Open], repeat: Node) -> list[frozenset[str]]:
    """Return the letters of the parts that a turn of a repeat must have; raise ValueError if they may stand before."""
    first, *behind = [_letters(each) for each in _flat(repeat[1][2]) if not _may_be_empty(each)] or [_letters(repeat)]
    if any(each.meets(first) and all(each.letters & one for one in behind) for each in before):
        raise ValueError(f"two parts without a bound share {sorted(first)[:5]}")
    return [first, *behind]


def _walk(nodes: Sequence[Node], before: frozenset[_Open]) -> frozenset[_Open]:
    """Return the open parts that reach the end of a sequence; raise ValueError where two of them meet."""
    for node in nodes:
        match node:
            case (kinds.AT | kinds.ASSERT | kinds.ASSERT_NOT, _):
                continue
            case (kinds.ATOMIC_GROUP, body):
                _walk(body, frozenset())
                after = frozenset[_Open]()
            case (kinds.POSSESSIVE_REPEAT, (_, most, body)):
                if most > _BOUND:
                    _assert_none_meets(before, node)
                _walk([*body, *body] if most > _BOUND else body, frozenset())
                after = frozenset()
            case (kinds.MAX_REPEAT | kinds.MIN_REPEAT, (_, most, body)) if most > _BOUND:
                first, *behind = _assert_none_meets(before, node)
                after = frozenset({_Open(first, tuple(behind))})
                if len(body) > 1 or body[0][0] not in _SINGLE:
                    after |= _walk([*body, *body], before)
            case _ if ways := _inside(node):
                after = frozenset().union(*(_walk(way, before) for way in ways))
            case _:
                after = frozenset()
        passed = frozenset(each for one in before if (each := one.after(node)))
        before = after | (before if _may_be_empty(node) else passed)
    return before


def _flat(nodes: Sequence[Node]) -> Iterator[Node]:
    for node in nodes:
        yield from _flat(node[1][3]) if node[0] is kinds.SUBPATTERN else [node]


def _assert_begins_once(nodes: Sequence[Node], flags: int) -> None:
    """Raise ValueError where a search may begin again at each letter of the first part without a bound."""
    before = list[Node]()
    flat = list(_flat(nodes))
    for place, node in enumerate(flat):
        if node[0] in {kinds.ASSERT, kinds.ASSERT_NOT} or (node[0] is kinds.AT and not before):
            return
        if node[0] in {kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.POSSESSIVE_REPEAT} and node[1][1] > _BOUND:
            letters = _letters(node)
            fails = not all(each[0] is not kinds.AT and _may_be_empty(each) for each in flat[place + 1 :])
            if fails and all(_letters(each) & letters or _may_be_empty(each) for each in before):
                raise ValueError("a search begins anew at each letter")
            return
        before.append(node)


def _patterns_in(value: object, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 4 and isinstance(value, list | tuple | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _patterns_in(each, depth + 1)
    elif depth < 4 and is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _patterns_in(getattr(value, field.name, None), depth + 1)


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / "rdchat").rglob("*.py")):
        source = path.read_text()
        if re.search(r"^import re$", source, re.MULTILINE):
            yield ".".join(path.relative_to(ROOT).with_suffix("").parts), parsed(source)


def _found() -> Iterator[tuple[str, str | bytes, int, bool]]:
    """Yield where each pattern stands, its text and flags, and whether texts are searched with it."""
    for name, tree in _modules():
        searched = {
            ast.unparse(node.value) for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr in _SEARCHES
        }  # fmt: skip
        for node in ast.walk(tree):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("re"), attr=call),
                    args=[ast.Constant(str() | bytes() as text), *_],
                ) if call in _CALLS:
                    yield f"{name}:{node.lineno}", text, 0, call in _SEARCHES
        for key, value in vars(importlib.import_module(name)).items():
            for pattern in _patterns_in(value):
                yield f"{name}.{key}", pattern.pattern, pattern.flags, key in searched


def _fault(pattern: str | bytes, flags: int, *, searched: bool) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = list(parser.parse(pattern, flags & ~re.UNICODE if isinstance(pattern, bytes) else flags))
    try:
        _walk(tree, frozenset())
        if searched:
            _assert_begins_once(tree, flags)
    except ValueError as error:
        return str(error)
    return ""


# Patterns that are fast for a reason that their form does not show.
_KNOWN = {
    "rdchat.inference.decoding.tool_calls._ONLY_FENCE": "what is referred to is a fence, which has no blanks",
    "rdchat.inference.drafting.checkpoints.mtp_layout._NAMINGS": "nothing can fail behind the last part",
    "rdchat.inference.drafting.checkpoints.mtp_layout._BARE_NAMING": "nothing can fail behind the last part",
    "rdchat.services.app.start_request._EMPTY_LINES": "a second line break among the blanks ends the match",
    "rdchat.inference.api.thoughts._LAST_WRAPPERS": "it reads the last few hundred letters",
    "rdchat.ui.transcript.markdown.decorations._OWN_NAME": "it reads the first 300 letters",
}


def test_no_pattern_has_parts_without_a_bound_that_share_letters() -> None:
    found = list(_found())
    assert len(found) > 200
    faults = {
        where: f"{fault}: {pattern!r}"
        for where, pattern, flags, searched in found
        if where not in _KNOWN and (fault := _fault(pattern, flags, searched=searched))
    }
    assert not faults


@pytest.mark.parametrize(("pattern", "is_slow"), [
    (r"a+a+b", True), (r"a+\w*b", True), (r"a*b?a*c", True), (r"(?:a+)+b", True), (r"(?:a*b?)*c", True),
    (r"a+(?:x|a+)b", True), (r".*a.*b", True), (r"a*a*+b", True), (r"\s*\n\s*x", True), (r"a{2,}a*b", True),
    (r"a+b+c", False), (r"a++a+b", False), (r"a{1,9}a+b", False), (r"(?:ab)*c", False), (r"\w+(?:_?-\w+)*x", False),
    (r"a*b.*c", False), (r"(?>a+)a+b", False),
])  # fmt: skip
def test_parts_beside_each_other_are_told_apart(pattern: str, is_slow: bool) -> None:
    assert bool(_fault(pattern, 0, searched=False)) is is_slow


@pytest.mark.parametrize(("pattern", "is_slow"), [
    (r"a+b", True), (r"a++b", True), (r"\w\w*!", True), (r'"(?:\\.|[^"\\])*"', True), (r" *\n", True),
    (r"xa+b", False), (r"a+", False), (r"\Aa+b", False), (r"(?<!a)a+b", False), (r"a+b?", False),
])  # fmt: skip
def test_searches_that_begin_anew_are_told_apart(pattern: str, is_slow: bool) -> None:
    assert bool(_fault(pattern, 0, searched=True)) is is_slow
