"""Asks what is to become of replies that the store does not take, before the window closes on them."""

from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer
from PySide6.QtWidgets import QFileDialog, QMessageBox, QWidget

from rdchat.chat.conversation import Notice
from rdchat.errors import StorageError
from rdchat.services.chat.unsaved_replies import UnsavedReplies, UnsavedReply
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.plain_text import message_box

_LOOK_MS = 500  # a reply may still be written, and the store may take it meanwhile
_MOST_NAMED = 5
_LONGEST_TITLE = 40


class UnsavedQuestion(QObject):
    """Stands before the closing of a window. Where it has to ask, it closes the window itself after the answer.

    Args:
        unsaved: The replies.
        window: What is to be closed.
    """

    def __init__(self, unsaved: UnsavedReplies, window: QWidget) -> None:
        super().__init__(window)
        self._unsaved, self._window = unsaved, window
        self._settled = False
        self._box: QMessageBox | None = None
        self._dialog: QFileDialog | None = None
        self._look = QTimer(self, interval=_LOOK_MS)
        self._look.timeout.connect(self._refresh)
        self._limit = QTimer(self, singleShot=True)
        self._limit.timeout.connect(self._settle)

    def may_close(self) -> bool:
        """Tell whether nothing is lost by closing, or the person has said so; else ask."""
        if self._settled or self._unsaved.save():
            self._limit.stop()
            return True
        if self._box is None and self._dialog is None:
            self._ask(self._unsaved.trouble)
        return False

    def answer_within(self, limit_ms: int) -> None:
        """Wait no longer than this for an answer: what is unsaved then goes into a file beside the chats."""
        if self._limit.isActive():  # asked to quit once more
            self._settle()
        else:
            self._limit.start(limit_ms)

    def _ask(self, trouble: Notice | None) -> None:
        box = message_box(QMessageBox.Icon.Question, "", parent=self._window)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setObjectName("unsaved")
        again = box.addButton("Try again", QMessageBox.ButtonRole.AcceptRole)
        elsewhere = box.addButton("Save text…", QMessageBox.ButtonRole.ActionRole)
        anyway = box.addButton("Quit anyway", QMessageBox.ButtonRole.DestructiveRole)
        cancel = box.addButton("Cancel", QMessageBox.ButtonRole.RejectRole)
        box.setDefaultButton(again)
        box.setEscapeButton(cancel)
        box.finished.connect(self._forget_box)
        again.clicked.connect(self._window.close)
        elsewhere.clicked.connect(self._choose_file)
        anyway.clicked.connect(self._give_up)
        cancel.clicked.connect(self._stay)
        self._box, self._trouble = box, trouble
        self._refresh()
        box.open()
        self._look.start()

    def _refresh(self) -> None:
        """Say what is lacking now; where nothing is, go on."""
        replies = self._unsaved.replies()
        if not replies:
            self._settle()
        elif self._box is not None:
            self._box.setText(question_words(replies))
            self._box.setInformativeText(detail_words(replies, self._trouble))

    def _choose_file(self) -> None:
        dialog = QFileDialog(self._window, "Save the text", str(Path.home() / "Unsaved replies.md"))
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setNameFilters(["Markdown (*.md)", "Plain text (*.txt)"])
        dialog.setDefaultSuffix("md")
        dialog.fileSelected.connect(self._save_elsewhere)
        dialog.rejected.connect(self._ask_again)
        dialog.finished.connect(self._forget_dialog)
        self._dialog = dialog
        dialog.open()

    def _save_elsewhere(self, name: str) -> None:
        try:
            self._unsaved.save_elsewhere(Path(name))
        except StorageError as error:
            self._ask(Notice(error.message, error.hint))
        else:
            self._settle()

    def _ask_again(self) -> None:
        if not self._settled:
            self._ask(self._unsaved.trouble)

    def _give_up(self) -> None:
        self._unsaved.give_up()
        self._settle()

    def _stay(self) -> None:
        self._limit.stop()

    def _settle(self) -> None:
        """Close the window: everything is stored, or the person or the time has decided."""
        self._settled = True
        self._look.stop()
        self._limit.stop()
        for asking in (self._box, self._dialog):
            if asking is not None:
                asking.close()
        self._window.close()

    def _forget_box(self) -> None:
        self._box = None
        self._look.stop()

    def _forget_dialog(self) -> None:
        self._dialog = None


def question_words(replies: list[UnsavedReply]) -> str:
    """Return the question, with how much would be lost."""
    missing = counted(sum(reply.missing for reply in replies), "character")
    titles = list(dict.fromkeys(reply.title for reply in replies))
    where = f"“{_short(titles[0])}”" if len(titles) == 1 else counted(len(titles), "chat")
    return f"Quit and lose {missing} of {where}?"


def detail_words(replies: list[UnsavedReply], trouble: Notice | None) -> str:
    """Return why they are not stored, and which replies they are."""
    lines = [
        f"“{_short(reply.title)}”: {reply.missing:,} of {counted(len(reply.text), 'character')}"
        for reply in replies[:_MOST_NAMED]
    ]
    if more := len(replies) - _MOST_NAMED:
        lines += [f"and {counted(more, 'more reply', 'more replies')}"] if more > 0 else []
    why = f"{trouble.title} {trouble.detail}".strip() if trouble else ""
    return "\n\n".join(part for part in (why, "\n".join(lines)) if part)


def _short(title: str) -> str:
    return title if len(title) <= _LONGEST_TITLE else f"{title[: _LONGEST_TITLE - 1]}…"
