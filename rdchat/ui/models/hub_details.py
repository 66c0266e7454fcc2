"""The details of one model of the hub: facts, memory, download, files and card."""

from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QScrollArea, QStackedWidget, QWidget

from rdchat.hub.downloads.download import DownloadFile
from rdchat.inference.api.model_facts import ModelSizes
from rdchat.services.models.fit import Machine, sizes_of_files, sizes_read
from rdchat.services.models.hub_search import ModelDetails
from rdchat.services.models.model import Model
from rdchat.services.models.models import Models
from rdchat.services.models.newcomers import Source, Suggestion, suggestions
from rdchat.ui.models import texts
from rdchat.ui.models.model_row import FileList, ModelRow
from rdchat.ui.models.page_parts import NoticeView, PageLinks
from rdchat.ui.style.buttons import TextButton
from rdchat.ui.style.labels import Ground, Separator, ThemedLabel, set_tip
from rdchat.ui.style.layouts import choice_box, column, fill_box, row, scrolled
from rdchat.ui.style.opening import open_page
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TEXT_WIDTH, TIGHT, Theme
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextView

_MAX_OF_CARD = 30_000  # characters: Qt lays out the whole text when the window's width changes
_GATED = "Gated: ask its authors for access on the web page, then enter your token."


class SuggestionBox(Ground):
    """Shows why a model is suggested, and downloads its drafter."""

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        super().__init__(theme, "raised")
        self._models, self._theme = models, theme
        self._drafter: Model | None = None
        self.good_for = ThemedLabel(theme, bold=True, wraps=True, selectable=True)
        self.why, self.drafter = (ThemedLabel(theme, wraps=True, selectable=True) for _ in range(2))
        self.download = ModelRow(models, links, theme, in_details=True)
        self.check = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self._sources = column(spacing=2)
        reasons, drafter = (self.good_for, self.why, SMALL), (self.drafter, self.download, SMALL)
        column(*reasons, *drafter, self.check, self._sources, within=self, spacing=TIGHT, margins=MEDIUM)

    def show_suggestion(self, suggestion: Suggestion | None, here: frozenset[str]) -> None:
        """Show a suggestion; the box is hidden for a model that is not on the list.

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
        known = texts.size(drafter.weight_bytes) or "size unknown"
        self.drafter.setText(f"Its drafter: {drafter.repository} ({drafter.kind}, {known})")
        name, size = drafter.repository, drafter.weight_bytes
        self._drafter = Model(name, is_installed=name in here, is_model=False, size=size)
        self.show_progress()
        self.check.setText(texts.check_text(suggestion.checked, suggestion.chosen))
        self._show_sources(dict.fromkeys((*suggestion.sources, *drafter.sources)))

    def show_progress(self) -> None:
        """Show how far the drafter's download is."""
        if self._drafter is not None:
            self.download.show_model(self._models.with_download(self._drafter))

    def _show_sources(self, sources: dict[Source, None]) -> None:
        while item := self._sources.takeAt(0):
            if (old := item.widget()) is not None:
                old.deleteLater()
        for source in sources:
            link = TextButton(source.url.removeprefix("https://"), self._theme, partial(open_page, source.url))
            set_tip(link, source.says)
            link.setAccessibleDescription(source.says)
            self._sources.addWidget(link, 0, Qt.AlignmentFlag.AlignLeft)


class DetailsView(QStackedWidget):
    """Shows a model, or a notice in its place.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._models = models
        self._model: ModelDetails | None = None
        self._card: str | None = None
        self.notice = NoticeView(links, theme, models.details.retry, None)
        self.name = ThemedLabel(theme, "", points_more=4, bold=True, wraps=True, selectable=True)
        self.publisher = ThemedLabel(theme, "", "muted")
        self.page = TextButton("Open Web Page", theme, lambda: open_page(self._model.page if self._model else ""))
        self.made, self.fit, self.problem, self.card_text = (
            ThemedLabel(theme, "", color, wraps=True, selectable=True) for color in ("text", "text", "warning", "muted")
        )
        self.popularity = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self.token = TextButton("Enter Token…", theme, links.token_requested.emit)
        self.again = TextButton("Try Again", theme, models.details.retry)
        self.gguf = choice_box("GGUF file", "Each file is the whole model, with a different quantisation", letters=0)
        self.download = ModelRow(models, links, theme, in_details=True)
        self.suggestion = SuggestionBox(models, links, theme)
        self.files = FileList(theme)
        self.card = TextView(MarkdownParser(), theme, "Model card")
        self.cut = ThemedLabel(theme, "The rest of the card is on the web page.", "muted")
        self.area = self._build_scroll(theme)
        self.addWidget(self.notice)
        self.addWidget(self.area)
        self.gguf.activated.connect(lambda: models.details.choose(self.gguf.currentData()))
        self.show_model(None, None, frozenset())

    def _build_scroll(self, theme: Theme) -> QScrollArea:
        content, ground = QWidget(), Ground(theme, "surface")
        content.setMaximumWidth(TEXT_WIDTH)
        head, access = row(self.publisher, self.page, None), row((self.problem, 1), self.token, self.again, spacing=-1)
        facts = (self.name, head, TIGHT, self.made, self.popularity, self.fit, access, SMALL)
        files = (row(self.files.fold, None), self.files, TIGHT)
        download = (row(self.gguf, None), TIGHT, self.download, SMALL, self.suggestion, *files)
        card = (Separator(theme), MEDIUM, self.card_text, self.card, self.cut, None)
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
        if model is None:
            self.setCurrentWidget(self.notice)
            more = "Its size, files and card appear here."
            self.notice.show_text("Choose a model", more)
            return
        suggestion = next((each for each in suggestions() if each.repository == model.repository), None)
        if model.trouble is not None and suggestion is None:
            self.setCurrentWidget(self.notice)
            self.notice.show_trouble(model.trouble)
            return
        if before is None or before.repository != model.repository:
            self.area.verticalScrollBar().setValue(0)
            self._card = None
            self.card.set_text("")
            self.cut.hide()
        self._show_facts(model, machine, suggestion)
        self._show_download(model)
        self.suggestion.show_suggestion(suggestion, here)
        self._show_card(model)
        self.setCurrentWidget(self.area)

    def show_progress(self) -> None:
        """Show how far the downloads are."""
        if self._model is not None and self.area.isVisible():
            self._show_download(self._model)
            self.suggestion.show_progress()

    def focus_download(self) -> None:
        """Focus the button that downloads or loads, else the link to the page."""
        for button in (self.download.main, self.page):
            if button.isVisibleTo(self) and button.isEnabled():
                button.setFocus(Qt.FocusReason.ShortcutFocusReason)
                return

    def _show_facts(self, model: ModelDetails, machine: Machine | None, suggestion: Suggestion | None) -> None:
        facts, sizes = model.hub, _sizes(model, suggestion)
        publisher, _, name = model.repository.partition("/")
        self.name.setText(name)
        self.publisher.setText(publisher)
        self.page.setVisible(bool(model.page))
        self.made.show_text(texts.make_text(facts) if facts else "")
        self.popularity.setText(texts.popularity(facts) if facts else "" if model.trouble else "Loading…")
        drafter_bytes = suggestion.drafter.weight_bytes if suggestion else 0
        text, fit = texts.memory_text(sizes, machine, drafter_bytes)
        self.fit.show_text(text if facts or sizes else "", texts.FIT_COLORS[fit] if fit else "muted")
        gated = facts is not None and facts.gated
        trouble = str(model.trouble) if model.trouble else ""
        self.problem.show_text(" ".join(part for part in (_GATED if gated else "", model.problem, trouble) if part))
        self.again.setVisible(bool(trouble))
        self.token.setVisible(gated)

    def _show_download(self, model: ModelDetails) -> None:
        files, several = model.files, len(model.ggufs) > 1
        named = ((f"{file.name}{texts.DOT}{texts.size(file.size)}", file.name) for file in model.ggufs)
        fill_box(self.gguf, named, model.gguf)
        self.gguf.setVisible(several)
        self.download.setVisible(not (model.problem or model.trouble))
        state = Model(
            model.repository,
            hub=model.hub,
            is_installed=model.here,
            has_older_version=model.older_here,
            gguf=model.gguf if several else "",
            size=files.size if files else 0,
            load_name=model.loads,
            can_start=files is not None,
        )
        self.download.show_model(self._models.with_download(state))
        by_size = sorted(files.files if files else (), key=lambda file: -file.size)
        left_out = files.left_out if files else ()
        more = f", {len(left_out)} left out" if left_out else ""
        listed = [DownloadFile(file.name, file.size, file.size) for file in by_size]
        self.files.show_files(listed, more, texts.left_out_text(left_out))

    def _show_card(self, model: ModelDetails) -> None:
        if model.card_trouble is not None:
            text = f"The model card could not be loaded. {model.card_trouble.message} {model.card_trouble.hint}".strip()
        elif model.card is None:
            text = "" if model.trouble else "Loading the model card…"
        else:
            text = "" if model.card.strip() else "This model has no card."
        self.card_text.show_text(text)
        if model.card is not None and model.card != self._card:
            self._card = model.card
            end = model.card.rfind("\n", 0, _MAX_OF_CARD) if len(model.card) > _MAX_OF_CARD else len(model.card)
            self.card.set_text(model.card[: end if end > 0 else _MAX_OF_CARD])
            self.cut.setVisible(len(model.card) > _MAX_OF_CARD)


def _sizes(model: ModelDetails, suggestion: Suggestion | None) -> ModelSizes | None:
    """Return a model's sizes, from its files if they are known."""
    if model.hub is not None and model.files is not None:
        return sizes_of_files(model.hub, model.files)
    estimated = sizes_read(model.hub) if model.hub is not None else None
    return estimated or (suggestion.sizes if suggestion else None)
