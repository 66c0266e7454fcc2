"""Asks the open app to change its store, and shows the progress of that and of other long work in the terminal."""

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rdchat import paths
from rdchat.chat.plain_data import from_plain
from rdchat.chat.transfer.reports import Progress
from rdchat.commands.progress import ProgressLine
from rdchat.errors import StorageError, one_line

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def counted(number: int, name: str) -> str:
    """Return `1 chat` or `1,204 chats`."""
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def shown_progress(line: ProgressLine) -> Callable[[Progress], None]:
    """Return what shows progress in a line."""

    def show(progress: Progress) -> None:
        percent = "" if progress.fraction is None else f" {progress.fraction:4.0%}"
        line.show_text(f"{one_line(progress.words)}…{percent}", progress.words)

    return show


def ask_app(request: dict[str, Any], show: Callable[[Progress], object], result: "DataclassInstance") -> dict[str, Any]:
    """Have the open app carry out a request, and return the result, which has the fields of `result`.

    Raises:
        StorageError: If it cannot, does not answer, or the answer lacks something.
    """
    from rdchat.services.app.instance_channel import (  # noqa: PLC0415  Qt: only where an app is open
        ask_open_app,
        bad_answer,
    )

    def part(message: dict[str, Any], name: str, kind: "DataclassInstance") -> dict[str, Any]:
        data = message[name]
        if not isinstance(data, dict) or not {each.name for each in fields(kind)} <= data.keys():
            raise bad_answer()
        if from_plain(kind, data)[1]:
            raise bad_answer()
        return data

    def on_message(message: dict[str, Any]) -> None:
        if "progress" in message:
            show(from_plain(Progress(""), part(message, "progress", Progress("")))[0])

    answer = ask_open_app(paths.data_dir(), request, on_message)
    if "done" in answer:
        return part(answer, "done", result)
    if "failed" in answer:
        failed = answer["failed"]
        if not isinstance(failed, dict) or not all(isinstance(failed.get(each), str) for each in ("message", "hint")):
            raise bad_answer()
        raise StorageError(failed["message"], failed["hint"])
    raise StorageError("It was cancelled in the window.", "Nothing was changed.")
