"""The models on this machine: a list at the left, the chosen model at the right."""

from PySide6.QtCore import QPoint, Qt, QTimer
from PySide6.QtGui import QAction, QHideEvent, QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QMenu, QStackedWidget, QWidget

from rdchat.hub.trash import TrashedModel
from rdchat.inference.api.model_card import ModelCard
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import Ground, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.fields import SearchField, choice_box
from rdchat.ui.models.installed.action_bar import ActionBar
from rdchat.ui.models.installed.details import ModelDetails
from rdchat.ui.models.installed.entries import SortBy, entries_of, key_of
from rdchat.ui.models.installed.model_actions import ModelActions
from rdchat.ui.models.installed.words import Row
from rdchat.ui.models.model_list import ModelList

_MEMORY_MS = 5000  # between two looks at the memory that other apps leave
_LIST_WIDTH, _SMALLEST_LIST = 300, 230
_NOTHING = "Choose a model at the left."
_EMPTY = "There is no model on this machine yet.\nFind one on the Discover page, or drop a model folder here."


class InstalledPage(QWidget):
    """Attributes are the parts.

    Args:
        desk: The window's services.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, theme: Theme) -> None:
        super().__init__()
        self._desk, self._theme = desk, theme
        self._shown: Row | None = None
        self.list = ModelList(theme, "Models on this machine")
        self.search = SearchField(theme, "Search", "Search models")
        set_tip(self.search, "Search names, families and places")
        self.sort = choice_box("Sort by", "What comes first", ((by.value, by) for by in SortBy))
        self.count = ThemedLabel(theme, "", "muted", -1, wraps=True)
        self.details = ModelDetails(theme)
        self.bar = ActionBar(theme)
        self._empty = ThemedLabel(theme, _NOTHING, "muted", 1, wraps=True)
        self._empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._empty.setContentsMargins(2 * LARGE, 0, 2 * LARGE, 0)
        self.actions_ = ModelActions(desk, self.bar, self)
        self._memory_timer = QTimer(self, interval=_MEMORY_MS)
        self._memory_timer.timeout.connect(desk.memory.ask)
        self._lay_out()
        self._connect()
        self._show_list()

    def _lay_out(self) -> None:
        self.stack = QStackedWidget()
        self.stack.addWidget(self._empty)
        self.stack.addWidget(self.details)
        self.count.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.count.setContentsMargins(LARGE, SMALL, LARGE, SMALL)
        self.side = Ground(self._theme, "window")
        self.side.setMinimumWidth(_SMALLEST_LIST)
        self.side.setMaximumWidth(_LIST_WIDTH)
        top = row((self.search, 1), self.sort, margins=(MEDIUM, MEDIUM, MEDIUM, SMALL))
        column(top, (self.list, 1), self.count, within=self.side, spacing=0, margins=(0, 0, 0, TIGHT))
        line = Ground(self._theme, "border")
        line.setFixedWidth(1)
        right = column((self.stack, 1), Separator(self._theme), self.bar, spacing=0)
        row((self.side, 2), line, (right, 5), within=self, spacing=0)

    def _connect(self) -> None:
        desk = self._desk
        desk.library.changed.connect(self._show_list)
        desk.memory.changed.connect(lambda: self.details.memory.show_memory(desk.memory.now))
        desk.library.drafters_found.connect(self._show_drafters)
        desk.removal.trash_changed.connect(self._show_list)
        slot = desk.slot
        for happened in (slot.load_started, slot.loaded, slot.failed, slot.unload_started, slot.unloaded):
            happened.connect(self._show_slot)
        self.list.chosen.connect(self._show_current)
        self.list.opened.connect(self.actions_.load)
        self.list.delete_requested.connect(self.actions_.delete)
        self.list.menu_requested.connect(self._open_menu)
        self.search.textChanged.connect(self._show_list)
        for requested in (self.search.search_requested, self.search.results_requested):
            requested.connect(self.list.choose_first)
        self.sort.activated.connect(self._show_list)
        QShortcut(QKeySequence.StandardKey.Find, self, self._focus_search)

    @property
    def current(self) -> Row | None:
        """The row that is shown at the right."""
        entry = self.list.current
        return entry.item if entry is not None else None

    @property
    def looking(self) -> bool:
        """Whether models are being looked for."""
        return self._desk.library.looking

    def showEvent(self, event: QShowEvent) -> None:
        """Look again each time: other programs download and delete as well."""
        super().showEvent(event)
        self._desk.library.look()
        self._desk.memory.ask()
        self._memory_timer.start()
        self._desk.removal.look()
        if not event.spontaneous():
            self.list.setFocus()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._memory_timer.stop()

    def show_refused(self, words: str) -> None:
        """Say why a dropped file or folder cannot be loaded."""
        self.bar.say(words, "danger")

    def _focus_search(self) -> None:
        self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.search.selectAll()

    def _show_list(self) -> None:
        desk, before = self._desk, self._shown
        loaded = next((model for model in desk.library.models if desk.library.is_loaded(model)), None)
        rows: list[Row] = [*desk.library.models, *desk.removal.trash]
        self.list.show_entries(entries_of(rows, self.search.text(), self.sort.currentData(), loaded))
        if self.list.current is None and self.list.rows.shown:
            keys = [entry.key for entry in self.list.rows.shown]
            self.list.select(key_of(loaded) if loaded is not None and key_of(loaded) in keys else keys[0])
        if self.current is None or self.current != before:
            self._show_current()
        self._show_count()

    def _show_count(self) -> None:
        library, models = self._desk.library, self._desk.library.models
        if library.problem:
            self.count.say(library.problem)
        elif not library.looked:
            self.count.say("Looking for models…")
        elif not models:
            self.count.say("No models yet.")
        elif not self.list.rows.shown:
            self.count.say("No model has these words.")
        else:
            size = sum(model.disk_bytes for model in models)
            drafters = sum(model.is_drafter for model in models)
            counts = [formatting.counted(len(models) - drafters, "model")]
            counts += [formatting.counted(drafters, "drafter")] if drafters else []
            self.count.say(", ".join([*counts, formatting.file_size(size)]))
        self._empty.setText(_EMPTY if library.looked and not models else _NOTHING)

    def _show_slot(self) -> None:
        self._show_list()
        self._show_current()

    def _show_current(self) -> None:
        row, library = self.current, self._desk.library
        self._shown = row
        self.actions_.show_row(row)
        self.stack.setCurrentWidget(self._empty if row is None else self.details)
        if isinstance(row, TrashedModel):
            self.details.show_trashed(row)
        elif row is not None:
            loaded, info = library.is_loaded(row), self._desk.slot.info
            state = "Loaded" if loaded else "Loading…" if library.is_loading(row) else ""
            self.details.show_model(row, state)
            self.details.memory.show_memory(self._desk.memory.now)
            weights = info.weights_bytes if loaded and info is not None else None
            self.details.memory.show_model(row, self._desk.slot.dtype, weights)
            if row.can_be_loaded:
                library.match(row)

    def _show_drafters(self, model: ModelCard, heads: tuple[ModelCard, ...]) -> None:
        row = self.current
        if isinstance(row, ModelCard) and row.path == model.path:
            known = self._desk.library.fitting(row, heads, self._desk.drafting.drafters)
            smaller = self._desk.library.draft_models(row)
            self.details.show_drafters(row, known, smaller)
            self.details.memory.show_drafters(known, smaller)

    def _open_menu(self, place: QPoint) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        bar = self.bar
        for button in (bar.load, bar.reveal, bar.verify, bar.delete):
            if button.isVisibleTo(bar):
                action = QAction(button.text(), menu, enabled=button.isEnabled())
                action.triggered.connect(button.click)
                menu.addAction(action)
        menu.popup(place)
