"""The details of one model of the hub: facts, memory, download, files and card."""

from PySide6.QtCore import QSignalBlocker, Qt
from PySide6.QtWidgets import QScrollArea, QStackedWidget, QWidget

from rdchat.hub.downloads.download import DownloadFile
from rdchat.inference.api.memory_facts import ModelSizes
from rdchat.services.models.discover.fit import Machine, sizes_found, sizes_of_files
from rdchat.services.models.discover.hub_details import ModelDetails
from rdchat.services.models.discover.newcomers import Suggestion, suggestions
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.labels import Ground, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row, scrolled
from rdchat.ui.look.opening import open_page
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TEXT_WIDTH, TIGHT, Theme
from rdchat.ui.models.discover import words
from rdchat.ui.models.discover.card_view import CardView
from rdchat.ui.models.discover.suggestion_box import SuggestionBox
from rdchat.ui.models.download_box import DownloadBox
from rdchat.ui.models.fields import choice_box
from rdchat.ui.models.file_list import FileList
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
        self._model: ModelDetails | None = None
        self._card: str | None = None
        self.notice = NoticeView(theme)
        self.name = ThemedLabel(theme, "", points_more=4, bold=True, wraps=True, selectable=True)
        self.publisher = ThemedLabel(theme, "", "muted")
        self.page = TextButton("Open its page", theme)
        self.made, self.fit, self.access, self.problem, self.card_words = (
            ThemedLabel(theme, "", color, wraps=True, selectable=True)
            for color in ("text", "text", "warning", "warning", "muted")
        )
        self.popularity = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self.token = TextButton("Enter a token…", theme)
        self.gguf = choice_box("GGUF file", "Each file is the whole model in another quantisation", letters=0)
        self.download = DownloadBox(desk, links, theme)
        self.suggestion = SuggestionBox(desk, links, theme)
        self.files = FileList(theme)
        self.card = CardView(theme)
        self.cut = ThemedLabel(theme, "The card goes on; its page has all of it.", "muted")
        self.area = self._build_scroll(theme)
        self.addWidget(self.notice)
        self.addWidget(self.area)
        self.notice.retry_requested.connect(desk.details.retry)
        for token_wanted in (self.notice.token_requested, self.token.clicked):
            token_wanted.connect(links.token_requested)
        self.page.clicked.connect(lambda: open_page(self._model.page if self._model else ""))
        self.gguf.activated.connect(lambda: desk.details.choose(self.gguf.currentData()))
        self.card.cut.connect(self.cut.setVisible)
        self.show_model(None, None, frozenset())

    def _build_scroll(self, theme: Theme) -> QScrollArea:
        content, ground = QWidget(), Ground(theme, "surface")
        content.setMaximumWidth(TEXT_WIDTH)
        head, access = row(self.publisher, self.page, None), row((self.access, 1), self.token, spacing=-1)
        facts = (self.name, head, TIGHT, self.made, self.popularity, self.fit, access, self.problem, SMALL)
        files = (row(self.files.fold, None), self.files, TIGHT)
        download = (row(self.gguf, None), TIGHT, self.download, SMALL, self.suggestion, *files)
        card = (Separator(theme), MEDIUM, self.card_words, self.card, self.cut, None)
        margins = (LARGE, LARGE - 4, LARGE, LARGE)
        column(*facts, *download, *card, within=content, spacing=TIGHT, margins=margins)
        row((content, 1000), None, within=ground, spacing=-1)
        scroll = scrolled(ground)
        scroll.setFocusPolicy(Qt.FocusPolicy.StrongFocus)  # the keyboard scrolls the card
        scroll.setAccessibleName("About the model")
        return scroll

    def show_model(self, model: ModelDetails | None, machine: Machine | None, here: frozenset[str]) -> None:
        """Show a model, as far as it is known.

        Args:
            model: The model; None if none is chosen.
            machine: Decides whether it fits; None while that is unknown.
            here: Hub ids of the models on this machine.
        """
        before, self._model = self._model, model
        self.setCurrentWidget(self.notice)
        if model is None:
            more = "Its size, its files and its card are then fetched and shown here."
            self.notice.show_words("Choose a model", more)
            return
        if model.trouble is not None:
            self.notice.show_trouble(model.trouble)
            return
        if before is None or before.repository != model.repository:
            self.area.verticalScrollBar().setValue(0)
            self._card = None
            self.card.show_card("")
            self.cut.hide()
        suggestion = next((each for each in suggestions() if each.repository == model.repository), None)
        self._show_facts(model, machine, suggestion)
        self._show_download(model)
        self.suggestion.show_suggestion(suggestion, here)
        self._show_card(model)
        self.setCurrentWidget(self.area)

    def focus_download(self) -> None:
        """Focus the button that downloads or loads, else the link to the page."""
        for button in (self.download.button, self.download.load, self.download.more, self.page):
            if button.isVisibleTo(self) and button.isEnabled():
                button.setFocus(Qt.FocusReason.ShortcutFocusReason)
                return

    def _show_facts(self, model: ModelDetails, machine: Machine | None, suggestion: Suggestion | None) -> None:
        facts, sizes = model.facts, _sizes(model, suggestion)
        publisher, name = words.split_name(model.repository)
        self.name.setText(name)
        self.publisher.setText(publisher)
        self.page.setVisible(bool(model.page))
        self.made.say(words.make_words(facts) if facts else "")
        self.popularity.setText(words.popularity(facts) if facts else "Asking the hub…")
        drafter_bytes = (suggestion.drafter.weight_bytes or 0) if suggestion else 0
        text, fit = words.memory_words(sizes, machine, drafter_bytes)
        self.fit.say(text if facts or sizes else "")
        self.fit.set_color(words.FIT_COLORS[fit] if fit else "muted")
        gated = facts is not None and facts.gated
        self.access.say(_GATED if gated else "")
        self.token.setVisible(gated)
        self.problem.say(f"{model.problem} {model.hint}".strip())

    def _show_download(self, model: ModelDetails) -> None:
        names, files = [file.name for file in model.ggufs], model.files
        if [self.gguf.itemData(place) for place in range(self.gguf.count())] != names:
            with QSignalBlocker(self.gguf):
                self.gguf.clear()
                for file in model.ggufs:
                    self.gguf.addItem(f"{file.name}{words.DOT}{words.size(file.size)}", file.name)
        self.gguf.setCurrentIndex(self.gguf.findData(model.gguf))
        self.gguf.setVisible(len(names) > 1)
        self.download.setVisible(not model.problem)
        gguf, size = model.gguf if len(names) > 1 else "", files.size if files else 0
        here, older = model.here, model.older_here
        self.download.show_model(model.repository, gguf, size, here=here, older_here=older, loads=model.loads)
        self.download.button.setEnabled(files is not None)
        by_size = sorted(files.files if files else (), key=lambda file: -file.size)
        left_out = files.left_out if files else ()
        more = f", {len(left_out)} left out" if left_out else ""
        shown = [DownloadFile(file.name, file.size, file.size) for file in by_size]
        self.files.show_files(shown, more, words.left_out_words(left_out))

    def _show_card(self, model: ModelDetails) -> None:
        if model.card_trouble is not None:
            text = f"The card could not be read: {model.card_trouble.message} {model.card_trouble.hint}".strip()
        elif model.card is None:
            text = "Reading the model's card…"
        else:
            text = "" if model.card.strip() else "Its authors wrote no card for this model."
        self.card_words.say(text)
        if model.card is not None and model.card != self._card:
            self._card = model.card
            self.card.show_card(model.card)


def _sizes(model: ModelDetails, suggestion: Suggestion | None) -> ModelSizes | None:
    """Return a model's sizes, from its files if they are known."""
    if model.facts is not None and model.files is not None:
        return sizes_of_files(model.facts, model.files)
    found = sizes_found(model.facts) if model.facts is not None else None
    return found or (suggestion.sizes if suggestion else None)
