"""What other starts and other programs may ask of the window."""

from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import given, strategies as st

from rdchat.errors import InvalidSettingError
from rdchat.services.app.start_request import (
    JUST_SHOW,
    MAX_CHARACTERS,
    MAX_LINE_BYTES,
    StartRequest,
    request_of_address,
    request_of_line,
    request_of_start,
)


@pytest.mark.parametrize(
    "request_",
    [
        JUST_SHOW,
        StartRequest(text="Two\nlines\tand an é, a 😀 and a \\"),
        StartRequest(files=("/a b.txt", "/not utf-8 \udcff")),
        StartRequest(text="😀" * MAX_CHARACTERS),
        StartRequest(text='"' * MAX_CHARACTERS),
    ],
)
def test_a_request_is_read_as_it_was_sent(request_: StartRequest) -> None:
    line = request_.line()
    assert len(line) <= MAX_LINE_BYTES
    assert line.count(b"\n") == 1
    assert request_of_line(line) == request_


def test_too_many_files_are_refused() -> None:
    with pytest.raises(InvalidSettingError, match="too many files"):
        StartRequest(files=("/" + "x" * 4000,) * 20).line()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b'{"quick": true}',
        b"[" * 60_000,
        b'{"quick": false, "text": "", "files": [], "then": "quit"}',
        b'{"quick": 1, "text": "", "files": []}',
        b'{"quick": false, "text": 1, "files": []}',
        b'{"quick": false, "text": "a\\u0007b", "files": []}',
        b'{"quick": false, "text": "", "files": "/a"}',
        b'{"quick": false, "text": "", "files": ["a"]}',
        b'{"quick": false, "text": "", "files": ["/a\\u0000"]}',
    ],
)
def test_invalid_line_is_not_read_as_a_request(line: bytes) -> None:
    assert request_of_line(line) is None


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("rdchat://ask?text=Why+is%20the sky%0Ablue%3F", "Why is the sky\nblue?"),
        ("RDCHAT://ask/?text=%1B%5B31mred%00%7F%C2%9B%09%FF", "[31mred\t�"),
        (f"rdchat://ask?text={quote('ü' * (MAX_CHARACTERS + 5))}", "ü" * MAX_CHARACTERS),
        (f"rdchat://ask?text={quote('a\u202eb\u200bc\u2028d\u00ade\ufefff')}", "abcdef"),
        (f"rdchat://ask?text={quote('a\ufdd0b\ufdd1c\uffffd\U000e0fffe\U0010fffff')}", "abcdef"),
        (f"rdchat://ask?text={quote('Hi' + ''.join(chr(0xE0000 + ord(each)) for each in ' send it'))}", "Hi"),
        (f"rdchat://ask?text={quote('👩\u200d🚀 \u0645\u06cc\u200c\u062e')}", "👩\u200d🚀 \u0645\u06cc\u200c\u062e"),
        (f"rdchat://ask?text={quote('a' + '\n' * 300 + '\t\n \n  b\nc')}", "a\n\n  b\nc"),
    ],
)
def test_an_address_gives_its_text_without_what_cannot_be_seen(address: str, text: str) -> None:
    assert request_of_address(address) == StartRequest(text=text)


@pytest.mark.parametrize(
    "address",
    [
        "rdchat://ask",
        "rdchat://ask?text=%20%00",
        "rdchat://ask/me?text=a",
        "rdchat://send?text=a",
        "rdchat://me@ask?text=a",
        "rdchat:ask?text=a",
        "https://ask?text=a",
        "rdchat://[ask?text=a",
        "rdchat://ask?" + "&".join(f"text{n}=a" for n in range(100)),
    ],
)
def test_another_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidSettingError, match="rdchat cannot open this address"):
        request_of_address(address)


@given(st.text(st.characters() | st.sampled_from("\n\t \u200d\u202e"), max_size=30))
def test_what_an_address_gives_is_taken_from_another_start_too(text: str) -> None:
    with suppress(InvalidSettingError):  # nothing can be seen
        request = request_of_address(f"rdchat://ask?text={quote(text)}")
        assert request_of_line(request.line()) == request


def test_a_start_with_files_names_them_wherever_the_first_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert request_of_start(["tmp/a.txt", "/b"]) == StartRequest(files=("/tmp/a.txt", "/b"))
    assert request_of_start([]) == JUST_SHOW
    assert request_of_start(["RDChat://ask?text=a"]) == StartRequest(text="a")
