"""The page Find: searches the hub, and shows the details of one model."""

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QCheckBox, QComboBox, QStackedWidget, QWidget

from rdchat.errors import RdchatError
from rdchat.hub import SortBy, find_endpoint, proxy_of
from rdchat.services.models.hub_search import STEPS, HubQuery, SearchFilters, choices_among
from rdchat.services.models.model_services import Models
from rdchat.ui.models.details import DetailsPane
from rdchat.ui.models.list_entries import Entry, newcomer_entries, results_listed
from rdchat.ui.models.model_list import ModelList, two_columns
from rdchat.ui.models.reading_pane import NoticeView, PageLinks
from rdchat.ui.style import (
    MACHINE,
    MEDIUM,
    SMALL,
    TIGHT,
    ElidedLabel,
    SearchField,
    Separator,
    TextButton,
    Theme,
    choice_box,
    column,
    fill_box,
    row,
    set_tip,
    single_shot,
)
from rdchat.wording import counted

# The hub is asked for a model only after it stays selected this long: arrow keys pass many.
_PASSING_MS = 200
_SORTS: tuple[tuple[str, SortBy], ...] = (
    ("Most downloads", "downloads"),
    ("Most likes", "likes"),
    ("Latest change", "last_modified"),
)
_SIZES = (2, 4, 8, 16, 32, 64)  # GB


class SearchBar(QWidget):
    """The search field, the order and the filters.

    Attributes:
        changed: Emitted when the query or the filters change.
    """

    changed = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        title = "Search models on Hugging Face"
        self.field = SearchField(theme, title, title)
        self.sort = choice_box("Sort by", "Which models come first", _SORTS)
        sizes = (("Any size", None), *((f"Up to {size} GB", size * 10**9) for size in _SIZES))
        self.largest = choice_box("Size", "Size of the weights: about the size of the download", sizes)
        self.quantization = choice_box("Quantisation", "Bits per weight", (("Any quantisation", ""),))
        self.licence = choice_box("Licence", "The licence, as its authors call it", (("Any licence", ""),))
        self.family = choice_box("Family", "The model's architecture", (("Any family", ""),))
        self.fitting = QCheckBox(f"Fits {MACHINE}")
        set_tip(self.fitting, "Hides models that need more memory than is available")
        self.filter_row = QWidget()
        boxes = (self.largest, self.quantization, self.licence, self.family)
        row(*boxes, None, self.fitting, within=self.filter_row)
        column(row((self.field, 1), self.sort), self.filter_row, within=self)
        self.field.textChanged.connect(self.changed)
        self.fitting.toggled.connect(self.changed)
        for box in (self.sort, *boxes):
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
            box.currentIndexChanged.connect(self.changed)

    @property
    def query(self) -> HubQuery:
        """What the hub is asked for."""
        return HubQuery(self.field.text(), self.sort.currentData())

    @property
    def filters(self) -> SearchFilters:
        """Which of the found models are listed; the hub is not asked again for them."""
        return SearchFilters(
            self.largest.currentData(),
            self.quantization.currentData(),
            self.licence.currentData(),
            self.family.currentData(),
            self.fitting.isChecked(),
        )

    def clear_filters(self) -> None:
        """Reset all filters."""
        for box in (self.largest, self.quantization, self.licence, self.family):
            box.setCurrentIndex(0)
        self.fitting.setChecked(False)

    def show_choices(self, choices: tuple[list[str], ...]) -> None:
        """Show the filters, and offer the quantisations, licences and families of the found models.

        A chosen one stays, also if no found model has it.
        """
        self.filter_row.show()
        for box, names in zip((self.quantization, self.licence, self.family), choices, strict=True):
            chosen = box.currentData()
            listed_names = [*names, *([chosen] if chosen and chosen not in names else [])]
            fill_box(box, [(box.itemText(0), ""), *((name, name) for name in listed_names)], chosen)


class DiscoverPage(QWidget):
    """Searches the hub, and shows a list for newcomers until there is something to search for.

    The hub is not asked before the person types or chooses a model.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._models = models
        # What the details show, or will show once it stays selected for `_PASSING_MS`; it may not be in the list.
        self._chosen: Entry | None = None
        self.bar = SearchBar(theme)
        self.list = ModelList(theme, "Models found")
        self.notice = NoticeView(links, theme, models.search.retry, self.bar.clear_filters)
        self.details = DetailsPane(models, links, theme)
        self.foot = ElidedLabel(theme, "", "muted", -1.5)
        self.again = TextButton("Try Again", theme, models.search.retry)
        self._asking = single_shot(self, _PASSING_MS, self._ask_for_chosen)
        self.details.notice.show_text("Choose a model", "Its size, files and card appear here.")
        self._lay_out(theme)
        self._connect()
        self._show_results()

    def _lay_out(self, theme: Theme) -> None:
        self._left = QStackedWidget()
        self._left.addWidget(self.list)
        self._left.addWidget(self.notice)
        foot = row((self.foot, 1), self.again, spacing=-1, margins=(MEDIUM, TIGHT, SMALL, TIGHT))
        left = (TIGHT, (self._left, 1), Separator(theme), foot)
        splitter = two_columns(theme, left, [self.details])
        column(column(self.bar, margins=MEDIUM), Separator(theme), (splitter, 1), within=self, spacing=0)

    def _connect(self) -> None:
        models = self._models
        search = models.search
        self.bar.changed.connect(self._search)
        self.bar.field.returnPressed.connect(lambda: search.search(self.bar.query, at_once=True))
        self.bar.field.results_requested.connect(self.list.choose_first)
        self.list.chosen.connect(self._choose)
        self.list.opened.connect(self._open_chosen)
        self.list.more_requested.connect(search.more)
        search.changed.connect(self._show_results)
        models.details.changed.connect(self._show_details)
        models.downloads.changed.connect(self.details.show_progress)
        for changed in (models.memory.changed, models.slot.loaded, models.here.changed):
            changed.connect(self._show_all)
        for happened in (models.downloads.finished, models.removal.removed, models.removal.restored):
            happened.connect(lambda _what: models.here.search_folders())
            happened.connect(lambda _what: models.details.look_again())

    def open_model(self, repository: str) -> None:
        """Show a model, and ask the hub for it."""
        self.bar.field.clear()
        self.list.select(repository)
        self._choose(Entry(repository, repository))
        self._ask_for_chosen()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._models.here.search_folders()
        self._models.memory.ask_again()
        self._show_all()
        if not self._chosen:
            self.bar.field.setFocus()

    def _search(self) -> None:
        self._models.search.search(self.bar.query)
        self._show_results()

    def _show_all(self) -> None:
        if self.isVisible():
            self._show_results()
            self._show_details()

    def _show_results(self) -> None:
        """List what the search has found and the filters let through; without a search, the list for newcomers."""
        state = self._models.search.state
        here = frozenset(self._models.here.results)
        machine = self._models.machine
        self._left.setCurrentWidget(self.list)
        if not state.query.text.strip():
            self.list.show_entries(newcomer_entries(machine, here))
            self.bar.filter_row.hide()
        else:
            self.bar.show_choices(choices_among(state.results))
            filters = self.bar.filters
            visible = [model for model in state.results if filters.accepts(model, machine)]
            self.list.show_entries(results_listed(visible, machine, here))
            if not visible:
                self._show_notice()
            if not visible or not self.list.verticalScrollBar().maximum():
                # A list that is not full, or is replaced by a notice, cannot be scrolled to ask for more.
                self._models.search.more()
        self.list.select(self._chosen.key if self._chosen else "")
        self.again.setVisible(state.trouble is not None and bool(state.results))
        self.foot.setText(self._foot_text())

    def _show_notice(self) -> None:
        """Show in place of the list why it is empty."""
        state = self._models.search.state
        if state.trouble is not None:
            self.notice.show_trouble(state.trouble)
        elif state.asking or not state.complete:
            self.notice.show_text("Searching…")
        elif state.results:
            self.notice.show_text("The filters hide all models", f"They hide {self._found_text()}.", "Clear Filters")
        else:
            self.notice.show_text("Nothing found", "No MLX models match your search. Try other words.")
        self._left.setCurrentWidget(self.notice)

    def _found_text(self) -> str:
        count = len(self._models.search.state.results)
        return f"the first {count} models" if count >= STEPS[-1] else counted(count, "model")

    def _foot_text(self) -> str:
        """Return how many models are listed; before the first are found, which server a search asks."""
        state = self._models.search.state
        count = len(state.results)
        if count and state.trouble is not None:
            return state.trouble.message
        if count and state.asking:
            return "Loading more…"
        if count and state.complete:
            found = self._found_text()
            return f"{self.list.count()} of {found}" if self.list.count() < count or count >= STEPS[-1] else found
        try:
            endpoint = find_endpoint()
        except RdchatError as error:
            return error.message
        proxy = proxy_of(endpoint)
        who = f"{endpoint.host} (set by HF_ENDPOINT)" if endpoint.is_mirror else endpoint.host
        return f"Searches go to {who}{f' through the proxy {proxy}' if proxy else ''}."

    def _choose(self, entry: Entry) -> None:
        self._chosen = entry
        self._asking.start()

    def _ask_for_chosen(self) -> None:
        self._asking.stop()
        if self._chosen is not None:
            self._models.details.show_model(self._chosen.key, self._chosen.item)

    def _open_chosen(self) -> None:
        if self._asking.isActive():
            self._ask_for_chosen()
        self.details.focus_download()

    def _show_details(self) -> None:
        if self._models.details.model is not None:
            self.details.show_published(self._models.details.model)
