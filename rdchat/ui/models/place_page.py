"""Places where models run: what the Remote and Macs pages share."""

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QLineEdit, QPushButton, QStackedWidget, QWidget
from shiboken6 import isValid

from rdchat.errors import RdchatError
from rdchat.services.models.listed_model import Model
from rdchat.services.models.window_services import Models
from rdchat.ui.models.entries import Entry
from rdchat.ui.models.installed_page import InstalledResults
from rdchat.ui.models.model_row import ModelRow, RowList
from rdchat.ui.models.page_parts import ModelList, NoticeView, PageLinks, two_columns
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.labels import ElidedLabel, Ground, ThemedLabel, visible_text
from rdchat.ui.style.layouts import add_row, column, form_layout, row, scrolled
from rdchat.ui.style.sheet import Sheet, nothing
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TEXT_WIDTH, TIGHT, Theme


class PlacePage(QWidget):
    """A list of places, and one of them with its buttons and models.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
        texts: The list's name, a title and a text while there is no place, and the button that adds one.
        buttons: What can be done with the chosen one; Delete presses the last.

    Attributes:
        rows: The models of the chosen place.
        result: What came of using one.
    """

    def __init__(
        self, models: Models, links: PageLinks, theme: Theme, texts: tuple[str, str, str, str], *buttons: QPushButton
    ) -> None:
        super().__init__()
        self._theme = theme
        self._texts = texts
        self.list = ModelList(theme, texts[0])
        self.notice = NoticeView(links, theme, None, self.open_sheet)
        self.add = push_button(texts[-1], "", self.open_sheet)
        self.name = ElidedLabel(theme, "", points_more=5, bold=True, mode=Qt.TextElideMode.ElideMiddle)
        self.source = ElidedLabel(theme, "", "muted", mode=Qt.TextElideMode.ElideMiddle)
        self.state = ThemedLabel(theme, "", "muted", wraps=True, selectable=True)
        self.heading = ThemedLabel(theme, "Models", "muted", -1, bold=True)
        self.rows = RowList(lambda: ModelRow(models, links, theme))
        self.list.chosen.connect(self._show_chosen)
        self.list.delete_requested.connect(buttons[-1].click)
        content = QWidget()
        ground = Ground(theme, "surface")
        self._right = QStackedWidget()
        content.setMaximumWidth(TEXT_WIDTH)
        head = column(self.name, self.source, MEDIUM, row(*buttons, None), self.state, spacing=TIGHT)
        margins = (LARGE, LARGE - TIGHT, LARGE, LARGE)
        parts = head, column(self.heading, self.rows, spacing=TIGHT), None
        column(*parts, within=content, spacing=MEDIUM + TIGHT, margins=margins)
        row((content, 1000), None, within=ground, spacing=-1)
        for part in (self.notice, scrolled(ground)):
            self._right.addWidget(part)
        left = (SMALL, (self.list, 1), row(self.add, None, margins=MEDIUM))
        self.result = InstalledResults(models, theme)
        result = column(self.result, margins=(LARGE, SMALL, LARGE, SMALL))
        column(two_columns(theme, left, [(self._right, 1), result]), within=self)

    @property
    def chosen(self) -> Any:
        """What the chosen entry stands for; a button is pressed only while there is one."""
        assert self.list.current is not None
        return self.list.current.item

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.look()
        if not event.spontaneous():
            self.result.show_text("")
            (self.list if self.list.entries else self.notice.action).setFocus()

    def look(self) -> None:
        """Look for what may have changed; called each time the page is shown."""
        raise NotImplementedError

    def show_places(self, places: Sequence[Entry]) -> None:
        """Show these places; choose one that was added, or the first if none is chosen."""
        before = {entry.key for entry in self.list.entries}
        self.list.show_entries(places)
        added = [place for place in places if before and place.key not in before]
        if places and (added or self.list.current is None):
            self.list.select((added or places)[0].key)
        self.add.setVisible(bool(places))
        self.notice.show_text(*self._texts[1:])
        self._right.setCurrentIndex(1 if places else 0)
        self._show_chosen()

    def _show_chosen(self) -> None:
        if (place := self.list.current) is not None:
            self.name.setText(place.title)
            models = self.show_place(place)
            self.rows.show_models(models)
            self.heading.setVisible(bool(models))

    def show_place(self, place: Entry) -> Sequence[Model]:
        """Show the chosen place; return its models."""
        raise NotImplementedError

    def open_sheet(self) -> None:
        """Open the sheet that adds a place."""
        raise NotImplementedError


class PlaceSheet(Sheet):
    """Adds a place, and stays open with the reason while it cannot be added.

    Args:
        window: The sheet stands in front of it.
        theme: The appearance to follow.
        about: The sheet's title, and what a place of this kind is.
        fields: Name, field and explanation of each row.
    """

    def __init__(
        self, window: QWidget, theme: Theme, about: tuple[str, str], fields: Sequence[tuple[str, QLineEdit, str]]
    ) -> None:
        form = form_layout()
        for each in fields:
            add_row(form, *each)
        self.status = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self.status.hide()
        answers = (("Cancel", nothing), ("Add", self._add))
        parts = (SMALL, form, self.status)
        super().__init__(window, theme, *about, answers, parts=parts, stays=True)
        fields[0][1].setFocus()

    def _add(self) -> None:
        """Add what the fields say."""
        raise NotImplementedError

    def take_answer(self, problem: RdchatError | None) -> None:
        """Close the sheet, or show why nothing was added."""
        if not isValid(self):
            return  # It was closed meanwhile.
        if problem is None:
            self.done(0)
        else:
            self.say(visible_text(str(problem)))

    def say(self, text: str, color: str = "danger") -> None:
        """Show why nothing was added, or else what goes on: nothing can be added meanwhile."""
        self.status.show_text(text, color)
        self.buttons[-1].setEnabled(color == "danger")
        self.fit()
