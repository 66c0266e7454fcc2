"""Asks what to do with replies that the store has not saved, before the window closes."""

from PySide6.QtCore import QObject, QTimer, Slot
from PySide6.QtWidgets import QMessageBox, QWidget

from rdchat.chat.conversation import Notice
from rdchat.services.chat.reply_recorder import Reply, ReplyRecorder
from rdchat.services.chat_list.chat_order import named
from rdchat.ui.style import message_box, single_shot
from rdchat.wording import counted

# While the question is open, what is unsaved is looked at so often: a retry may have saved it.
_LOOK_MS = 500
_MAX_NAMED = 5
_KEPT = "If you quit, the text goes into a file beside the chats, if a disk has room for it."


class UnsavedQuestion(QObject):
    """Asks before a window closes, and closes the window after the answer.

    Args:
        recorder: The replies.
        window: The window to close.
    """

    def __init__(self, recorder: ReplyRecorder, window: QWidget) -> None:
        super().__init__(window)
        self._recorder = recorder
        self._window = window
        # Whether the window may close: everything is saved, or the person or the time limit has decided.
        self._settled = False
        self._box: QMessageBox | None = None
        self._look = QTimer(self, interval=_LOOK_MS)
        self._look.timeout.connect(self._refresh)
        self._limit = single_shot(self, 0, self._settle)

    def may_close(self) -> bool:
        """Return whether everything is saved or the person has decided; else ask."""
        if self._settled or self._recorder.save_texts():
            self._limit.stop()
            return True
        if self._box is None:
            self._ask()
        return False

    def answer_within(self, limit_ms: int) -> None:
        """Wait no longer than this for an answer; then the window closes."""
        # A second request of the system does not wait again.
        if self._limit.isActive():
            self._settle()
        else:
            self._limit.start(limit_ms)

    def _ask(self) -> None:
        box = message_box(QMessageBox.Icon.Question, "", parent=self._window)
        box.setObjectName("unsaved")
        role = QMessageBox.ButtonRole
        again = box.addButton("Try Again", role.AcceptRole)
        cancel = box.addButton("Cancel", role.RejectRole)
        # Closing saves again, and asks again if that fails.
        again.clicked.connect(self._window.close)
        cancel.clicked.connect(self._limit.stop)
        box.addButton("Quit Anyway", role.DestructiveRole).clicked.connect(self._settle)
        box.setDefaultButton(again)
        box.setEscapeButton(cancel)
        box.finished.connect(self._forget)
        self._box = box
        self._recorder.read_titles()
        self._refresh()
        box.open()
        self._look.start()

    @Slot()
    def _refresh(self) -> None:
        """Show what is unsaved now; close the window if nothing is."""
        replies = self._recorder.unsaved
        if not replies:
            self._settle()
        elif self._box is not None:
            self._box.setText(question_text(replies))
            self._box.setInformativeText(detail_text(replies, self._recorder.trouble))

    @Slot()
    def _settle(self) -> None:
        """Close the window: everything is saved, or the person or the time limit has decided."""
        self._settled = True
        self._look.stop()
        self._limit.stop()
        if self._box is not None:
            self._box.close()
        self._window.close()

    @Slot()
    def _forget(self) -> None:
        self._box = None
        self._look.stop()


def question_text(replies: list[Reply]) -> str:
    """Return the question, with how much is not saved."""
    missing = counted(sum(reply.missing for reply in replies), "character")
    titles = list(dict.fromkeys(reply.conversation.title for reply in replies))
    where = named(titles[0]) if len(titles) == 1 else counted(len(titles), "chat")
    return f"Quit without saving {missing} of {where}?"


def detail_text(replies: list[Reply], trouble: Notice | None) -> str:
    """Return why the replies are not saved, and which they are."""
    lines = [
        f"{named(reply.conversation.title)}: {reply.missing:,} of {counted(len(reply.message.text), 'character')}"
        for reply in replies[:_MAX_NAMED]
    ]
    if (more := len(replies) - _MAX_NAMED) > 0:
        lines.append(f"and {counted(more, 'more reply', 'more replies')}")
    why = f"{trouble.title} {trouble.detail}".strip() if trouble else ""
    return "\n\n".join(part for part in (why, "\n".join(lines), _KEPT) if part)
