"""What commands write to a terminal: no control characters of others."""

import sys
import unicodedata
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdchat.commands import options, terminal
from rdchat.commands.terminal import shown_text

_HOSTILE = "hi \x1b]52;c;YQ==\x07\x9b2J\u202e\t\r\nthere"
_SAFE = "hi ]52;c;YQ==2J\t\nthere"


class _Stream:
    def __init__(self, is_terminal: bool) -> None:
        self.is_terminal = is_terminal
        self.text = ""

    def isatty(self) -> bool:
        return self.is_terminal

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass


@given(st.lists(st.text()))
def test_no_piece_of_a_stream_brings_a_control_character_to_a_terminal(pieces):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminal.sys, "stdout", _Stream(True))
        shown = [shown_text(piece) for piece in pieces]
        assert "".join(shown) == shown_text("".join(pieces))
    assert all(letter in "\t\n" or unicodedata.category(letter) != "Cc" for letter in "".join(shown))


@pytest.mark.parametrize(("is_terminal", "expected"), [(True, _SAFE), (False, _HOSTILE)])
def test_a_result_has_no_controls_on_a_terminal_and_all_of_them_in_a_pipe(monkeypatch, is_terminal, expected):
    stream = _Stream(is_terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    options.print_result(SimpleNamespace(json=False), {}, _HOSTILE)
    assert stream.text == expected + "\n"
