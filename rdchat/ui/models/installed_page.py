"""The page "On This Computer": models, downloads and other computers at the left, the chosen one at the right."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, QTimer
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QMenu, QStackedWidget, QWidget

from rdchat.errors import RdchatError
from rdchat.hub.downloads.download import Download
from rdchat.hub.verifying_and_deleting import TrashedFolder
from rdchat.inference.api import ModelCard, ModelPart
from rdchat.services.engine.engine_request import Failure
from rdchat.services.models.deletion_and_verification import RemovalQuestion
from rdchat.services.models.draft_advice import DraftAction, DraftAdvice, draft_models
from rdchat.services.models.model_services import Models
from rdchat.ui.models.computer_pages import ComputerPage
from rdchat.ui.models.details import DetailsPane
from rdchat.ui.models.drafters_section import DraftersSection, MissingPartSheet
from rdchat.ui.models.list_entries import Entry, SortBy, downloads_entry, entries_of, key_of
from rdchat.ui.models.memory_section import ModelMemory
from rdchat.ui.models.model_list import ModelList, two_columns
from rdchat.ui.models.model_texts import short_name, verdict_text
from rdchat.ui.models.reading_pane import PageLinks
from rdchat.ui.models.training_page import TrainingPage
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    SearchField,
    TextButton,
    Theme,
    ThemedLabel,
    add_action,
    choice_box,
    column,
    nothing,
    pop_up,
    push_button,
    row,
    set_tip,
    small_text,
)
from rdchat.wording import counted, size_text

if TYPE_CHECKING:
    from rdchat.hub.verifying_and_deleting import Verdict

_EMPTY = ("No models are installed yet.", "Find one, or drop a model folder here.")


class ResultLine(QWidget):
    """One line at the end of the page: the result of the last action, perhaps with a link; hidden while it is empty.

    By itself it reports loads, verifications and deletions, and what is put back.

    Args:
        models: The window's services.
        theme: The appearance to follow.
    """

    def __init__(self, models: Models, theme: Theme) -> None:
        super().__init__()
        self._models = models
        self._model: ModelCard | None = None
        self.label = ThemedLabel(theme, "", "muted", tabular=True, wraps=True)
        self.link = TextButton("", theme, lambda: self._act())  # noqa: PLW0108  another one with each text
        row((self.label, 1), self.link, within=self)
        self.show_text("")
        slot = models.slot
        verification = models.verification
        show = self.show_text
        models.status.changed.connect(self._show_load)
        slot.loaded.connect(lambda info: show(f"{short_name(info.name)} is loaded.", "success"))
        slot.failed.connect(self._on_load_failed)
        slot.unload_started.connect(lambda: show("Unloading…"))
        slot.unloaded.connect(self._on_unloaded)
        verification.changed.connect(self._show_verification)
        verification.finished.connect(self._on_verified)
        verification.failed.connect(self._on_verify_failed)
        models.removal.removed.connect(self._on_removed)
        models.removal.restored.connect(lambda trashed: show(f"{short_name(trashed.name)} is back.", "success"))
        models.removal.failed.connect(lambda error: show(str(error), "danger"))

    def show_text(self, text: str, color: str = "muted", link: str = "", act: Callable[[], object] = nothing) -> None:
        """Show a text in a colour of `Colors`, and a link that calls `act`."""
        self.label.show_text(text, color)
        self.link.setText(link)
        self.link.setVisible(bool(link))
        self._act = act

    def _on_removed(self, question: RemovalQuestion, deleted: TrashedFolder | None) -> None:
        text = f"Deleted {short_name(question.model.name)}."
        if deleted is None:
            self.show_text(text)
        else:
            self.show_text(text, link="Undo", act=partial(self._models.removal.restore_model, deleted))

    def show_model(self, model: ModelCard | None) -> None:
        """Report about another model: what was shown of the one before goes."""
        if self._model is not None and (model is None or key_of(model) != key_of(self._model)):
            self.show_text("")
        self._model = model
        self._show_verification()

    def _show_verification(self) -> None:
        model = self._models.verification.model
        done = self._models.verification.done_bytes
        if model is not None and self._is_visible(model):
            text = f"Verifying: {size_text(done)} of {size_text(model.disk_bytes)}"
            self.show_text(text, link="Stop", act=self._models.verification.stop_verifying)
        elif self.label.text().startswith("Verifying"):
            self.show_text("")

    def _on_verified(self, model: ModelCard, verdict: "Verdict") -> None:
        """Show the result; if the hub has better files, with a link that repairs the model."""
        self._show_verification()
        text, color = verdict_text(verdict)
        text = self._about(model, text)
        if verdict.is_intact or not model.repository:
            self.show_text(text, color)
        else:
            damaged = replace(model, revision=verdict.commit or model.revision)  # `main` may have moved since
            note = "The damaged files are downloading again. See Downloads."
            self.show_text(text, color, "Repair", lambda: self._download(damaged, note))

    def _on_verify_failed(self, model: ModelCard, error: RdchatError) -> None:
        self._show_verification()
        self.show_text(self._about(model, str(error)), "danger")

    def _download(self, model: ModelCard, note: str) -> None:
        """Download the damaged and missing files; intact ones are not fetched again."""
        try:
            self._models.downloads.start_download(Download(model.repository, model.revision))
        except RdchatError as error:
            self.show_text(str(error), "danger")
        else:
            self.show_text(note)

    def _is_visible(self, model: ModelCard) -> bool:
        return self._model is not None and self._model.path == model.path

    def _about(self, model: ModelCard, text: str) -> str:
        """Return a text about a model, which names a model that is not the visible one."""
        return text if self._is_visible(model) else f"{short_name(model.name)}: {text}"

    def _show_load(self) -> None:
        if self._model is not None and self._models.library.is_loading(self._model):
            self.show_text(self._models.status.value.text)

    def _on_load_failed(self, failure: Failure) -> None:
        link = "Load Anyway" if failure.can_load_anyway else ""
        self.show_text(str(failure), "danger", link, self._models.slot.load_anyway)

    def _on_unloaded(self, freed: int) -> None:
        self.show_text(f"Unloaded. {size_text(freed)} of memory is free again." if freed else "Unloaded.", "success")


class InstalledPage(QWidget):
    """Lists the models, the downloads and other computers, and shows one of them with its actions.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
        downloads: Shows all downloads.
        computers: Each shows one of its computers, whose keys in the list begin with its `kind`.
    """

    def __init__(
        self, models: Models, links: PageLinks, theme: Theme, downloads: QWidget, computers: Sequence[ComputerPage]
    ) -> None:
        super().__init__()
        self._models = models
        self._theme = theme
        self._links = links
        self._computers = computers
        # What shows an entry, by the first word of its key; the details show all others.
        self._parts = {"downloads": downloads} | {page.kind: page for page in computers}
        # What the details show; the list may have a newer card of that model.
        self._visible: ModelCard | None = None
        # What would make the visible model faster.
        self._advice = DraftAdvice("")
        # The drafters that fit the visible model; None until they are known.
        self._fitting: tuple[ModelCard, ...] | None = None
        self.list = ModelList(theme, "Models")
        self.search = SearchField(theme, "Search", "Search models")
        set_tip(self.search, "Search by name, family or place")
        self.sort = choice_box("Sort by", "Which models come first", ((by.value, by) for by in SortBy))
        self.count = small_text(theme)
        self.add = push_button("Add a Computer")
        self.add.setMenu(self._add_menu())
        self.drafters = DraftersSection(models, links, theme, self.show_training)
        self.training = TrainingPage(models.training, models.library, theme, self._show_current)
        self.details = DetailsPane(models, links, theme, self.drafters)
        self.details.follow.clicked.connect(self._follow_advice)
        self.details.vision.clicked.connect(lambda: self.get_vision(self.current))
        self.result = ResultLine(models, theme)
        self._right = QStackedWidget()
        for part in (self.details, self.training, *self._parts.values()):
            self._right.addWidget(part)
        top = row((self.search, 1), self.sort, margins=(MEDIUM, MEDIUM, MEDIUM, SMALL))
        foot = row((self.count, 1), self.add, margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        result = column(self.result, margins=(LARGE, SMALL, LARGE, SMALL))
        column(two_columns(theme, (top, (self.list, 1), foot), [(self._right, 1), result]), within=self)
        self._connect()
        self._show_list()

    def _connect(self) -> None:
        models = self._models
        slot = models.slot
        computers = (each.changed for each in self._computers)
        for changed in (models.library.changed, self.search.textChanged, self.sort.activated, *computers):
            changed.connect(self._show_list)
        for happened in (slot.load_started, slot.loaded, slot.failed, slot.unload_started, slot.unloaded):
            happened.connect(self._show_list)
            happened.connect(self._show_current)
        models.memory.changed.connect(self._show_memory)
        models.library.drafters_listed.connect(self._show_drafters)
        models.hub_drafters.changed.connect(self._renew_advice)
        models.training.taken.connect(self._show_current)
        self.list.chosen.connect(self._on_chosen)
        self.list.opened.connect(self._open_chosen)
        self.list.delete_requested.connect(self._delete_chosen)
        models.downloads.changed.connect(self._show_progress)
        self.list.customContextMenuRequested.connect(self._open_menu)
        for requested in (self.search.returnPressed, self.search.results_requested):
            requested.connect(self.list.choose_first)

    def _add_menu(self) -> QMenu:
        menu = QMenu(self.add)
        for text, page in zip(("With Models of Its Own…", "To Run a Model Together…"), self._computers, strict=True):
            add_action(menu, text, page.open_sheet)
        return menu

    @property
    def current(self) -> ModelCard | None:
        """The model that is selected in the list."""
        item = self.list.current.item if self.list.current is not None else None
        return item if isinstance(item, ModelCard) else None

    def showEvent(self, event: QShowEvent) -> None:
        """Look again each time: other programs download and delete as well."""
        super().showEvent(event)
        self._models.library.look_for_all()
        self._models.memory.ask_again()
        if not event.spontaneous():
            self.list.setFocus()

    def show_part(self, part: QWidget) -> None:
        """Show the downloads, the drafters of the model that answers, or the first computer of a page."""
        of_loaded = part is self.drafters
        for entry in self.list.entries:
            if entry.key and (entry.item == self._loaded if of_loaded else self._part_of(entry) is part):
                self.list.select(entry.key)
                self._show_current()
                break
        if of_loaded:
            QTimer.singleShot(0, self, lambda: self.details.area.ensureWidgetVisible(self.drafters))

    def show_training(self) -> None:
        """Show the training, or the form to start one."""
        self._right.setCurrentWidget(self.training)
        self.training.back.setFocus()

    def get_vision(self, model: ModelCard | None) -> None:
        """Offer the vision of a model's original."""
        if model is not None:
            MissingPartSheet(self._models.parts, model, self._links, self._theme, self, part=ModelPart.VISION).open()

    @property
    def _models_here(self) -> tuple[ModelCard, ...]:
        """The models found last, and the one that answers where it is in another folder."""
        library = self._models.library
        elsewhere = library.loaded is not None and not any(map(library.is_loaded, library.models))
        return (*library.models, library.loaded) if elsewhere and library.loaded else library.models

    @property
    def _loaded(self) -> ModelCard | None:
        return next((model for model in self._models_here if self._models.library.is_loaded(model)), None)

    def _show_list(self) -> None:
        """List the models again; a computer that was just added is chosen, else the loaded or the first model."""
        library = self._models.library
        loaded = self._loaded
        before = {entry.key for entry in self.list.entries}
        entries = entries_of(self._models_here, self.search.text(), self.sort.currentData(), loaded)
        first = [key_of(loaded)] if loaded is not None else []
        first += [entry.key for entry in entries if entry.key]
        added: list[Entry] = []
        if not self.search.text():
            if listed := self._models.downloads.all():
                entries.insert(0, downloads_entry(listed))
            for page in self._computers:
                computers = page.entries
                added += [entry for entry in computers if before and entry.key not in before]
                entries += [Entry("", page.title), *computers] if computers else []
        self.list.show_entries(entries)
        if self.list.current is None:
            keys = {entry.key for entry in entries}
            self.list.select(next((key for key in first if key in keys), ""))
        if added:
            self.list.select(added[0].key)
        if self.current is None or self.current != self._visible:
            self._show_current()
        self.count.show_text(self._count_text())
        if library.looked and not self._models_here:
            self.details.notice.show_text(*_EMPTY, "Find a Model")
        else:
            self.details.notice.show_text("Choose a model at the left.")

    def _count_text(self) -> str:
        """Return how many models there are, or why there are none."""
        library = self._models.library
        models = library.models
        if library.problem:
            return library.problem
        if not library.looked:
            return "Searching for models…"
        if not models:
            return "No models yet."
        if self.search.text() and not self.list.entries:
            return "No model matches your search."
        counts = [counted(sum(not model.is_drafter for model in models), "model")]
        # A drafter's card that sees is a vision tower's: neither is counted, but its bytes are.
        if drafters := sum(model.is_drafter and not model.sees for model in models):
            counts.append(counted(drafters, "drafter"))
        return ", ".join([*counts, size_text(sum(model.disk_bytes for model in models))])

    def _on_chosen(self) -> None:
        # Other apps take and free memory.
        self._models.memory.ask_again()
        self._show_current()

    def _show_current(self) -> None:
        """Show the chosen model in the details, as far as it is known; its drafters follow."""
        row = self.current
        self._visible = row
        self.result.show_model(row)
        entry = self.list.current
        part = self._part_of(entry)
        self._right.setCurrentWidget(part)
        if isinstance(part, ComputerPage) and entry is not None:
            part.show_computer(entry)
        if row is None:
            self.details.setCurrentWidget(self.details.notice)
        else:
            if row.can_be_loaded:
                self.drafters.choose_model(row)
            self.details.show_installed(row, draft_models(row, self._models.library.models))
            self._fitting = None
            self._show_memory()
            if row.can_be_loaded:
                self._models.library.match(row)  # `drafters_listed` follows.

    def _part_of(self, entry: Entry | None) -> QWidget:
        """Return what shows an entry."""
        return self._parts.get(entry.key.partition(" ")[0], self.details) if entry is not None else self.details

    def _open_chosen(self) -> None:
        if self.current is not None:
            self.details.row.load_or_resume()

    def _delete_chosen(self) -> None:
        """Ask whether to delete the chosen model, or to forget the chosen computer."""
        part = self._right.currentWidget()
        if self.current is not None:
            self.details.row.ask_to_delete()
        elif isinstance(part, ComputerPage):
            part.remove.click()

    def _show_progress(self) -> None:
        """Show how far the downloads are."""
        downloads = self._models.downloads.all()
        entry = downloads_entry(downloads)
        is_listed = self.list.row_of(entry.key) >= 0
        if is_listed and downloads:
            self.list.renew(entry)
        elif is_listed != bool(downloads) and not self.search.text():
            self._show_list()
        if self.current is not None and self.current.is_unfinished:
            self.details.show_progress()

    def _show_memory(self) -> None:
        """Show the memory that the chosen model needs, with its drafter once that is known."""
        row = self.current
        models = self._models
        if row is not None:
            info = models.slot.info if models.library.is_loaded(row) else None
            weights = info.weights_bytes if info is not None else None
            # Auto loads the first drafter that surely fits.
            own = next((head.weights_bytes for head in self._fitting or () if head.fits_surely), 0)
            self.details.memory.show_model(
                ModelMemory(row.sizes, models.machine, weights_bytes=weights, drafter_bytes=own)
            )

    def _show_drafters(self, model: ModelCard, heads: tuple[ModelCard, ...]) -> None:
        row = self.current
        if row is not None and row.path == model.path:
            self._fitting = heads
            self._show_memory()
            self._advise(row, heads)

    def _renew_advice(self) -> None:
        """Advise again, with what a search on the hub has found."""
        row = self.current
        if row is not None and self._fitting is not None and not self._models.hub_drafters.searching:
            self._advise(row, self._fitting)

    def _advise(self, model: ModelCard, heads: tuple[ModelCard, ...]) -> None:
        """Show what would make the visible model faster, by its drafters here and those that the hub has published.

        The latter are None if the hub was not searched for this model, or could not be.
        """
        hub = self._models.hub_drafters
        published = hub.results if hub.model == model.name and not (hub.searching or hub.problem) else None
        self._advice = self._models.library.advice(model, heads, published)
        self.details.show_advice(self._advice)

    def _follow_advice(self) -> None:
        """Use a drafter, search the hub for others or for the model's MTP layers, or show the training."""
        row = self.current
        advice = self._advice
        assert row is not None
        if advice.action is DraftAction.USE:
            self._models.library.use(advice.drafter, is_model=advice.is_model)
            self._models.library.match(row)
            return
        follow = {DraftAction.SEARCH: self.drafters.search_once, DraftAction.LAYERS: self.drafters.get_mtp}
        follow.get(advice.action, self.show_training)()

    def _open_menu(self, position: QPoint) -> None:
        if self.current is None or self.list.indexAt(position) != self.list.currentIndex():
            return
        menu = QMenu(self)
        for button in (self.details.row.main, self.details.row.other):
            if button.text():
                add_action(menu, button.text(), button.click).setEnabled(button.isEnabled())
        menu.addActions(self.details.row.file_actions)
        pop_up(menu, self.list.viewport().mapToGlobal(position))
