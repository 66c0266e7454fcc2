"""The Installed page: the models on this machine at the left, the chosen one at the right."""

from PySide6.QtCore import QPoint, Qt, QTimer
from PySide6.QtGui import QHideEvent, QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QMenu, QStackedWidget, QWidget

from rdchat.hub.trash import TrashedModel
from rdchat.inference.api.model_card import ModelCard
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.buttons import add_action
from rdchat.ui.look.formatting import counted, file_size
from rdchat.ui.look.labels import Ground, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.fields import SearchField, choice_box
from rdchat.ui.models.installed.action_bar import ActionBar
from rdchat.ui.models.installed.details import ModelDetails
from rdchat.ui.models.installed.words import Row, SortBy, entries_of, key_of
from rdchat.ui.models.model_list import ModelList

_MEMORY_MS = 5000  # between two measurements of the free memory
_LIST_WIDTH, _SMALLEST_LIST = 300, 230
_NOTHING = "Choose a model at the left."
_EMPTY = "There is no model on this machine yet.\nFind one on the Discover page, or drop a model folder here."


class InstalledPage(QWidget):
    """Lists the models, and shows one with its actions.

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
        self.count.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.count.setContentsMargins(LARGE, SMALL, LARGE, SMALL)
        self.details = ModelDetails(theme)
        self.bar = ActionBar(desk, theme)
        self.empty = ThemedLabel(theme, _NOTHING, "muted", 1, wraps=True)
        self.empty.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.empty.setContentsMargins(2 * LARGE, 0, 2 * LARGE, 0)
        self._memory_timer = QTimer(self, interval=_MEMORY_MS)
        self._memory_timer.timeout.connect(desk.memory.ask)
        self._lay_out()
        self._connect()
        self._show_list()

    def _lay_out(self) -> None:
        self.stack = QStackedWidget()
        self.stack.addWidget(self.empty)
        self.stack.addWidget(self.details)
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
        desk, slot = self._desk, self._desk.slot
        for changed in (desk.library.changed, desk.removal.trash_changed, self.search.textChanged, self.sort.activated):
            changed.connect(self._show_list)
        for happened in (slot.load_started, slot.loaded, slot.failed, slot.unload_started, slot.unloaded):
            happened.connect(self._show_slot)
        desk.memory.changed.connect(lambda: self.details.memory.show_memory(desk.memory.now))
        desk.library.drafters_found.connect(self._show_drafters)
        self.list.chosen.connect(self._show_current)
        self.list.opened.connect(self.bar.open_row)
        self.list.delete_requested.connect(self.bar.ask_to_delete)
        self.list.customContextMenuRequested.connect(self._open_menu)
        for requested in (self.search.returnPressed, self.search.results_requested):
            requested.connect(self.list.choose_first)
        find = lambda: self.search.setFocus(Qt.FocusReason.ShortcutFocusReason)  # noqa: E731  selects its text
        QShortcut(QKeySequence.StandardKey.Find, self, find)

    @property
    def current(self) -> Row | None:
        """The row that is shown at the right."""
        return self.list.current.item if self.list.current is not None else None

    def showEvent(self, event: QShowEvent) -> None:
        """Look again each time: other programs download and delete as well."""
        super().showEvent(event)
        self._desk.library.look()
        self._desk.removal.look()
        self._desk.memory.ask()
        self._memory_timer.start()
        if not event.spontaneous():
            self.list.setFocus()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._memory_timer.stop()

    def _show_list(self) -> None:
        library, before = self._desk.library, self._shown
        loaded = next((model for model in library.models if library.is_loaded(model)), None)
        rows: list[Row] = [*library.models, *self._desk.removal.trash]
        self.list.show_entries(entries_of(rows, self.search.text(), self.sort.currentData(), loaded))
        keys = [entry.key for entry in self.list.entries]
        if self.list.current is None and keys:
            self.list.select(key_of(loaded) if loaded is not None and key_of(loaded) in keys else keys[0])
        if self.current is None or self.current != before:
            self._show_current()
        self.count.say(self._count_words())
        self.empty.setText(_EMPTY if library.looked and not library.models else _NOTHING)

    def _count_words(self) -> str:
        library, models = self._desk.library, self._desk.library.models
        if library.problem:
            return library.problem
        if not library.looked:
            return "Looking for models…"
        if not models:
            return "No models yet."
        if not self.list.entries:
            return "No model has these words."
        drafters = sum(model.is_drafter for model in models)
        counts = [counted(len(models) - drafters, "model"), *([counted(drafters, "drafter")] if drafters else [])]
        return ", ".join([*counts, file_size(sum(model.disk_bytes for model in models))])

    def _show_slot(self) -> None:
        self._show_list()
        self._show_current()

    def _show_current(self) -> None:
        row, library = self.current, self._desk.library
        self._shown = row
        self.bar.show_row(row)
        self.stack.setCurrentWidget(self.empty if row is None else self.details)
        if isinstance(row, TrashedModel):
            self.details.show_trashed(row)
        elif row is not None:
            loaded, info = library.is_loaded(row), self._desk.slot.info
            self.details.show_model(row, "Loaded" if loaded else "Loading…" if library.is_loading(row) else "")
            self.details.memory.show_memory(self._desk.memory.now)
            weights = info.weights_bytes if loaded and info is not None else None
            self.details.memory.show_model(row, self._desk.slot.dtype, weights)
            if row.can_be_loaded:
                library.match(row)

    def _show_drafters(self, model: ModelCard, heads: tuple[ModelCard, ...]) -> None:
        row, library = self.current, self._desk.library
        if isinstance(row, ModelCard) and row.path == model.path:
            fitting, smaller = library.fitting(row, heads, self._desk.drafting.drafters), library.draft_models(row)
            self.details.show_drafters(row, fitting, smaller)
            self.details.memory.show_drafters(fitting, smaller)

    def _open_menu(self, place: QPoint) -> None:
        if self.list.itemAt(place) is None:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for button in (self.bar.load, self.bar.reveal, self.bar.verify, self.bar.delete):
            if button.isVisibleTo(self.bar):
                add_action(menu, button.text(), button.click).setEnabled(button.isEnabled())
        menu.popup(self.list.viewport().mapToGlobal(place))
