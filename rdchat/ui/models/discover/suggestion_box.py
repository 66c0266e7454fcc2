"""Why a model is in the list for newcomers, and the drafter for it."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from rdchat.services.models.discover.newcomers import Source, Suggestion
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column
from rdchat.ui.look.opening import open_page
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.discover import words
from rdchat.ui.models.discover.download_box import DownloadBox
from rdchat.ui.models.link_button import LinkButton
from rdchat.ui.models.links import PageLinks


class SuggestionBox(QWidget):
    """A card with the reasons; a drafter is downloaded from here."""

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.good_for = ThemedLabel(theme, bold=True, wraps=True, selectable=True)
        self.why, self.drafter = (ThemedLabel(theme, wraps=True, selectable=True) for _ in range(2))
        self.download = DownloadBox(desk.downloads, None, links, theme)
        self.check = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self._sources = column(spacing=2)
        reasons, drafter = (self.good_for, self.why, SMALL), (self.drafter, self.download, SMALL)
        column(*reasons, *drafter, self.check, self._sources, within=self, spacing=TIGHT, margins=MEDIUM)
        theme.changed.connect(self.update)

    def show_suggestion(self, suggestion: Suggestion | None, here: frozenset[str]) -> None:
        """Show the reasons for a model; nothing for one that is not on the list.

        Args:
            suggestion: The model's entry.
            here: Hub ids of what is on this machine.
        """
        self.setVisible(suggestion is not None)
        if suggestion is None:
            return
        drafter = suggestion.drafter
        self.good_for.setText(suggestion.good_for)
        self.why.setText(suggestion.why)
        self.drafter.setText(words.drafter_words(drafter))
        self.download.show_model(drafter.repository, "", drafter.weight_bytes or 0, here=drafter.repository in here)
        self.check.setText(words.check_words(suggestion.checked, suggestion.chosen))
        self._show_sources(dict.fromkeys((*suggestion.sources, *drafter.sources)))

    def _show_sources(self, sources: dict[Source, None]) -> None:
        while item := self._sources.takeAt(0):
            if (old := item.widget()) is not None:
                old.deleteLater()
        for source in sources:
            link = LinkButton(source.url.removeprefix("https://"), self._theme, -1)
            set_tip(link, source.says)
            link.setAccessibleDescription(source.says)
            link.clicked.connect(lambda _checked=False, url=source.url: open_page(url))
            self._sources.addWidget(link, 0, Qt.AlignmentFlag.AlignLeft)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.colors.raised)
        painter.drawRoundedRect(self.rect(), 8, 8)
