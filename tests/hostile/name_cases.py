"""Cases of names that are not text: on Linux a file name may be any bytes."""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rdchat import host
from tests.hostile.case import Call, Case, Kind
from tests.hostile.samples import samples
from tests.hostile.store_cases import good_store

_ODD = "odd\u202e" if host.MACOS else os.fsdecode(b"odd\xff")  # names are text there
_SHORT = ("--max-tokens", "2", "--temperature", "0", "Hello")


def _asked_with_a_file(folder: Path) -> Call:
    path = folder / f"{_ODD}.txt"
    path.write_text("Hi")
    model = str(samples() / "model")
    return Call(("ask", "--model", model, "--json", "--file", str(path), *_SHORT), statuses=(0,))


def _model_folder(folder: Path) -> Call:
    shutil.copytree(samples() / "model", folder / _ODD)
    return Call(("ask", "--model", str(folder / _ODD), *_SHORT), statuses=(1,), words="not UTF-8 text")


def _drafter_folder(folder: Path) -> Call:
    shutil.copytree(samples() / "drafter", folder / _ODD)
    drafting = ("--mode", "drafter", "--drafter", str(folder / _ODD))
    return Call(("ask", "--model", str(samples() / "model"), *drafting, *_SHORT), words="not UTF-8 text")


def _file_in_a_drafter(folder: Path) -> Call:
    shutil.copytree(samples() / "drafter", folder / "drafter")
    (folder / "drafter" / _ODD).write_text("Hi")
    drafting = ("--mode", "auto", "--drafter", str(folder / "drafter"))
    return Call(("ask", "--model", str(samples() / "model"), *drafting, *_SHORT), statuses=(0,))


def _file_in_a_model(folder: Path) -> Call:
    shutil.copytree(samples() / "model", folder / "model")
    (folder / "model" / f"{_ODD}.txt").write_text("Hi")
    return Call(("ask", "--model", str(folder / "model"), *_SHORT), statuses=(0,))


def _chats(arguments: tuple[str, ...], folder: Path) -> Call:
    good_store(folder / "data" / "conversations.db")
    return Call((*arguments, str(folder / _ODD)), data=folder / "data", statuses=(0,))


def _no_backup(folder: Path) -> Call:
    call = _chats(("chats", "restore"), folder)
    (folder / _ODD).write_text("no backup")
    return Call(call.arguments, data=call.data, statuses=(1,))


def name_cases() -> Iterator[Case]:
    """Yield all cases of names."""
    made: dict[str, Callable[[Path], Call]] = {
        "a file for a question": _asked_with_a_file,
        "a file beside a drafter": _file_in_a_drafter,
        "a file beside a model": _file_in_a_model,
        "an export": partial(_chats, ("chats", "export", "--json")),
        "an export as Markdown": partial(_chats, ("chats", "export", "--markdown")),
        "a backup": partial(_chats, ("chats", "backup")),
        "no backup": _no_backup,
    }
    if not host.MACOS:
        made |= {"a model's folder": _model_folder, "a drafter's folder": _drafter_folder}
    for name, make in made.items():
        yield Case(Kind.NAMES, name, make)
