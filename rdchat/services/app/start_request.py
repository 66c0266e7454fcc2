"""What another start of rdchat, or the system, asks the window to do; a start sends it as one line of JSON."""

import json
import os
import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from urllib.parse import parse_qs, urlsplit

from rdchat.errors import InvalidSettingError
from rdchat.files import from_plain

SCHEME = "rdchat"
MAX_LINE_BYTES = 64 * 1024
MAX_CHARACTERS = 16_000
"""So many characters fit into a line in any script."""
# Control and format characters, separators of lines, halves of characters, and what is none. Scripts and emoji need two
# joiners.
_HIDDEN = {"Cc", "Cf", "Cn", "Cs", "Zl", "Zp"}
_JOINERS = "\u200c\u200d"
_EMPTY_LINES = re.compile(r"\n\s*\n")


@dataclass(frozen=True, slots=True)
class StartRequest:
    """A request to the app, whose main window comes to the front unless the quick window does.

    Attributes:
        quick: Whether it is for the quick window.
        text: Text for the message field; it is not sent.
        files: Absolute paths: a model to load, or files to attach.
    """

    quick: bool = False
    text: str = ""
    files: tuple[str, ...] = ()

    def line(self) -> bytes:
        """Return the request as a line; InvalidSettingError if that is too long."""
        line = json.dumps(asdict(self), ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"
        if len(line) > MAX_LINE_BYTES:
            raise InvalidSettingError("These are too many files to open at once.", "Open some of them.")
        return line


JUST_SHOW = StartRequest()
"""The request of a start without arguments."""


def request_of_line(line: bytes) -> StartRequest | None:
    """Return the request in a line; None if it is not a request."""
    try:
        data = json.loads(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.keys() != asdict(JUST_SHOW).keys():
        return None
    request, wrong = from_plain(JUST_SHOW, data)
    paths = all(each.startswith("/") and "\0" not in each for each in request.files)
    return request if paths and not wrong and request.text == _visible_text(request.text) else None


def request_of_start(arguments: Sequence[str]) -> StartRequest:
    """Return the request of a start with one address, with files, or with nothing; see `request_of_address`."""
    if arguments and is_own_address(arguments[0]):
        return request_of_address(arguments[0])
    return StartRequest(files=tuple(map(os.path.abspath, arguments)))


def request_of_address(address: str) -> StartRequest:
    """Return the request of an address such as `rdchat://ask?text=Hello`.

    Raises:
        InvalidSettingError: If rdchat does nothing at this address.
    """
    text = ""
    with suppress(ValueError):
        parts = urlsplit(address)
        if (parts.scheme, parts.netloc, parts.path.strip("/")) == (SCHEME, "ask", ""):
            fields = parse_qs(parts.query, errors="replace", max_num_fields=8)
            text = _visible_text(fields.get("text", [""])[0])
    if not text:
        raise InvalidSettingError("rdchat cannot open this address.", f"It opens {SCHEME}://ask?text=, with a text.")
    return StartRequest(text=text)


def is_own_address(text: str) -> bool:
    """Return whether a text is an address of rdchat, in any case."""
    return text.lower().startswith(f"{SCHEME}:")


def _visible_text(text: str) -> str:
    """Return the beginning of a text without what cannot be seen, and with no two empty lines in a row."""
    signs = (each for each in text if each in f"\n\t{_JOINERS}" or unicodedata.category(each) not in _HIDDEN)
    return _EMPTY_LINES.sub("\n\n", "".join(signs))[:MAX_CHARACTERS].strip()
