"""What the transcript's messages share, and what a person can ask for in them."""

from PySide6.QtCore import QRect, Signal
from PySide6.QtWidgets import QScrollArea, QWidget

from rdchat.chat.conversation import Message
from rdchat.ui.look.theme import Theme


class MessageArea(QScrollArea):
    """A scroll area of messages: what its messages share, and the signals that they emit. `int` is a message's id."""

    edit_submitted = Signal(int, str)
    regenerate_requested = Signal(int)
    regenerate_with_requested = Signal(int)
    continue_requested = Signal(int)
    alternative_requested = Signal(int, int)  # and by how many to step
    tokens_requested = Signal(int)
    quote_requested = Signal(str)  # Markdown
    compare_requested = Signal(int)
    delete_requested = Signal(int)
    branch_requested = Signal(int)
    cut_undo_requested = Signal(int)
    file_requested = Signal(object)  # an `AttachedFile`
    edited = Signal(Message, str)  # the text in a message's editor; empty once it is closed
    caret_moved = Signal(QRect)  # in the column
    height_changed = Signal()  # of a message, because of something the person did
    work_added = Signal()  # a message has something to draw

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.theme = theme
        self.column = QWidget(self)
        self.setWidget(self.column)
