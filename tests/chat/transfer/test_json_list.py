"""Splitting a list gives what `json` reads from the whole, wherever chunks end."""

import io
import json
import random
import subprocess
import sys
from typing import Any

import pytest

from rdchat.chat.transfer import source_files
from rdchat.chat.transfer.source_files import DamagedListError, JsonList, count_marks
from tests.grids import share

LETTERS = 'ab"\\[]{},:é\n漢😀'


def values_of(text: bytes, max_bytes: int = 1 << 20) -> list[Any]:
    """Return the values of a list that is split; an ellipsis for one that is too long."""
    assert text.startswith(b"[")
    split = JsonList(io.BytesIO(text[1:]).read, max_bytes)
    return [... if value.too_long else json.loads(value.data) for value in split]


def some_value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return chance.choice([None, True, 1.5, -3, 1e300])
    if kind < 6:
        return "".join(chance.choices(LETTERS, k=chance.randrange(9)))
    inner = [some_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    return inner if kind == 6 else {str(some_value(chance, 9)): value for value in inner}


@pytest.mark.slow
@pytest.mark.parametrize("chunk", share([1, 2, 3, 7, 64], 4))
def test_a_list_is_split_as_json_reads_it(monkeypatch: pytest.MonkeyPatch, chunk: int):
    monkeypatch.setattr(source_files, "_CHUNK", chunk)
    chance = random.Random(chunk)
    for _ in range(100):
        values = [some_value(chance) for _ in range(chance.randrange(6))]
        for form in ({"ensure_ascii": False}, {"indent": 1}):
            assert values_of(json.dumps(values, **form).encode()) == values  # type: ignore[arg-type]


@pytest.mark.parametrize("text", [b"[", b"[1", b"[1,", b"[1,]", b"[,1]", b"[1,,2]", b'["a]', b'["a\\"]', b"[{}, {]"])
def test_a_list_without_an_end_or_with_nothing_before_a_comma_is_damaged(text: bytes):
    with pytest.raises(DamagedListError):
        values_of(text)


def test_a_value_that_is_too_long_is_passed_over(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(source_files, "_CHUNK", 100)
    long: list[Any] = ["x\\" * 500, [{}] * 400, 10**900]
    text = json.dumps([1, long[0], 2, long[1], long[2], [3]]).encode()
    assert values_of(text, max_bytes=800) == [1, ..., 2, ..., ..., [3]]


def test_what_stands_behind_the_list_is_kept():
    split = JsonList(io.BytesIO(b'1, "]"], "more": []}').read, 100)
    assert len(list(split)) == 2
    assert split.rest == b', "more": []}'


def test_marks_in_strings_do_not_count():
    assert count_marks(io.BytesIO(b'{"a,[": [1, "\\"{"], "b": {}}').read) == 10


@pytest.mark.slow
def test_the_window_starts_without_numpy():
    code = "import sys, rdchat.app, rdchat.ui.window.main_window; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
