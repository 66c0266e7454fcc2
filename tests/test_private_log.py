"""The log has nothing that a person wrote: no line takes a text of theirs, and no error is written with its text."""

import ast
import io
import logging
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

import rdchat
from rdchat import app, host, log
from rdchat.errors import RdchatError
from rdchat.services.app.single_instance import SingleInstance
from rdchat.services.app.start_request import StartRequest
from rdchat.work import ChildProcess
from tests.project.scripts import module_tree
from tests.written_log import text_of, written

__all__ = ["written"]

ROOT = Path(rdchat.__file__).parent
WORD = "xylophone"
_LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}
# What log lines show: errors, whose texts are left out, numbers, and constants of rdchat.
_ERRORS = {"error", "outcome", "result", "results"}
_PLAIN = {
    "len(self.held)", "message_id", "timeout_s", "_LIMIT_S", "_STOP_S", "ON_SCREEN", "trouble", "problem", "failure",
    "what", "part.value", "notice.title", "type(error).__name__",
    "name", "self._name",  # of a thread, a work or a child
    "error.strerror",  # the system's
}  # fmt: skip
_NAMED = {
    ("files/atomic_file.py", "file.name"),  # of a cache, by a digest
    ("inference/device.py", "str(error)"),  # MLX's word for too little memory, with numbers
    ("inference/wired_memory.py", "size_text(weights_bytes)"),
    ("inference/wired_memory.py", "wiring()"),  # a sentence of rdchat
    ("files/privacy.py", "folder"),  # rdchat's own folders
    ("services/app/single_instance.py", "self._folder"),
    ("services/chat/rescue_file.py", "path"),  # without it, what was not saved is not found again
    ("work/child_process.py", "self.last_log"),  # of our own children, which write no text either
}


def shown(tree: ast.Module) -> Iterator[str]:
    """Yield what the log lines of a module show beside constants."""
    for node in ast.walk(tree):
        is_line = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LEVELS
        if is_line and ast.unparse(node.func.value) in ("_LOG", "logger"):
            yield from (ast.unparse(each) for each in node.args if not isinstance(each, ast.Constant))


def test_what_log_lines_show_is_sorted() -> None:
    found = set[tuple[str, str]]()
    for path in sorted(ROOT.rglob("*.py")):
        found |= {(path.relative_to(ROOT).as_posix(), each) for each in shown(module_tree(path))}
    unsorted = {(file, each) for file, each in found if each not in _ERRORS | _PLAIN} - _NAMED
    assert not unsorted, "could this be something that a person wrote?"
    assert found >= _NAMED


class OddError(Exception):
    """An error with a text of its own."""

    def __str__(self) -> str:
        return f"odd {self.args}"


kinds = st.sampled_from([ValueError, KeyError, RuntimeError, OddError, RdchatError, UnicodeError])
system = st.builds(OSError, st.sampled_from([2, 28, 13]), st.just(WORD), st.just(f"/home/{WORD}.txt"))
errors = st.one_of(st.builds(lambda kind: kind(f"about {WORD}"), kinds), system)


@given(chain=st.lists(st.tuples(errors, st.booleans()), min_size=1, max_size=4), as_argument=st.booleans())
def test_an_error_is_written_without_its_text(chain: list[tuple[Exception, bool]], as_argument: bool) -> None:
    def fail(left: list[tuple[Exception, bool]]) -> None:
        (error, explicit), *earlier = left
        error.add_note(WORD)
        if not earlier:
            raise error
        try:
            fail(earlier)
        except Exception as cause:
            if explicit:
                raise error from cause
            raise error  # noqa: B904  as code that fails while it handles an error

    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(log.WordlessFormatter())
    try:
        fail(chain)
    except Exception as error:
        info = None if as_argument else (type(error), error, error.__traceback__)
        record = logging.LogRecord("rdchat.test", logging.ERROR, "", 1, "It failed: %s", (error,), info)
        # Another handler, such as the terminal's, came first.
        logging.Formatter().format(record)
        handler.handle(record)
    text = output.getvalue()
    assert WORD not in text
    assert text.startswith("It failed: ")
    assert all(type(error).__name__ in text for error, _ in chain)
    assert "test_private_log.py:" in text, "the place is what helps"


def test_a_child_says_where_it_failed_not_what_it_read(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "child_command", lambda _name: [sys.executable, "-m", "tests.work.echo_child"])
    with closing(ChildProcess("echo")) as child, pytest.raises(RdchatError):
        child.submit("stumble", {}).result()
    text = text_of(written)
    assert "echo: ERROR rdchat.work.job: stumble failed unexpectedly" in text
    assert "ValueError at echo_child.py" in text
    assert "stranger" not in text


def test_what_ssh_says_is_not_written(written: Path) -> None:
    complains = f"import sys; sys.exit('ssh: no host {WORD}')"
    with closing(ChildProcess("rank", command=[sys.executable, "-c", complains], restarts=False)) as child:
        with pytest.raises(RdchatError):
            child.submit("echo", {}).result()
        assert WORD in child.last_log, "the window shows it"
    assert WORD not in text_of(written)


def test_a_second_start_writes_nothing_of_its_request(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "application", lambda: None)
    monkeypatch.setattr(app.host, "has_display", lambda: True)
    monkeypatch.setattr(SingleInstance, "claim", lambda _instance, _request: False)
    assert app.main(StartRequest(text=WORD, files=(f"/home/{WORD}.gguf",))) == 0
    text = text_of(written)
    assert "has the request" in text
    assert WORD not in text
