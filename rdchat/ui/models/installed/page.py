"""The Installed page: the models on this machine at the left, the chosen one at the right."""

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QMenu, QStackedWidget, QWidget

from rdchat.inference.api.model_facts import ModelCard
from rdchat.services.models.installed.draft_advice import DraftAction, DraftAdvice
from rdchat.services.models.models import Models
from rdchat.ui.models.installed.action_bar import ActionBar
from rdchat.ui.models.installed.details import ModelDetails
from rdchat.ui.models.model_list import ModelList, two_columns
from rdchat.ui.models.page_parts import NoticeView, PageLinks
from rdchat.ui.models.texts import SortBy, entries_of, key_of
from rdchat.ui.style.buttons import add_action
from rdchat.ui.style.formatting import counted, file_size
from rdchat.ui.style.labels import Separator, ThemedLabel, set_tip
from rdchat.ui.style.layouts import SearchField, choice_box, column, row
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme

_EMPTY = ("No models are installed yet.", "Find one on the Discover page, or drop a model folder here.")


class InstalledPage(QWidget):
    """Lists the models, and shows one with its actions.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._models, self._theme = models, theme
        self._links = links
        self._visible: ModelCard | None = None
        self._advice = DraftAdvice("")  # for the shown model
        self._fitting: tuple[ModelCard, ...] | None = None  # drafters that fit it; None until they are found
        self._drafter_bytes = 0  # of the drafter that the automatic mode loads with the shown model
        self.list = ModelList(theme, "Models on this machine")
        self.search = SearchField(theme, "Search", "Search models")
        set_tip(self.search, "Search by name, family or place")
        self.sort = choice_box("Sort by", "Which models come first", ((by.value, by) for by in SortBy))
        self.count = ThemedLabel(theme, "", "muted", -1, wraps=True)
        self.count.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.count.setContentsMargins(LARGE, SMALL, LARGE, SMALL)
        self.details = ModelDetails(theme)
        self.bar = ActionBar(models, theme)
        self.empty = NoticeView(links, theme)
        self.empty.action_requested.connect(links.discover_requested)
        self._lay_out()
        self._connect()
        self._show_list()

    def _lay_out(self) -> None:
        self.stack = QStackedWidget()
        self.stack.addWidget(self.empty)
        self.stack.addWidget(self.details)
        top = row((self.search, 1), self.sort, margins=(MEDIUM, MEDIUM, MEDIUM, SMALL))
        left = (top, (self.list, 1), self.count, TIGHT)
        self.splitter = two_columns(self._theme, left, [(self.stack, 1), Separator(self._theme), self.bar])
        column(self.splitter, within=self)

    def _connect(self) -> None:
        models, slot = self._models, self._models.slot
        for changed in (models.library.changed, self.search.textChanged, self.sort.activated):
            changed.connect(self._show_list)
        for happened in (slot.load_started, slot.loaded, slot.failed, slot.unload_started, slot.unloaded):
            happened.connect(self._show_list)
            happened.connect(self._show_current)
        models.memory.changed.connect(self._show_memory)
        models.library.drafters_listed.connect(self._show_drafters)
        models.hub_drafters.changed.connect(self._renew_advice)
        self.details.advice_followed.connect(self._follow_advice)
        self.list.chosen.connect(self._on_chosen)
        self.list.opened.connect(self.bar.open_row)
        self.list.delete_requested.connect(self.bar.ask_to_delete)
        self.list.customContextMenuRequested.connect(self._open_menu)
        for requested in (self.search.returnPressed, self.search.results_requested):
            requested.connect(self.list.choose_first)

    @property
    def current(self) -> ModelCard | None:
        """The row that is shown at the right."""
        return self.list.current.item if self.list.current is not None else None

    def showEvent(self, event: QShowEvent) -> None:
        """Look again each time: other programs download and delete as well."""
        super().showEvent(event)
        self._models.library.look()
        self._models.memory.ask()
        if not event.spontaneous():
            self.list.setFocus()

    def _show_list(self) -> None:
        library, before = self._models.library, self._visible
        loaded = next((model for model in library.models if library.is_loaded(model)), None)
        self.list.show_entries(entries_of(library.models, self.search.text(), self.sort.currentData(), loaded))
        keys = [entry.key for entry in self.list.entries]
        if self.list.current is None and keys:
            self.list.select(key_of(loaded) if loaded is not None and key_of(loaded) in keys else keys[0])
        if self.current is None or self.current != before:
            self._show_current()
        self.count.show_text(self._count_text())
        if library.looked and not library.models:
            self.empty.show_text(*_EMPTY, "Find a Model")
        else:
            self.empty.show_text("Choose a model at the left.")

    def _count_text(self) -> str:
        library, models = self._models.library, self._models.library.models
        if library.problem:
            return library.problem
        if not library.looked:
            return "Searching for models…"
        if not models:
            return "No models yet."
        if not self.list.entries:
            return "No model matches your search."
        drafters = sum(model.is_drafter for model in models)
        counts = [counted(len(models) - drafters, "model"), *([counted(drafters, "drafter")] if drafters else [])]
        return ", ".join([*counts, file_size(sum(model.disk_bytes for model in models))])

    def _on_chosen(self) -> None:
        self._models.memory.ask()  # other apps take and free memory
        self._show_current()

    def _show_current(self) -> None:
        row, library = self.current, self._models.library
        self._visible = row
        self.bar.show_row(row)
        self.stack.setCurrentWidget(self.empty if row is None else self.details)
        if row is not None:
            state = "Loaded" if library.is_loaded(row) else "Loading…" if library.is_loading(row) else ""
            self.details.show_model(row, state)
            self._drafter_bytes, self._fitting = 0, None  # until its drafters are found
            self._show_memory()
            if row.can_be_loaded:
                library.match(row)

    def _show_memory(self) -> None:
        row, models = self.current, self._models
        if row is not None:
            info = models.slot.info if models.library.is_loaded(row) else None
            weights, drafter = info.weights_bytes if info is not None else None, self._drafter_bytes
            self.details.memory.show_model(row, models.machine, weights, drafter)

    def _show_drafters(self, model: ModelCard, heads: tuple[ModelCard, ...]) -> None:
        row, library = self.current, self._models.library
        if row is not None and row.path == model.path:
            fitting, smaller = library.fitting(row, heads, self._models.drafting.drafters), library.draft_models(row)
            self.details.show_drafters(row, fitting, smaller)
            self._drafter_bytes = next((head.weights_bytes for head in fitting if head.fits_surely), 0)
            self._show_memory()
            self._fitting = fitting
            self._advise(row, fitting)

    def _renew_advice(self) -> None:
        """Say again what would make the shown model faster, once a search on the hub has ended."""
        row = self.current
        if row is not None and self._fitting is not None and not self._models.hub_drafters.searching:
            self._advise(row, self._fitting)

    def _advise(self, model: ModelCard, heads: tuple[ModelCard, ...]) -> None:
        """Say what would make the shown model faster."""
        models = self._models
        hub, settings = models.hub_drafters, models.drafting.settings
        published = hub.results if hub.model == model.name and not (hub.searching or hub.problem) else None
        used = settings.draft_model or settings.drafter if models.library.is_loaded(model) else None
        self._advice = models.library.advice(model, heads, published, used)
        self.details.show_advice(self._advice)

    def _follow_advice(self) -> None:
        row, advice = self.current, self._advice
        assert row is not None
        match advice.action:
            case DraftAction.USE:
                self._models.shelf.use(advice.drafter, is_model=advice.is_model)
                self._models.library.match(row)
            case DraftAction.SEARCH:
                self._links.drafters_requested.emit(row)
            case DraftAction.LAYERS:
                self._links.layers_requested.emit(row)
            case DraftAction.TRAIN:
                self._links.training_requested.emit(row)

    def _open_menu(self, position: QPoint) -> None:
        if self.list.itemAt(position) is None:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for button in (self.bar.load, self.bar.reveal, self.bar.verify, self.bar.delete):
            if button.isVisibleTo(self.bar):
                add_action(menu, button.text(), button.click).setEnabled(button.isEnabled())
        menu.popup(self.list.viewport().mapToGlobal(position))
