"""The reasons why a model is in the list for newcomers, and its drafter."""

from PySide6.QtCore import Qt

from rdchat.services.models.discover.newcomers import Source, Suggestion
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.labels import Ground, ThemedLabel
from rdchat.ui.look.layouts import column
from rdchat.ui.look.opening import open_page
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.discover import words
from rdchat.ui.models.download_box import DownloadBox
from rdchat.ui.models.links import PageLinks


class SuggestionBox(Ground):
    """Shows the reasons, and downloads the drafter."""

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__(theme, "raised")
        self._theme = theme
        self.good_for = ThemedLabel(theme, bold=True, wraps=True, selectable=True)
        self.why, self.drafter = (ThemedLabel(theme, wraps=True, selectable=True) for _ in range(2))
        self.download = DownloadBox(desk, links, theme)
        self.check = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self._sources = column(spacing=2)
        reasons, drafter = (self.good_for, self.why, SMALL), (self.drafter, self.download, SMALL)
        column(*reasons, *drafter, self.check, self._sources, within=self, spacing=TIGHT, margins=MEDIUM)

    def show_suggestion(self, suggestion: Suggestion | None, here: frozenset[str]) -> None:
        """Show the reasons; the box is hidden for a model that is not on the list.

        Args:
            suggestion: The model's entry; None if it has none.
            here: Hub ids of the models on this machine.
        """
        self.setVisible(suggestion is not None)
        if suggestion is None:
            return
        drafter = suggestion.drafter
        self.good_for.setText(suggestion.good_for)
        self.why.setText(suggestion.why)
        self.drafter.setText(words.drafter_words(drafter))
        here_already, size = drafter.repository in here, drafter.weight_bytes or 0
        self.download.show_model(drafter.repository, size=size, here=here_already, is_model=False)
        self.check.setText(words.check_words(suggestion.checked, suggestion.chosen))
        self._show_sources(dict.fromkeys((*suggestion.sources, *drafter.sources)))

    def _show_sources(self, sources: dict[Source, None]) -> None:
        while item := self._sources.takeAt(0):
            if (old := item.widget()) is not None:
                old.deleteLater()
        for source in sources:
            link = TextButton(source.url.removeprefix("https://"), self._theme)
            set_tip(link, source.says)
            link.setAccessibleDescription(source.says)
            link.clicked.connect(lambda _checked=False, url=source.url: open_page(url))
            self._sources.addWidget(link, 0, Qt.AlignmentFlag.AlignLeft)
