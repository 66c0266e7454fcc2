"""Changes the store in this process, or through the app that has it open."""

from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rdchat import paths
from rdchat.chat.plain_data import from_plain
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.reports import Progress
from rdchat.chat.transfer.restore import finish
from rdchat.errors import StorageError, StorageLockedError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def with_store_or_app(
    here: Callable[[ConversationStore], dict[str, Any]],
    request: dict[str, Any],
    show: Callable[[Progress], object],
    result: "DataclassInstance",
) -> dict[str, Any]:
    """Call `here` with the store, or have the app that has it open carry out a request; return the result.

    `result` is an example of what comes back.

    Raises:
        StorageError: If it cannot be done, or an app that has the store does not answer.
    """
    try:
        finish(paths.data_dir(), paths.database_path(), paths.settings_path())
        store = ConversationStore.open(paths.database_path())
    except StorageLockedError:
        return ask_app(request, show, result)
    try:
        return here(store)
    finally:
        store.close()


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
