"""What commands write on a terminal: foreign text cannot control it, the progress line is still erased."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout

import pytest
from hypothesis import given, settings, strategies as st

from rdchat import cli
from rdchat.commands.terminal import ProgressLine, TerminalStream

CONTROLS = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\t", "\n"}
LETTERS = st.sampled_from(sorted(CONTROLS) + list("a]52;c[2J\\\t\n\u00e9"))
# They set the clipboard, a title, colours, and clear the screen, also with C1 controls; the last ones overwrite.
FOREIGN = "\x1b]52;c;cm0=\x07 \x1b]0;t\x1b\\ \x1b[31m \x1b[2J \x9b2J \x9d52;c;cm0=\x9c a\x7f\x08\rb"


@contextmanager
def terminal() -> Iterator[int]:
    """Make standard output and error a terminal in the block; give its other side."""
    read_side, write_side = os.openpty()
    with ExitStack() as stack:
        for name, redirect in (("stdout", redirect_stdout), ("stderr", redirect_stderr)):
            number = os.dup(write_side)
            stream = stack.enter_context(open(number, "w", encoding="utf-8", errors="backslashreplace"))  # noqa: PTH123
            stack.enter_context(redirect(stream))
            assert getattr(sys, name).isatty()
        yield read_side
        for wrapper in (sys.stdout, sys.stderr):
            wrapper.close()
    os.close(write_side)
    os.close(read_side)


@settings(max_examples=40)
@given(st.lists(st.text(LETTERS)))
def test_no_part_of_a_text_controls_a_terminal(parts: list[str]) -> None:
    data = io.BytesIO()
    stream = TerminalStream(io.TextIOWrapper(data, encoding="utf-8", newline=""))
    for part in parts:
        stream.write(part)
    stream.writelines(parts)
    stream.flush()
    assert not CONTROLS & set(data.getvalue().decode())


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_command_writes_no_controls_on_a_terminal(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def run(*_arguments: object) -> int:
        for letter in FOREIGN:
            getattr(sys, name).write(letter)
        print("end", file=getattr(sys, name), flush=True)
        return 0

    monkeypatch.setattr(cli, "_run", run)
    with terminal() as other_side:
        for _ in range(2):
            assert cli.main(["doctor"]) == 0
            written = b""
            while not written.endswith(b"end\r\n"):
                written += os.read(other_side, 1000)
            assert not CONTROLS & set(written.decode().replace("\r\n", "\n"))


def test_a_file_gets_the_text_as_it_is(
    capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_run", lambda *_: sys.stdout.write(FOREIGN) * 0)
    cli.main(["doctor"])
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == FOREIGN.encode()


def test_a_progress_line_is_erased_and_foreign_names_in_it_are_not_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_arguments: object) -> int:
        with ProgressLine() as line:
            line.show_text("a\x1b[2Jb", "stage")
        return 0

    monkeypatch.setattr(cli, "_run", run)
    with terminal() as other_side:
        assert cli.main(["doctor"]) == 0
        written = b""
        while written.count(b"\r\x1b[K") < 2:
            written += os.read(other_side, 1000)
        assert written == b"\r\x1b[Ka [2Jb\r\x1b[K"
