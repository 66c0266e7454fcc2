"""Sheets in front of a window: a title, a text, perhaps more parts, and buttons."""

from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QPushButton, QWidget

from rdchat.ui.style.buttons import Action, dialog_buttons, push_button
from rdchat.ui.style.labels import ThemedLabel
from rdchat.ui.style.layouts import Part, column
from rdchat.ui.style.theme import LARGE, MEDIUM, Theme

type Answer = tuple[str, Action]

WIDTH = 440
"""Width of a sheet's parts."""


def nothing() -> None:
    """Do nothing: the action of a button that only closes its sheet."""


class Sheet(QDialog):
    """A title, a text, widgets, and buttons that close the sheet. Escape presses the first button, Return the last.

    Args:
        window: The sheet stands in front of it.
        theme: The appearance to follow.
        title: The subject, or a question.
        text: Shown below the title.
        answers: The buttons.
        parts: Shown below the text.
        left: A button at the left end of the row.
        stays: Whether the sheet stays open when a button acts; one without an action closes it.
    """

    def __init__(
        self,
        window: QWidget,
        theme: Theme,
        title: str,
        text: str,
        answers: Sequence[Answer],
        *,
        parts: Sequence[Part] = (),
        left: Answer | None = None,
        stays: bool = False,
    ) -> None:
        super().__init__(window, Qt.WindowType.Sheet)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.setAccessibleName(title)
        self.setAccessibleDescription(text)
        self.text = text
        self._escape = answers[0][1]
        self._stays = stays
        self.title = ThemedLabel(theme, title, points_more=2, bold=True, wraps=True)
        head: list[Part] = [self.title]
        if text:
            head.append(ThemedLabel(theme, text, "muted", wraps=True, selectable=True))
        self.buttons = [self._button(answer) for answer in answers]
        by_role = dict(zip(("reject", "accept"), self.buttons, strict=False))
        line = dialog_buttons(**({"action": self._button(left)} if left else {}), **by_role)
        self.buttons[-1].setDefault(True)
        self._column = column(*head, *parts, MEDIUM, line, within=self, margins=LARGE)
        self.fit()

    def fit(self) -> None:
        """Take the height that the parts need."""
        self._column.activate()
        self.setFixedSize(WIDTH + 2 * LARGE, self._column.totalHeightForWidth(WIDTH + 2 * LARGE))

    def _button(self, answer: Answer) -> QPushButton:
        return push_button(answer[0], "", lambda: self.answer(answer[1]))

    def answer(self, act: Action) -> None:
        """Act, and close the sheet unless it stays."""
        if act is nothing or not self._stays:
            self.done(0)
        act()

    def reject(self) -> None:
        self.answer(self._escape)
