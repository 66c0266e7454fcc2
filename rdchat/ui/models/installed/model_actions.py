"""Loads, unloads, verifies, shows, deletes and restores the shown model."""

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from rdchat.errors import RdchatError
from rdchat.hub.trash import TrashedModel
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.api.memory_facts import Fit, fit_of, gigabytes, memory_need
from rdchat.inference.api.model_card import ModelCard
from rdchat.services.engine.engine_events import Failure
from rdchat.services.models.installed.removal import Removed, reason_not_to_delete
from rdchat.services.models.installed.verification import reason_not_to_verify
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look import formatting
from rdchat.ui.look.formatting import file_size
from rdchat.ui.look.opening import SHOW_FOLDER, ask, show_folder
from rdchat.ui.models.installed.action_bar import ActionBar
from rdchat.ui.models.installed.entries import key_of
from rdchat.ui.models.installed.words import Row, short_name, verdict_words
from rdchat.ui.models.model_deletion import ModelDeletion

if TYPE_CHECKING:
    from rdchat.hub.verifying import Verdict

_NOTHING = "No model is chosen."
_DRAFTER = "It drafts for a model and cannot answer: see the Drafters page."


class ModelActions(QObject):
    """Sets the buttons for the shown row, and runs their actions.

    Args:
        desk: Does it.
        bar: Its buttons and its line of words.
        window: What questions stand in front of.
    """

    def __init__(self, desk: ModelsDesk, bar: ActionBar, window: QWidget) -> None:
        super().__init__(window)
        self._desk, self._bar, self._window = desk, bar, window
        self._row: Row | None = None
        self._deletion = ModelDeletion(desk, window)
        bar.load.clicked.connect(self._press_load)
        bar.verify.clicked.connect(self._press_verify)
        bar.reveal.clicked.connect(self._reveal)
        bar.delete.clicked.connect(self.delete)
        bar.stop.clicked.connect(desk.verification.stop)
        slot, verification, removal = desk.slot, desk.verification, desk.removal
        slot.load_progressed.connect(self._on_load_progress)
        slot.loaded.connect(lambda info: self._bar.say(f"{info.name.rpartition('/')[2]} is loaded.", "success"))
        slot.failed.connect(self._on_load_failed)
        slot.unloaded.connect(self._on_unloaded)
        for happened in (verification.started, verification.progressed, verification.stopped):
            happened.connect(self._show_verification)
        verification.finished.connect(self._on_verified)
        verification.failed.connect(self._on_verify_failed)
        removal.removed.connect(self._on_removed)
        removal.restored.connect(self._on_restored)
        removal.failed.connect(lambda error: self._bar.say(str(error), "danger"))

    def show_row(self, row: Row | None) -> None:
        """Set the buttons for a row."""
        if self._row is not None and (row is None or key_of(row) != key_of(self._row)):
            self._bar.say("")  # that was about the other one
        self._row = row
        bar = self._bar
        bar.verify.setVisible(not isinstance(row, TrashedModel))
        bar.reveal.setVisible(not isinstance(row, TrashedModel))
        if isinstance(row, TrashedModel):
            bar.offer(bar.load, "Put back")
            in_the_systems = "" if row.place is None else "It is in the Trash: empty that to delete it for good."
            bar.offer(bar.delete, "Delete for good…", in_the_systems)
        elif row is None:
            for button, words in ((bar.load, "Load"), (bar.verify, "Verify"), (bar.reveal, SHOW_FOLDER)):
                bar.offer(button, words, _NOTHING)
            bar.offer(bar.delete, "Delete…", _NOTHING)
        else:
            self._offer(row)
        self._show_verification()

    def _offer(self, model: ModelCard) -> None:
        bar, library = self._bar, self._desk.library
        if library.is_loaded(model):
            bar.offer(bar.load, "Unload", tip="Free its memory; the chat then has no model")
        elif library.is_loading(model):
            bar.offer(bar.load, "Stop loading")
        elif model.is_unfinished:
            bar.offer(bar.load, "Resume", tip="Go on with its download")
        else:
            reason = _DRAFTER if model.is_drafter else model.problem
            bar.offer(bar.load, "Load", reason, "Have this model answer (Return)")
        bar.offer(bar.reveal, SHOW_FOLDER)
        bar.offer(bar.delete, "Delete…", reason_not_to_delete(model), "Move it to the Trash")
        bar.offer(bar.verify, "Verify", reason_not_to_verify(model), "Hold its files against the hub's checksums")

    def load(self) -> None:
        """Load the shown model, or restore a deleted one."""
        row = self._row
        if isinstance(row, TrashedModel):
            self._desk.removal.restore(row)
        elif row is not None and self._bar.load.isEnabled() and not self._is_in_use(row):
            if row.is_unfinished:
                self._download(row, "Its download goes on: see the Downloads page.")
            else:
                self._load(row)

    def _is_in_use(self, model: ModelCard) -> bool:
        return self._desk.library.is_loaded(model) or self._desk.library.is_loading(model)

    def _press_load(self) -> None:
        row = self._row
        if isinstance(row, ModelCard) and self._is_in_use(row):
            self._bar.say("Unloading…")
            self._desk.slot.unload()
        else:
            self.load()

    def _load(self, model: ModelCard) -> None:
        memory, slot = self._desk.memory.now, self._desk.slot
        if memory is not None and model.sizes is not None:
            need = memory_need(model.sizes, slot.dtype, memory.on_gpu)
            if fit_of(need, memory.room) is Fit.TOO_LARGE:
                over = gigabytes(need.total_bytes - memory.room.limit_bytes)
                ask(
                    self._window,
                    f"Load {short_name(model)} although it is too large?",
                    f"It needs {over} more memory than this machine gives. The machine may become slow, and the "
                    "system may end rdchat.",
                    "Load anyway",
                    lambda: slot.load(model.model or None, anyway=True),
                )
                return
        slot.load(model.model or None)

    def delete(self) -> None:
        """Ask whether to delete the shown row."""
        row = self._row
        if isinstance(row, TrashedModel):
            if row.place is not None:
                return
            ask(
                self._window,
                f"Delete {short_name(row)} for good?",
                f"This frees {file_size(row.size)} of the disk. It cannot be undone.",
                "Delete for good",
                lambda: self._desk.removal.delete_for_good(row),
                removes=True,
            )
        elif row is not None and not reason_not_to_delete(row):
            self._deletion.ask(row)

    def _reveal(self) -> None:
        if isinstance(self._row, ModelCard):
            path = self._row.path
            if path.exists():
                show_folder(path)
            else:
                self._bar.say("It is not there any more.", "danger")
                self._desk.library.look()

    def _press_verify(self) -> None:
        if isinstance(self._row, ModelCard):
            self._bar.say("")
            self._desk.verification.start(self._row)

    def _show_verification(self) -> None:
        verification = self._desk.verification
        model, row = verification.model, self._row
        shown = model is not None and isinstance(row, ModelCard) and row.path == model.path
        if model is None or not shown:
            self._bar.show_progress(None)
            if self._bar.status.text().startswith("Verifying"):
                self._bar.say("")
            return
        share = min(verification.done_bytes / max(model.disk_bytes, 1), 1.0)
        self._bar.say(f"Verifying: {file_size(verification.done_bytes)} of {file_size(model.disk_bytes)} read")
        self._bar.show_progress(share)

    def _on_verified(self, model: ModelCard, verdict: "Verdict") -> None:
        self._bar.show_progress(None)
        words, color = verdict_words(verdict)
        if not self._is_shown(model):
            words = f"{short_name(model)}: {words}"
        if not verdict.is_whole and model.repository:
            said = "What is wrong is fetched again: see the Downloads page."
            damaged = replace(model, revision=verdict.commit or model.revision)  # main may be another by now
            self._bar.say(words, color, "Repair", lambda: self._download(damaged, said))
        else:
            self._bar.say(words, color)

    def _on_verify_failed(self, model: ModelCard, error: RdchatError) -> None:
        self._bar.show_progress(None)
        self._bar.say(str(error) if self._is_shown(model) else f"{short_name(model)}: {error}", "danger")

    def _download(self, model: ModelCard, said: str) -> None:
        """Download the damaged and missing files; whole ones are not fetched again."""
        try:
            self._desk.downloads.start(model.repository, model.revision, model.gguf)
        except RdchatError as error:
            self._bar.say(str(error), "danger")
        else:
            self._bar.say(said)

    def _is_shown(self, model: ModelCard) -> bool:
        return isinstance(self._row, ModelCard) and self._row.path == model.path

    def _on_load_progress(self, progress: LoadProgress) -> None:
        row = self._row
        if isinstance(row, ModelCard) and self._desk.library.is_loading(row):
            self._bar.say(formatting.load_words(progress))

    def _on_load_failed(self, failure: Failure) -> None:
        slot = self._desk.slot
        words = f"{failure.message} {failure.hint}".strip()
        if failure.can_load_anyway:
            self._bar.say(words, "danger", "Load anyway", slot.load_anyway)
        else:
            self._bar.say(words, "danger")

    def _on_unloaded(self, freed: int) -> None:
        self._bar.say(f"Unloaded: {gigabytes(freed)} of memory given back." if freed else "Unloaded.", "success")

    def _on_removed(self, removed: Removed) -> None:
        self._desk.library.forget(removed.model)
        self._desk.library.look()
        trashed = removed.trashed
        if trashed is None:
            self._bar.say(f"Deleted {short_name(removed.model)}.")
        else:
            words = f"Deleted {short_name(removed.model)}."
            self._bar.say(words, "muted", "Undo", lambda: self._desk.removal.restore(trashed))

    def _on_restored(self, trashed: TrashedModel) -> None:
        self._desk.library.look()
        self._bar.say(f"{short_name(trashed)} is back.", "success")
