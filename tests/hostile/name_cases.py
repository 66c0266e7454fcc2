"""Cases of names that are not text: on Linux a file name may be any bytes."""

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from rdchat import host
from tests.hostile.case import Call, Case, Kind, ask
from tests.hostile.samples import copy_of, samples
from tests.hostile.store_cases import good_store

_ODD = "odd\u202e" if host.MACOS else os.fsdecode(b"odd\xff")  # names are text there


def _asked_with_a_file(folder: Path) -> Call:
    path = folder / f"{_ODD}.txt"
    path.write_text("Hi")
    return ask(samples() / "model", "--json", "--file", str(path), statuses=(0,))


def _model_folder(folder: Path) -> Call:
    return ask(copy_of("model", folder).rename(folder / _ODD), statuses=(1,), words="not UTF-8 text")


def _drafted(drafter: Path, mode: str, **more: object) -> Call:
    return ask(samples() / "model", "--mode", mode, "--drafter", str(drafter), **more)


def _drafter_folder(folder: Path) -> Call:
    return _drafted(copy_of("drafter", folder).rename(folder / _ODD), "drafter", words="not UTF-8 text")


def _file_in_a_drafter(folder: Path) -> Call:
    drafter = copy_of("drafter", folder)
    (drafter / _ODD).write_text("Hi")
    return _drafted(drafter, "auto", statuses=(0,))


def _file_in_a_model(folder: Path) -> Call:
    model = copy_of("model", folder)
    (model / f"{_ODD}.txt").write_text("Hi")
    return ask(model, statuses=(0,))


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
