"""The details of one model of the hub: facts, memory, download, files and card."""

from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtWidgets import QScrollArea, QStackedWidget, QWidget

from rdchat.inference.api.memory_facts import ModelSizes
from rdchat.services.models.discover.fit import Machine, sizes_found, sizes_of_files
from rdchat.services.models.discover.hub_details import ModelDetails
from rdchat.services.models.discover.newcomers import Suggestion
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.labels import Ground, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row, scrolled
from rdchat.ui.look.opening import open_page
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TEXT_WIDTH, TIGHT, Theme
from rdchat.ui.models.discover import words
from rdchat.ui.models.discover.card_view import CardView
from rdchat.ui.models.discover.download_box import DownloadBox
from rdchat.ui.models.discover.files_box import FilesBox
from rdchat.ui.models.discover.suggestion_box import SuggestionBox
from rdchat.ui.models.fields import choice_box
from rdchat.ui.models.link_button import LinkButton
from rdchat.ui.models.links import PageLinks
from rdchat.ui.models.notice_view import NoticeView

_GATED = "Gated: its authors give access on its page, and the hub wants a token."


class DetailsView(QStackedWidget):
    """Shows a model, or a notice in its place.

    Args:
        desk: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._model: ModelDetails | None = None
        self._card: str | None = None
        self.notice = NoticeView(theme)
        self.download = DownloadBox(desk.downloads, desk.slot, links, theme)
        self.suggestion = SuggestionBox(desk, links, theme)
        self.files = FilesBox(theme)
        self.card = CardView(theme)
        self._build_labels()
        self.area = self._build_scroll()
        self.addWidget(self.notice)
        self.addWidget(self.area)
        self.notice.retry_requested.connect(desk.details.retry)
        for token_wanted in (self.notice.token_requested, self.token.clicked):
            token_wanted.connect(links.token_requested)
        self.gguf.activated.connect(lambda: desk.details.choose(self.gguf.currentData()))
        self.card.cut.connect(self.cut.setVisible)
        self.show_nothing()

    def _build_labels(self) -> None:
        theme = self._theme
        self.name = ThemedLabel(theme, points_more=4, bold=True)
        self.publisher = ThemedLabel(theme, "", "muted")
        self.page = LinkButton("Open its page", theme)
        self.fit = ThemedLabel(theme)
        self.made = ThemedLabel(theme)
        self.popularity = ThemedLabel(theme, "", "muted", -1)
        self.access = ThemedLabel(theme, _GATED, "warning")
        self.token = LinkButton("Enter a token…", theme)
        self.problem = ThemedLabel(theme, "", "warning")
        self.gguf = choice_box("GGUF file", "Each file is the whole model in another quantisation", letters=0)
        self.card_words = ThemedLabel(theme, "", "muted")
        self.cut = ThemedLabel(theme, "The card goes on; its page has all of it.", "muted")
        for label in (self.name, self.fit, self.made, self.popularity, self.access, self.problem, self.card_words):
            label.setWordWrap(True)
            label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.page.clicked.connect(lambda: open_page(self._model.page if self._model else ""))

    def _build_scroll(self) -> QScrollArea:
        head = row(self.publisher, self.page, None)
        access = row((self.access, 1), self.token, spacing=-1)
        content = QWidget()
        content.setMaximumWidth(TEXT_WIDTH)
        facts = (self.name, head, TIGHT, self.made, self.popularity, self.fit, access, self.problem, SMALL)
        download = (row(self.gguf, None), TIGHT, self.download, SMALL, self.suggestion, self.files, TIGHT)
        card = (Separator(self._theme), MEDIUM, self.card_words, self.card, self.cut, None)
        margins = (LARGE, LARGE - 4, LARGE, LARGE)
        column(*facts, *download, *card, within=content, spacing=TIGHT, margins=margins)
        ground = Ground(self._theme, "surface")
        row((content, 1000), None, within=ground, spacing=-1)
        scroll = scrolled(ground)
        scroll.setFocusPolicy(Qt.FocusPolicy.StrongFocus)  # the keyboard scrolls the card
        scroll.setAccessibleName("About the model")
        return scroll

    def show_nothing(self) -> None:
        """Say that a model can be chosen."""
        self._model = None
        self.notice.show_words("Choose a model", "Its size, its files and its card are then fetched and shown here.")
        self.setCurrentWidget(self.notice)

    def show_model(
        self,
        model: ModelDetails,
        machine: Machine | None,
        suggestion: Suggestion | None,
        here: frozenset[str],
    ) -> None:
        """Show a model, as far as it is known.

        Args:
            model: That.
            machine: What it is judged by; None where that is not known yet.
            suggestion: The model's entry in the list for newcomers.
            here: Hub ids of what is on this machine.
        """
        another = self._model is None or self._model.repository != model.repository
        self._model = model
        if model.trouble is not None:
            self.notice.show_trouble(model.trouble)
            self.setCurrentWidget(self.notice)
            return
        if another:
            self.area.verticalScrollBar().setValue(0)
            self._card = None
            self.card.show_card("")
            self.cut.hide()
        self._show_facts(model, machine, suggestion)
        self._show_download(model)
        self.suggestion.show_suggestion(suggestion, here)
        self.files.show_files(model.files)
        self._show_card(model)
        self.setCurrentWidget(self.area)

    def focus_download(self) -> None:
        """Focus the button that downloads or loads, else the link to the page."""
        for button in (self.download.button, self.download.load, self.download.more, self.page):
            if button.isVisibleTo(self) and button.isEnabled():
                button.setFocus(Qt.FocusReason.ShortcutFocusReason)
                return

    def _show_facts(self, model: ModelDetails, machine: Machine | None, suggestion: Suggestion | None) -> None:
        publisher, name = words.split_name(model.repository)
        self.name.setText(name)
        self.publisher.setText(publisher)
        self.page.setVisible(bool(model.page))
        facts = model.facts
        self.made.setText(words.make_words(facts) if facts else "")
        self.made.setVisible(facts is not None)
        self.popularity.setText(words.popularity(facts) if facts else "Asking the hub…")
        sizes = _sizes(model, suggestion)
        beside = (suggestion.drafter.weight_bytes or 0) if suggestion else 0
        text, fit = words.memory_words(sizes, machine, beside)
        self.fit.setText(text)
        self.fit.set_color(words.FIT_COLORS[fit] if fit else "muted")
        self.fit.setVisible(bool(text) and (facts is not None or sizes is not None))
        gated = facts is not None and facts.gated
        self.access.setVisible(gated)
        self.token.setVisible(gated)
        self.problem.setText(f"{model.problem} {model.hint}".strip())
        self.problem.setVisible(bool(model.problem))

    def _show_download(self, model: ModelDetails) -> None:
        names = [file.name for file in model.ggufs]
        with QSignalBlocker(self.gguf):
            if [self.gguf.itemData(place) for place in range(self.gguf.count())] != names:
                self.gguf.clear()
                for file in model.ggufs:
                    self.gguf.addItem(f"{file.name}{words.DOT}{words.size(file.size)}", file.name)
            self.gguf.setCurrentIndex(self.gguf.findData(model.gguf))
        self.gguf.setVisible(len(names) > 1)
        self.download.setVisible(not model.problem)
        size = model.files.size if model.files else 0
        only = model.gguf if len(names) > 1 else ""
        self.download.show_model(
            model.repository, only, size, here=model.here, older_here=model.older_here, loads=model.loads
        )
        self.download.button.setEnabled(model.files is not None)

    def _show_card(self, model: ModelDetails) -> None:
        if model.card_trouble is not None:
            text = f"The card could not be read: {model.card_trouble.message} {model.card_trouble.hint}".strip()
        elif model.card is None:
            text = "Reading the model's card…"
        else:
            text = "" if model.card.strip() else "Its authors wrote no card for this model."
        self.card_words.say(text)
        if model.card != self._card and model.card is not None:
            self._card = model.card
            self.card.show_card(model.card)


def _sizes(model: ModelDetails, suggestion: Suggestion | None) -> ModelSizes | None:
    """Return a model's sizes, from its files where they are known."""
    if model.facts is not None and model.files is not None:
        return sizes_of_files(model.facts, model.files)
    found = sizes_found(model.facts) if model.facts is not None else None
    return found or (suggestion.sizes if suggestion else None)
