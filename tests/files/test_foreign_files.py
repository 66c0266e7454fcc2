"""A file that another program replaces by a pipe, between a look at it and its opening, holds no reader."""

import argparse
import builtins
import io
import os
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.attachments import file_reader, kinds
from rdchat.chat.transfer import backups, source_files, transfer_process
from rdchat.chat.transfer.chat_import import TaskProgress
from rdchat.commands import ask_files
from rdchat.errors import RdchatError
from rdchat.files import foreign_files
from rdchat.inference.models import default_model, safetensors_file
from rdchat.inference.vision.image_process import ImageFacts, ImageProcess
from rdchat.services.models import library
from rdchat.work.job import Job

_JSON = b"[]"
_WEIGHTS = struct.pack("<Q", 2) + b"{}"


def zipped() -> bytes:
    with io.BytesIO() as data:
        with zipfile.ZipFile(data, "w") as archive:
            archive.writestr("conversations.json", "[]")
        return data.getvalue()


def read_whole_source(path: Path) -> None:
    for each in source_files.open_source(path, []):
        each.read_content()


# A reader of a foreign path, and what the path has when the reader looks at it.
READERS: dict[str, tuple[Callable[[Path], Any], bytes]] = {
    "is an image": (kinds.is_image, b"GIF8"),
    "is readable": (kinds.looks_readable, b"text"),
    "document": (lambda path: file_reader.read_file(Job(), str(path)), b"text"),
    "chats": (read_whole_source, _JSON),
    "archive of chats": (read_whole_source, zipped()),
    "is a database": (transfer_process._is_database, b"text"),
    "backup": (lambda path: backups.unpack(path, path.parent, TaskProgress(Job())), zipped()),
    "settings": (foreign_files.read_object, b"{}"),
    "weights": (safetensors_file.read_header, _WEIGHTS),
    "samples of weights": (lambda path: list(safetensors_file._samples(path)), _WEIGHTS),
    "wheel": (lambda path: default_model._check_sha256(path, ""), b"wheel"),
    "image of a question": (
        lambda path: ask_files.read_images(argparse.Namespace(image=[str(path)], hosts=None, model=None)),
        b"any",
    ),
    "card of a drafter": (lambda path: library.figures_of.__wrapped__(str(path.parent)), b"| W4 L5 | 2.0 |"),
}


@pytest.mark.parametrize(("read", "content"), READERS.values(), ids=list(READERS))
def test_a_file_that_becomes_a_pipe_holds_no_reader(
    read: Callable[[Path], Any], content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "card.md"
    path.write_bytes(content)
    monkeypatch.setattr(ImageProcess, "check_image", lambda *_call, **_options: ImageFacts(1, 1, "PNG"))
    opened = swap_at_opening(path, monkeypatch)
    with suppress(RdchatError, OSError):
        read(path)
    assert opened, "the reader did not open the file at all"


def swap_at_opening(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Put a pipe in the place of a file when it is opened; one that would wait for a writer fails the test."""
    flags_of_openings: list[int] = []
    open_by_system = os.open
    open_by_python = io.open

    def open_descriptor(opened: Any, flags: int, *more: Any, **options: Any) -> int:
        if opened in (path, str(path)):
            assert flags & os.O_NONBLOCK, "this waits for a writer"
            flags_of_openings.append(flags)
            path.unlink()
            os.mkfifo(path)
        return open_by_system(opened, flags, *more, **options)

    def open_file(opened: Any, *more: Any, **options: Any) -> Any:
        assert opened not in (path, str(path)), "this waits for a writer"
        return open_by_python(opened, *more, **options)

    monkeypatch.setattr(os, "open", open_descriptor)
    for module in (io, builtins):
        monkeypatch.setattr(module, "open", open_file)
    return flags_of_openings
