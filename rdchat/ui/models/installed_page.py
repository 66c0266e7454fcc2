"""The Installed page: the models on this machine at the left, the chosen one and its buttons at the right."""

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QMenu, QPushButton, QStackedWidget, QWidget

from rdchat.errors import RdchatError
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.api.model_facts import ModelCard, gigabytes
from rdchat.services.engine.engine_request import Failure
from rdchat.services.models.draft_advice import DraftAction, DraftAdvice, draft_models
from rdchat.services.models.model_files import reason_not_to_delete, reason_not_to_verify
from rdchat.services.models.models import Models
from rdchat.ui.models.installed_details import InstalledDetails
from rdchat.ui.models.page_parts import ModelList, NoticeView, PageLinks, ResultLine, ask_to_delete, two_columns
from rdchat.ui.models.texts import SortBy, entries_of, key_of, short_name, verdict_text
from rdchat.ui.style.buttons import add_action, push_button
from rdchat.ui.style.formatting import MACHINE, counted, file_size, load_text
from rdchat.ui.style.labels import Separator, ThemedLabel, set_tip
from rdchat.ui.style.layouts import SearchField, choice_box, column, row
from rdchat.ui.style.opening import SHOW_FOLDER, ask, show_folder
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme

if TYPE_CHECKING:
    from rdchat.hub.verifying import Verdict

_DRAFTER = "A drafter cannot answer by itself. Choose it on the Drafters page."


class ActionBar(QWidget):
    """Loads, unloads, verifies, reveals and deletes the shown model.

    Args:
        models: The window's services.
        theme: The appearance to follow.
    """

    def __init__(self, models: Models, theme: Theme) -> None:
        super().__init__()
        self._models = models
        self._row: ModelCard | None = None
        self.result = ResultLine(models.removal, theme)
        self.reveal = push_button(SHOW_FOLDER, "", lambda: show_folder(self._model.path))
        self.verify = push_button("Verify", "", lambda: models.verification.start(self._model))
        self.delete = push_button("Delete…", "", self.ask_to_delete)
        self.load = push_button("Load", "", self._press_load)
        buttons = row(self.reveal, self.verify, self.delete, None, self.load)
        column(self.result, buttons, within=self, spacing=TIGHT, margins=(LARGE, SMALL, LARGE, MEDIUM))
        self._connect()

    def _connect(self) -> None:
        slot, verification, show = self._models.slot, self._models.verification, self.result.show_text
        slot.load_progressed.connect(self._on_load_progress)
        slot.loaded.connect(lambda info: show(f"{info.name.rpartition('/')[2]} is loaded.", "success"))
        slot.failed.connect(self._on_load_failed)
        slot.unloaded.connect(self._on_unloaded)
        verification.changed.connect(self._show_verification)
        verification.finished.connect(self._on_verified)
        verification.failed.connect(self._on_verify_failed)

    @property
    def _model(self) -> ModelCard:
        assert self._row is not None
        return self._row

    def show_row(self, row: ModelCard | None) -> None:
        """Set the buttons for a row."""
        if self._row is not None and (row is None or key_of(row) != key_of(self._row)):
            self.result.show_text("")  # it is about the other row
        self._row = row
        if row is None:
            for button in (self.load, self.verify, self.reveal, self.delete):
                button.setEnabled(False)
        else:
            self._offer_load(row)
            _offer(self.reveal, SHOW_FOLDER)
            _offer(self.delete, "Delete…", reason_not_to_delete(row), "Delete it, after a question")
            _offer(
                self.verify, "Verify", reason_not_to_verify(row), "Compare its files with the checksums on Hugging Face"
            )
        self._show_verification()

    def _offer_load(self, model: ModelCard) -> None:
        if self._models.library.is_loaded(model):
            _offer(self.load, "Unload", tip="Free its memory. Chats then have no model.")
        elif self._models.library.is_loading(model):
            _offer(self.load, "Stop Loading")
        elif model.is_unfinished:
            _offer(self.load, "Resume", tip="Resume the download")
        else:
            reason = _DRAFTER if model.is_drafter else model.problem
            _offer(self.load, "Load", reason, "Use this model (Return)")

    def open_row(self) -> None:
        """Load the shown model, or resume its download."""
        row = self._row
        if row is not None and self.load.isEnabled() and not self._models.library.is_in_use(row):
            if row.is_unfinished:
                self._download(row, "The download has resumed. See the Downloads page.")
            else:
                self._load(row)

    def _press_load(self) -> None:
        if self._row is not None and self._models.library.is_in_use(self._row):
            self.result.show_text("Unloading…")
            self._models.slot.unload()
        else:
            self.open_row()

    def _load(self, model: ModelCard) -> None:
        """Load a model; ask first if it is too large."""
        machine, sizes, slot = self._models.machine, model.sizes, self._models.slot
        if machine is None or sizes is None or not machine.refuses(sizes):
            slot.load(model.model or None)
            return
        over = gigabytes(machine.need(sizes).total_bytes - machine.memory.room.limit_bytes)
        ask(
            self,
            f"{short_name(model.name)} is too large. Load it anyway?",
            f"It needs {over} more memory than is available. It may make {MACHINE} slow, and the system may "
            "quit rdchat.",
            "Load Anyway",
            lambda: slot.load(model.model or None, anyway=True),
        )

    def ask_to_delete(self) -> None:
        """Ask whether to delete the shown row."""
        if self._row is not None and self.delete.isEnabled():
            ask_to_delete(self._models, self, self._row)

    def _show_verification(self) -> None:
        model, done = self._models.verification.model, self._models.verification.done_bytes
        if model is not None and self._is_visible(model):
            text = f"Verifying: {file_size(done)} of {file_size(model.disk_bytes)}"
            self.result.show_text(text, link="Stop", act=self._models.verification.stop)
        elif self.result.label.text().startswith("Verifying"):
            self.result.show_text("")

    def _on_verified(self, model: ModelCard, verdict: "Verdict") -> None:
        self._show_verification()
        text, color = verdict_text(verdict)
        text = text if self._is_visible(model) else f"{short_name(model.name)}: {text}"
        if verdict.is_intact or not model.repository:
            self.result.show_text(text, color)
        else:
            damaged = replace(model, revision=verdict.commit or model.revision)  # `main` may have moved since
            note = "The damaged files are downloading again. See the Downloads page."
            self.result.show_text(text, color, "Repair", lambda: self._download(damaged, note))

    def _on_verify_failed(self, model: ModelCard, error: RdchatError) -> None:
        self._show_verification()
        self.result.show_text(str(error) if self._is_visible(model) else f"{short_name(model.name)}: {error}", "danger")

    def _download(self, model: ModelCard, note: str) -> None:
        """Download the damaged and missing files; intact ones are not fetched again."""
        try:
            self._models.downloads.start(model.repository, model.revision, model.gguf)
        except RdchatError as error:
            self.result.show_text(str(error), "danger")
        else:
            self.result.show_text(note)

    def _is_visible(self, model: ModelCard) -> bool:
        return self._row is not None and self._row.path == model.path

    def _on_load_progress(self, progress: LoadProgress) -> None:
        if self._row is not None and self._models.library.is_loading(self._row):
            self.result.show_text(load_text(progress))

    def _on_load_failed(self, failure: Failure) -> None:
        link = "Load Anyway" if failure.can_load_anyway else ""
        self.result.show_text(
            f"{failure.message} {failure.hint}".strip(), "danger", link, self._models.slot.load_anyway
        )

    def _on_unloaded(self, freed: int) -> None:
        self.result.show_text(
            f"Unloaded. {gigabytes(freed)} of memory is free again." if freed else "Unloaded.", "success"
        )


def _offer(button: QPushButton, text: str, reason: str = "", tip: str = "") -> None:
    """Name a button; with a reason it is disabled, and says why."""
    button.setText(text)
    button.setEnabled(not reason)
    set_tip(button, reason or tip)
    button.setAccessibleDescription(reason or tip)


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
        self.details = InstalledDetails(theme, self._follow_advice)
        self.bar = ActionBar(models, theme)
        self.empty = NoticeView(links, theme, None, links.discover_requested.emit)
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
            self.details.show_drafters(row, heads, draft_models(row, library.models))
            self._drafter_bytes = next((head.weights_bytes for head in heads if head.fits_surely), 0)
            self._show_memory()
            self._fitting = heads
            self._advise(row, heads)

    def _renew_advice(self) -> None:
        """Say again what would make the shown model faster, once a search on the hub has ended."""
        row = self.current
        if row is not None and self._fitting is not None and not self._models.hub_drafters.searching:
            self._advise(row, self._fitting)

    def _advise(self, model: ModelCard, heads: tuple[ModelCard, ...]) -> None:
        """Say what would make the shown model faster."""
        hub = self._models.hub_drafters
        published = hub.results if hub.model == model.name and not (hub.searching or hub.problem) else None
        self._advice = self._models.library.advice(model, heads, published)
        self.details.show_advice(self._advice)

    def _follow_advice(self) -> None:
        row, advice = self.current, self._advice
        assert row is not None
        if advice.action is DraftAction.USE:
            self._models.library.use(advice.drafter, is_model=advice.is_model)
            self._models.library.match(row)
        else:
            self._links.advice_followed.emit(row, advice.action)

    def _open_menu(self, position: QPoint) -> None:
        if self.list.itemAt(position) is None:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for button in (self.bar.load, self.bar.reveal, self.bar.verify, self.bar.delete):
            if button.isVisibleTo(self.bar):
                add_action(menu, button.text(), button.click).setEnabled(button.isEnabled())
        menu.popup(self.list.viewport().mapToGlobal(position))
