"""Asks for the newest version of rdchat, at the address that the build names.

The window asks once a day, if the person has agreed. Importing this loads no network library.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import rdchat
from rdchat.errors import one_line

# Written by scripts/build-app.sh; a checkout has none.
_FILE = Path(rdchat.__file__).with_name("updates_address")
_VERSION = re.compile(r"\d{1,6}(\.\d{1,6}){0,3}")
# Limits of the notes, in characters and lines, as they stand above the chat.
_MAX_NOTES = 2000
_MAX_LINES = 6


@dataclass(frozen=True, slots=True)
class Update:
    """A version that is newer than the one that runs.

    Attributes:
        version: Its number, such as `1.2.0`.
        notes: What is new, as plain text; may be empty.
        page: Address of the page where to get it.
    """

    version: str
    notes: str
    page: str


def updates_address() -> str:
    """Return the web address that the build asks for new versions; empty where it asks none."""
    try:
        address = _FILE.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    return address if _is_web_page(address) else ""


def newer_version(address: str) -> Update | None:
    """Ask for the newest version; return it if it is newer than this one. Waits for the network.

    The answer is JSON: `{"version": "1.2.0", "notes": "...", "page": "https://..."}`.

    Raises:
        NetworkError: If there is no such answer.
    """
    from rdchat.hub.endpoint import AnswerLimits, Endpoint, HubError, check_online  # noqa: PLC0415
    from rdchat.hub.hub_api import HubReader  # noqa: PLC0415  a quarter of a second

    check_online()
    parts = urlsplit(address)
    endpoint = Endpoint(f"{parts.scheme}://{parts.netloc}")
    try:
        update = _read(HubReader(endpoint, AnswerLimits()).read_json(address))
        return update if _numbers(update.version) > _numbers(rdchat.__version__) else None
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise HubError(f"{endpoint.host} does not say which version of rdchat is the newest.") from error


def _read(answer: Mapping[str, Any]) -> Update:
    version = answer["version"]
    notes = answer.get("notes", "")
    page = answer["page"]
    if not (_VERSION.fullmatch(version) and isinstance(notes, str) and _is_web_page(page)):
        raise ValueError("not a version with its page")
    lines = [line for each in notes[:_MAX_NOTES].splitlines() if (line := one_line(each).strip())]
    return Update(version, "\n".join(lines[:_MAX_LINES]), page)


def _is_web_page(address: object) -> bool:
    try:
        parts = urlsplit(str(address))
    except ValueError:
        return False
    return parts.scheme == "https" and bool(parts.hostname) and not parts.username


def _numbers(version: str) -> list[int]:
    return [int(number) for number in version.split(".")]
