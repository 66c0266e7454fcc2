"""Asks what to do with replies that the store has not saved, before the window closes."""

from pathlib import Path

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtWidgets import QDialog, QMessageBox, QWidget

from rdchat.chat.conversation import Notice
from rdchat.errors import StorageError
from rdchat.services.chat.reply_recorder import Reply, ReplyRecorder
from rdchat.services.chat.rescue_file import RescueFile
from rdchat.services.chat_list.chat_order import named
from rdchat.ui.style.formatting import counted
from rdchat.ui.style.labels import message_box
from rdchat.ui.style.opening import ConsentPause, ask_to_save

_LOOK_MS = 500
_MAX_NAMED = 5


class UnsavedQuestion(QObject):
    """Asks before a window closes, and closes the window after the answer.

    Args:
        recorder: The replies.
        rescue_file: Takes those that are not saved.
        window: The window to close.
    """

    def __init__(self, recorder: ReplyRecorder, rescue_file: RescueFile, window: QWidget) -> None:
        super().__init__(window)
        self._recorder = recorder
        self._rescue_file = rescue_file
        self._window = window
        self._settled = False
        self._trouble: Notice | None = None
        self._open: QDialog | None = None
        self._look = QTimer(self, interval=_LOOK_MS)
        self._look.timeout.connect(self._refresh)
        self._limit = QTimer(self, singleShot=True)
        self._limit.timeout.connect(self._settle)

    def may_close(self) -> bool:
        """Return whether everything is saved or the person has decided; else ask."""
        if self._settled or self._recorder.save_texts():
            self._limit.stop()
            return True
        if self._open is None:
            self._ask(self._recorder.trouble)
        return False

    def answer_within(self, limit_ms: int) -> None:
        """Wait no longer than this for an answer; then unsaved replies go into a file beside the chats."""
        # This is the second request to quit.
        if self._limit.isActive():
            self._settle()
        else:
            self._limit.start(limit_ms)

    def _ask(self, trouble: Notice | None) -> None:
        box = message_box(QMessageBox.Icon.Question, "", parent=self._window)
        box.setObjectName("unsaved")
        role = QMessageBox.ButtonRole
        again = box.addButton("Try Again", role.AcceptRole)
        cancel = box.addButton("Cancel", role.RejectRole)
        again.clicked.connect(self._window.close)
        cancel.clicked.connect(self._limit.stop)
        box.addButton("Save Text…", role.ActionRole).clicked.connect(self._choose_file)
        box.addButton("Quit Anyway", role.DestructiveRole).clicked.connect(self._give_up)
        box.setDefaultButton(again)
        box.setEscapeButton(cancel)
        box.finished.connect(self._forget)
        ConsentPause(*box.buttons())
        self._open = box
        self._trouble = trouble
        self._recorder.read_titles()
        self._refresh()
        box.open()
        self._look.start()

    def _refresh(self) -> None:
        """Show what is unsaved now; close the window if nothing is."""
        replies = self._recorder.unsaved
        if not replies:
            self._settle()
        elif isinstance(self._open, QMessageBox):
            self._open.setText(question_text(replies))
            self._open.setInformativeText(detail_text(replies, self._trouble))

    def _choose_file(self) -> None:
        filters = ["Markdown (*.md)", "Plain text (*.txt)"]
        dialog = ask_to_save(self._window, "Save the Text", "Unsaved replies.md", filters, self._save_elsewhere)
        dialog.rejected.connect(self._ask_again)
        dialog.finished.connect(self._forget)
        self._open = dialog

    def _save_elsewhere(self, path: str) -> None:
        try:
            self._rescue_file.write_to(Path(path))
        except StorageError as error:
            self._ask(Notice(error.message, error.hint))
        else:
            self._settle()

    def _ask_again(self) -> None:
        if not self._settled:
            self._ask(self._recorder.trouble)

    def _give_up(self) -> None:
        self._rescue_file.give_up()
        self._settle()

    def _settle(self) -> None:
        """Close the window: everything is saved, or the person or the time limit has decided."""
        self._settled = True
        self._look.stop()
        self._limit.stop()
        if self._open is not None:
            self._open.close()
        self._window.close()

    @Slot()
    def _forget(self) -> None:
        # A connection that holds its own sender crashes PySide.
        if self.sender() is self._open:
            self._open = None
            self._look.stop()


def question_text(replies: list[Reply]) -> str:
    """Return the question, with how much would be lost."""
    missing = counted(sum(reply.missing for reply in replies), "character")
    titles = list(dict.fromkeys(reply.conversation.title for reply in replies))
    where = named(titles[0]) if len(titles) == 1 else counted(len(titles), "chat")
    return f"Quit and lose {missing} of {where}?"


def detail_text(replies: list[Reply], trouble: Notice | None) -> str:
    """Return why the replies are not saved, and which they are."""
    lines = [
        f"{named(reply.conversation.title)}: {reply.missing:,} of {counted(len(reply.message.text), 'character')}"
        for reply in replies[:_MAX_NAMED]
    ]
    if (more := len(replies) - _MAX_NAMED) > 0:
        lines.append(f"and {counted(more, 'more reply', 'more replies')}")
    why = f"{trouble.title} {trouble.detail}".strip() if trouble else ""
    return "\n\n".join(part for part in (why, "\n".join(lines)) if part)
