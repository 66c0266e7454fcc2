"""What changes the store: in this process where no other has it, else by the app that is open."""

from collections.abc import Callable
from typing import Any

from rdchat import paths
from rdchat.chat.backup.restore import finish
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.reports import Progress
from rdchat.errors import StorageError, StorageLockedError


def with_store_or_app(
    here: Callable[[], dict[str, Any]], request: dict[str, Any], show: Callable[[Progress], object]
) -> dict[str, Any]:
    """Call `here` while this process has the store, or have the open app carry out a request; return the result.

    Raises:
        StorageError: If it cannot be done, or an app that has the store does not answer.
    """
    try:
        finish(paths.data_dir(), paths.database_path(), paths.settings_path())
        store = ConversationStore.open(paths.database_path())
    except StorageLockedError:
        return ask_app(request, show)
    try:
        return here()
    finally:
        store.close()


def ask_app(request: dict[str, Any], show: Callable[[Progress], object]) -> dict[str, Any]:
    """Have the open app carry out a request, and return the result.

    Raises:
        StorageError: If it cannot, or does not answer.
    """
    from rdchat.services.app.instance_channel import ask_open_app  # noqa: PLC0415  Qt: only where an app is open

    def on_message(message: dict[str, Any]) -> None:
        if "progress" in message:
            show(Progress(message["progress"]["words"], message["progress"]["fraction"]))

    answer = ask_open_app(paths.data_dir(), request, on_message)
    if "done" in answer:
        result: dict[str, Any] = answer["done"]
        return result
    if "failed" in answer:
        raise StorageError(answer["failed"]["message"], answer["failed"]["hint"])
    raise StorageError("It was cancelled in the window.", "Nothing was changed.")
