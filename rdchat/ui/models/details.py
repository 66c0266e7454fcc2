"""The details of one model, at the right of both pages: of one on this machine, or of the hub.

From the top: its name, its row of buttons, why it is suggested, the memory it needs, its drafters, its facts (folded),
and for a model of the hub its files and its card.
"""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QScrollArea, QStackedWidget, QWidget

from rdchat.hub import Suggestion, drafter_for, suggestion_of
from rdchat.hub.downloads.download import DownloadFile
from rdchat.inference.api import NO_VISION, ModelCard, ModelSizes
from rdchat.services.models.draft_advice import DraftAdvice
from rdchat.services.models.fit import Model, pair_bytes, sizes_of_files, sizes_read, sizes_suggested
from rdchat.services.models.hub_search import ModelDetails
from rdchat.services.models.larger_model import check_text
from rdchat.services.models.model_services import Models
from rdchat.ui.models import model_texts
from rdchat.ui.models.memory_section import MemorySection, ModelMemory
from rdchat.ui.models.model_row import FileList, ModelRow
from rdchat.ui.models.reading_pane import NoticeView, PageLinks, reading_area
from rdchat.ui.style import (
    MEDIUM,
    SMALL,
    TIGHT,
    ElidedLabel,
    Ground,
    SectionHead,
    Separator,
    TextButton,
    Theme,
    ThemedLabel,
    column,
    discard,
    open_page,
    push_button,
    row,
    set_tip,
    small_text,
)
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextView

# Characters of a card that are shown, as Qt lays out all its text when the window's width changes.
_MAX_OF_CARD = 30_000
_GATED = "Gated: ask its authors for access on the web page, then enter your token."
_VISION = "This is the vision of a model, fetched from its original. The model uses it when it is loaded."
# The least width of the names of facts, so that the values of all forms begin at the same distance. In pixels.
_NAMES_WIDTH = 88
_TOP_LEFT = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop


class SuggestionBox(Ground):
    """Shows why a model is suggested, and its drafter, which has a button of its own once the model is here."""

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        super().__init__(theme, "raised")
        self._models = models
        self._suggestion: Suggestion | None = None
        self.good_for = ThemedLabel(theme, bold=True, wraps=True, selectable=True)
        self.why, self.drafter = (ThemedLabel(theme, wraps=True, selectable=True) for _ in range(2))
        self.download = ModelRow(models, links, theme, in_details=True)
        self.check = small_text(theme, selectable=True)
        reasons = (self.good_for, self.why, SMALL)
        drafter = (self.drafter, self.download, SMALL)
        column(*reasons, *drafter, self.check, within=self, spacing=TIGHT, margins=MEDIUM)

    def show_suggestion(self, suggestion: Suggestion | None) -> None:
        """Show why a model is suggested; without a suggestion the box is hidden. `show_progress` shows its drafter."""
        self.setVisible(suggestion is not None)
        self._suggestion = suggestion
        if suggestion is None:
            return
        self.good_for.setText(suggestion.good_for)
        self.why.setText(suggestion.why)
        self.check.setText(check_text(suggestion))

    def show_progress(self, is_here: bool) -> None:
        """Show the drafter; if the model is here without it, also a button and how far its download is."""
        if self._suggestion is None:
            return
        drafter = self._suggestion.drafter
        has_drafter = drafter.repository in self._models.here.results
        facts = f"{drafter.repository} ({drafter.kind}, {model_texts.size(drafter.weight_bytes)})"
        missing = "not installed" if is_here else "downloaded with the model, and Auto uses it"
        self.drafter.setText(f"Drafter: {facts}. It is {'installed, and Auto uses it' if has_drafter else missing}.")
        self.download.setVisible(is_here and not has_drafter)
        model = Model(drafter.repository, is_model=False, size=drafter.weight_bytes)
        self.download.show_model(self._models.with_download(model))


class FactsForm(QWidget):
    """Names and values."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._rows: Sequence[model_texts.Fact] = ()
        self._labels: list[ThemedLabel] = []
        # A QFormLayout would cut values of several lines.
        self._table = QGridLayout()
        self._table.setHorizontalSpacing(MEDIUM)
        self._table.setVerticalSpacing(TIGHT)
        self._table.setColumnStretch(1, 1)
        column(self._table, within=self)

    def show_rows(self, rows: Sequence[model_texts.Fact]) -> None:
        """Show a row for each fact."""
        if rows == self._rows:
            return
        self._rows = rows
        discard(*self._labels)
        self._labels = []
        for number, (name, value, tip) in enumerate(rows):
            label = ThemedLabel(self._theme, name, "muted")
            label.setMinimumWidth(_NAMES_WIDTH)
            label.setAlignment(_TOP_LEFT)
            field = ThemedLabel(self._theme, value, wraps=True, selectable=True)
            set_tip(label, tip)
            set_tip(field, tip)
            self._table.addWidget(label, number, 0)
            self._table.addWidget(field, number, 1)
            self._labels += label, field


class DetailsPane(QStackedWidget):
    """Shows a model of this machine or of the hub, or a notice in its place.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
        drafters: Shows the drafters of a model on this machine; None where it shows none such.
    """

    def __init__(self, models: Models, links: PageLinks, theme: Theme, drafters: QWidget | None = None) -> None:
        super().__init__()
        self._models = models
        self._model: ModelDetails | ModelCard | None = None
        # The text of the card that is shown; None before the hub has answered, and again for another model.
        self._card: str | None = None
        # The model's page on the hub.
        self._address = ""
        label = partial(ThemedLabel, theme, wraps=True, selectable=True)
        self.notice = NoticeView(links, theme, models.details.retry, links.discover_requested.emit)
        self.name = ElidedLabel(theme, "", points_more=5, bold=True, middle=True)
        self.source = ElidedLabel(theme, "", "muted", middle=True)
        self.name.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.page = TextButton("Open Web Page", theme, lambda: open_page(self._address))
        self.problem = label(color="warning")
        self.token = TextButton("Enter Token…", theme, links.token_requested.emit)
        self.again = TextButton("Try Again", theme, models.details.retry)
        self.vision = TextButton("Get Its Vision…", theme)
        self.row = ModelRow(models, links, theme, in_details=True)
        self.suggestion = SuggestionBox(models, links, theme)
        self.memory = MemorySection(theme)
        self.facts = FactsForm(theme)
        self.fold = SectionHead("Details")
        self.advice = ThemedLabel(theme, "", wraps=True)
        self.follow = push_button("")
        self.files = FileList(theme)
        self.card_text = label(color="muted")
        self.card = TextView(MarkdownParser(), theme, "Model card")
        self.cut = ThemedLabel(theme, "The rest of the card is on the web page.", "muted")
        self._card_parts = QWidget()
        self._draft_parts = QWidget()
        self.area = self._build_scroll(theme, drafters)
        self.addWidget(self.notice)
        self.addWidget(self.area)

    def _build_scroll(self, theme: Theme, drafters: QWidget | None) -> QScrollArea:
        """Lay out the parts of a model in one column that scrolls."""
        access = row((self.problem, 1), self.token, self.again, self.vision, spacing=-1)
        head = column(self.name, row((self.source, 1), self.page), access, spacing=TIGHT)
        files = row(self.files.fold, None)
        offer = column(self.row, self.suggestion)
        advice = row((self.advice, 1), self.follow, spacing=MEDIUM)
        heading = ThemedLabel(theme, "Drafters", "muted", -1, bold=True)
        below = (drafters,) if drafters is not None else ()
        column(heading, advice, *below, within=self._draft_parts, spacing=TIGHT)
        self.fold.toggled.connect(self.facts.setVisible)
        self.fold.setChecked(False)
        details = column(self.fold, self.facts, spacing=TIGHT)
        card = (Separator(theme), MEDIUM, self.card_text, self.card, self.cut)
        column(files, self.files, *card, within=self._card_parts, spacing=TIGHT)
        scroll = reading_area(theme, head, offer, self.memory, self._draft_parts, details, self._card_parts)
        # The keyboard scrolls the card.
        scroll.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        scroll.setAccessibleName("About the model")
        return scroll

    def show_installed(self, model: ModelCard, draft_models: Sequence[ModelCard]) -> None:
        """Show a model on this machine, for which some models can draft; the caller fills `memory`, then the advice."""
        self._model = model
        # The line below the name: why it cannot be loaded or does not see; of a sound drafter, what it is. Where it
        # does not see as a part is missing (`NO_VISION`), a button gets that.
        text = "Finish the download to load this model." if model.is_unfinished else model.problem or model.blind
        if model.is_drafter and not model.problem:
            text = _VISION if model.sees else "This is a drafter. Choose it in the details of its model."
        if model.problem and model.repository:
            text += " Verify finds the damaged files and can download them again."
        self.problem.show_text(text, "danger" if model.problem else "muted")
        self.vision.setVisible(text == NO_VISION)
        self._show_model(
            model.name, f"{model.origin}{model_texts.DOT}{model.path}", "", model_texts.facts_of(model, draft_models)
        )
        for part in (self.suggestion, self._card_parts, self.token, self.again):
            part.hide()
        self.row.show()
        self.show_progress()
        self._draft_parts.setVisible(model.can_be_loaded)
        self.show_advice(DraftAdvice(""))

    def show_advice(self, advice: DraftAdvice) -> None:
        """Show what would make the model faster, with a button for the advice's action if it has one."""
        self.advice.show_text(advice.text)
        self.follow.setText(advice.action.value)
        self.follow.setVisible(bool(advice.action))

    def show_published(self, model: ModelDetails) -> None:
        """Show a model of the hub, as far as it is known; a suggested one also while the hub does not answer."""
        self._model = model
        suggestion = suggestion_of(model.repository)
        if model.trouble is not None and suggestion is None:
            self.setCurrentWidget(self.notice)
            self.notice.show_trouble(model.trouble)
            return
        hub = model.hub
        trouble = str(model.trouble) if model.trouble else ""
        gated = hub is not None and hub.gated
        problem = " ".join(part for part in (_GATED if gated else "", model.problem, trouble) if part)
        self.problem.show_text(problem or ("" if hub else "Loading…"), "warning" if problem else "muted")
        self.again.setVisible(bool(trouble))
        self.vision.hide()
        self.token.setVisible(gated)
        facts = model_texts.hub_facts(hub) if hub is not None else []
        host = self._models.details.host
        source = model_texts.joined(host, hub.licence if hub is not None else "")
        self._show_model(model.repository, source, model.page, facts)
        idle = machine.when_idle if (machine := self._models.machine) is not None else None
        sizes = _sizes(model, suggestion)
        has_answered = model.is_listed or bool(model.problem or model.trouble)
        # Until the hub has answered, the section is hidden, as for a model on this machine without known sizes.
        from_hub = not model.here and (sizes is not None or has_answered)
        drafter_bytes = pair_bytes(model.repository)
        self.memory.show_model(ModelMemory(sizes, idle, drafter_bytes=drafter_bytes, from_hub=from_hub))
        self._draft_parts.hide()
        self._card_parts.show()
        self.suggestion.show_suggestion(suggestion)
        self._show_download(model)
        self._show_card(model)

    def show_progress(self) -> None:
        """Show the model's buttons, and how far its download is."""
        if isinstance(self._model, ModelCard):
            self.row.show_model(self._models.installed(self._model))
        elif self._model is not None and self.area.isVisible():
            self._show_download(self._model)

    def focus_download(self) -> None:
        """Focus the button that downloads or loads, else the link to the page."""
        for button in (self.row.main, self.page):
            if button.isVisibleTo(self) and button.isEnabled():
                button.setFocus(Qt.FocusReason.ShortcutFocusReason)
                return

    def _show_model(self, name: str, source: str, page: str, facts: Sequence[model_texts.Fact]) -> None:
        """Show what every model has; another model than before is shown from its top, without the old one's card."""
        if name != self.name.text():
            self.area.verticalScrollBar().setValue(0)
            self._card = None
            self.card.set_text("")
            self.cut.hide()
        self.name.setText(name)
        self.source.setText(source)
        self._address = page
        self.page.setVisible(bool(page))
        self.facts.show_rows(facts)
        self.fold.setVisible(bool(facts))
        self.setCurrentWidget(self.area)

    def _show_download(self, model: ModelDetails) -> None:
        """Show the buttons, the drafter and the files of a model of the hub, as far as each is known and here."""
        files = model.files
        self.row.setVisible(not (model.problem or model.trouble))
        drafter = drafter_for(model.repository)
        # The drafter of a suggested model is downloaded with it.
        extra = drafter.weight_bytes if drafter and drafter.repository not in self._models.here.results else 0
        state = Model(
            model.repository,
            hub=model.hub,
            is_installed=model.here,
            has_older_version=model.older_here,
            size=files.size + extra if files else 0,
            load_name=model.repository,
            can_start=files is not None,
        )
        model_now = self._models.with_download(state)
        self.row.show_model(model_now)
        self.suggestion.show_progress(model_now.is_installed)
        by_size = sorted(files.files if files else (), key=lambda file: -file.size)
        left_out = files.left_out if files else ()
        more = f", {len(left_out)} left out" if left_out else ""
        listed = [DownloadFile(file.name, file.size, file.size) for file in by_size]
        # While the row lists the files with their progress, a second list would only repeat them.
        repeats = self.row.files.fold.isVisibleTo(self)
        self.files.show_files([] if repeats else listed, more, model_texts.left_out_text(left_out))

    def _show_card(self, model: ModelDetails) -> None:
        """Show the model card, or in words why there is none."""
        if model.card_trouble is not None:
            text = f"The model card could not be loaded. {model.card_trouble}"
        elif model.card is None:
            text = "" if model.trouble else "Loading the model card…"
        else:
            text = "" if model.card.strip() else "This model has no card."
        self.card_text.show_text(text)
        if model.card is not None and model.card != self._card:
            self._card = model.card
            text = model.card[:_MAX_OF_CARD]
            is_long = len(model.card) > _MAX_OF_CARD
            if is_long:
                # Whole lines, unless the first one is too long.
                text = text.rpartition("\n")[0] or text
            self.card.set_text(text)
            self.cut.setVisible(is_long)


def _sizes(model: ModelDetails, suggestion: Suggestion | None) -> ModelSizes | None:
    """Return a model's sizes: from its files, else as estimated from the hub's answer, else from the suggestion."""
    if model.hub is not None and model.files is not None:
        return sizes_of_files(model.hub, model.files)
    estimated = sizes_read(model.hub) if model.hub is not None else None
    return estimated or (sizes_suggested(suggestion) if suggestion else None)
