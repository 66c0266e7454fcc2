"""Everything on this machine that rdchat can run: the list at the left, one model at the right."""

from PySide6.QtCore import QPoint, Qt, QTimer
from PySide6.QtGui import QAction, QHideEvent, QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QMenu, QStackedWidget, QWidget

from rdchat.hub.trash import TrashedModel
from rdchat.inference.api.model_card import ModelCard
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import Ground, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.theme import LARGE, Theme
from rdchat.ui.models.installed.action_bar import ActionBar
from rdchat.ui.models.installed.details import ModelDetails
from rdchat.ui.models.installed.list_pane import ListPane
from rdchat.ui.models.installed.model_actions import ModelActions
from rdchat.ui.models.installed.words import Row

_MEMORY_MS = 5000  # between two looks at what other apps leave
_LIST_WIDTH, _SMALLEST_LIST = 300, 230
_NOTHING = "Choose a model at the left."
_EMPTY = "There is no model on this machine yet.\nFind one on the Discover page, or drop a model folder here."


class InstalledPage(QWidget):
    """Attributes are the parts.

    Args:
        desk: What the window works with.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, theme: Theme) -> None:
        super().__init__()
        self._desk, self._theme = desk, theme
        self.pane = ListPane(theme)
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
        line = Ground(self._theme, "border")
        line.setFixedWidth(1)
        self.pane.setMinimumWidth(_SMALLEST_LIST)
        self.pane.setMaximumWidth(_LIST_WIDTH)
        right = column((self.stack, 1), Separator(self._theme), self.bar, spacing=0)
        row((self.pane, 2), line, (right, 5), within=self, spacing=0)

    def _connect(self) -> None:
        desk, rows = self._desk, self.pane.list
        desk.library.changed.connect(self._show_list)
        desk.memory.changed.connect(lambda: self.details.memory.show_memory(desk.memory.now))
        desk.library.drafters_found.connect(self._show_drafters)
        desk.removal.trash_changed.connect(self._show_list)
        slot = desk.slot
        for happened in (slot.load_started, slot.loaded, slot.failed, slot.unload_started, slot.unloaded):
            happened.connect(self._show_slot)
        rows.chosen.connect(self._show_current)
        rows.load_requested.connect(self.actions_.load)
        rows.delete_requested.connect(self.actions_.delete)
        rows.menu_requested.connect(self._open_menu)
        rows.rows.modelReset.connect(self._say_count)
        self.pane.search.textChanged.connect(self._say_count)
        QShortcut(QKeySequence.StandardKey.Find, self, self.pane.focus_search)

    @property
    def current(self) -> Row | None:
        """What is shown at the right."""
        return self.pane.list.current

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
            self.pane.list.setFocus()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._memory_timer.stop()

    def show_refused(self, words: str) -> None:
        """Say why what was dropped is no model."""
        self.bar.say(words, "danger")

    def _show_list(self) -> None:
        desk, rows = self._desk, self.pane.list
        before = rows.current
        rows.rows.set_rows([*desk.library.models, *desk.removal.trash])
        self._show_loaded()
        if rows.current is None and rows.rows.shown:
            loaded = next((model for model in desk.library.models if desk.library.is_loaded(model)), None)
            self.actions_.select(rows, loaded)
        elif rows.current != before or rows.current is None:
            self._show_current()
        self._say_count()

    def _say_count(self) -> None:
        library, models = self._desk.library, self._desk.library.models
        if library.problem:
            self.pane.say(library.problem)
        elif not library.looked:
            self.pane.say("Looking for models…")
        elif not models:
            self.pane.say("No models yet.")
        elif not self.pane.list.rows.shown:
            self.pane.say("No model has these words.")
        else:
            size = sum(model.disk_bytes for model in models)
            drafters = sum(model.is_drafter for model in models)
            counts = [formatting.counted(len(models) - drafters, "model")]
            counts += [formatting.counted(drafters, "drafter")] if drafters else []
            self.pane.say(", ".join([*counts, formatting.file_size(size)]))
        self._empty.setText(_EMPTY if library.looked and not models else _NOTHING)

    def _show_loaded(self) -> None:
        library = self._desk.library
        self.pane.list.rows.set_loaded(next((model for model in library.models if library.is_loaded(model)), None))

    def _show_slot(self) -> None:
        self._show_loaded()
        self._show_current()

    def _show_current(self) -> None:
        row, library = self.current, self._desk.library
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
