"""The buttons for the shown model, and a line about the last action."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QPushButton, QWidget

from rdchat.errors import RdchatError
from rdchat.hub.trash import TrashedModel
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.api.memory_facts import Fit, fit_of, gigabytes, memory_need
from rdchat.inference.api.model_card import ModelCard
from rdchat.services.engine.engine_events import Failure
from rdchat.services.models.installed.removal import Removed, reason_not_to_delete
from rdchat.services.models.installed.verification import reason_not_to_verify
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.buttons import TextButton, push_button
from rdchat.ui.look.formatting import file_size, load_words
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import SHOW_FOLDER, ask, show_folder
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.deletion import ask_to_delete
from rdchat.ui.models.installed.words import Row, key_of, short_name, verdict_words
from rdchat.ui.models.progress_line import ProgressLine

if TYPE_CHECKING:
    from rdchat.hub.verifying import Verdict

_NOTHING = "No model is chosen."
_DRAFTER = "It drafts for a model and cannot answer: see the Drafters page."


class ActionBar(QWidget):
    """Loads, unloads, verifies, reveals, deletes and restores the shown model.

    Args:
        desk: The window's services.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, theme: Theme) -> None:
        super().__init__()
        self._desk = desk
        self._row: Row | None = None
        self._on_link: Callable[[], object] = lambda: None
        self.status = ThemedLabel(theme, "", "muted", wraps=True)
        self.action = TextButton("", theme)
        self.action.clicked.connect(self._press_link)
        self.progress = ProgressLine("Progress")
        self.stop = push_button("Stop", "", desk.verification.stop)
        self.reveal = push_button(SHOW_FOLDER, "", self._reveal)
        self.verify = push_button("Verify", "", self._verify)
        self.delete = push_button("Delete…", "", self.ask_to_delete)
        self.load = push_button("Load", "", self._press_load)
        status = row((self.status, 1), self.action)
        running = row((self.progress, 1), self.stop)
        buttons = row(self.reveal, self.verify, self.delete, None, self.load)
        column(status, running, buttons, within=self, spacing=TIGHT, margins=(LARGE, SMALL, LARGE, MEDIUM))
        self._connect()
        self.say("")

    def _connect(self) -> None:
        slot, verification, removal = self._desk.slot, self._desk.verification, self._desk.removal
        slot.load_progressed.connect(self._on_load_progress)
        slot.loaded.connect(lambda info: self.say(f"{info.name.rpartition('/')[2]} is loaded.", "success"))
        slot.failed.connect(self._on_load_failed)
        slot.unloaded.connect(self._on_unloaded)
        for happened in (verification.started, verification.progressed, verification.stopped):
            happened.connect(self._show_verification)
        verification.finished.connect(self._on_verified)
        verification.failed.connect(self._on_verify_failed)
        removal.removed.connect(self._on_removed)
        removal.restored.connect(lambda trashed: self.say(f"{short_name(trashed)} is back.", "success"))
        removal.failed.connect(lambda error: self.say(str(error), "danger"))

    def _press_link(self) -> None:
        self._on_link()

    def say(self, words: str, color: str = "muted", link: str = "", do: Callable[[], object] = lambda: None) -> None:
        """Show the result of an action, with one link; an empty string hides the line."""
        self.status.set_color(color)
        self.status.say(words)
        self.action.setText(link)
        self.action.setVisible(bool(link))
        self._on_link = do

    def show_row(self, row: Row | None) -> None:
        """Set the buttons for a row."""
        if self._row is not None and (row is None or key_of(row) != key_of(self._row)):
            self.say("")  # it was about the other one
        self._row = row
        for button in (self.verify, self.reveal):
            button.setVisible(not isinstance(row, TrashedModel))
        if isinstance(row, TrashedModel):
            _offer(self.load, "Put back")
            in_trash = "" if row.place is None else "It is in the Trash: empty that to delete it for good."
            _offer(self.delete, "Delete for good…", in_trash)
        elif row is None:
            names = {self.load: "Load", self.verify: "Verify", self.reveal: SHOW_FOLDER, self.delete: "Delete…"}
            for button, name in names.items():
                _offer(button, name, _NOTHING)
        else:
            self._offer_load(row)
            _offer(self.reveal, SHOW_FOLDER)
            _offer(self.delete, "Delete…", reason_not_to_delete(row), "Move it to the Trash")
            _offer(self.verify, "Verify", reason_not_to_verify(row), "Hold its files against the hub's checksums")
        self._show_verification()

    def _offer_load(self, model: ModelCard) -> None:
        if self._desk.library.is_loaded(model):
            _offer(self.load, "Unload", tip="Free its memory; the chat then has no model")
        elif self._desk.library.is_loading(model):
            _offer(self.load, "Stop loading")
        elif model.is_unfinished:
            _offer(self.load, "Resume", tip="Go on with its download")
        else:
            reason = _DRAFTER if model.is_drafter else model.problem
            _offer(self.load, "Load", reason, "Have this model answer (Return)")

    def open_row(self) -> None:
        """Load the shown model, resume its download, or restore it."""
        row = self._row
        if isinstance(row, TrashedModel):
            self._desk.removal.restore(row)
        elif row is not None and self.load.isEnabled() and not self._desk.library.is_in_use(row):
            if row.is_unfinished:
                self._download(row, "Its download goes on: see the Downloads page.")
            else:
                self._load(row)

    def _press_load(self) -> None:
        if isinstance(self._row, ModelCard) and self._desk.library.is_in_use(self._row):
            self.say("Unloading…")
            self._desk.slot.unload()
        else:
            self.open_row()

    def _load(self, model: ModelCard) -> None:
        """Load a model; ask first if it is too large."""
        memory, slot = self._desk.memory.now, self._desk.slot
        need = memory_need(model.sizes, slot.dtype, memory.on_gpu) if memory is not None and model.sizes else None
        if memory is None or need is None or fit_of(need, memory.room) is not Fit.TOO_LARGE:
            slot.load(model.model or None)
            return
        over = gigabytes(need.total_bytes - memory.room.limit_bytes)
        ask(
            self,
            f"Load {short_name(model)} although it is too large?",
            f"It needs {over} more memory than this machine gives. The machine may become slow, and the system may end "
            "rdchat.",
            "Load anyway",
            lambda: slot.load(model.model or None, anyway=True),
        )

    def ask_to_delete(self) -> None:
        """Ask whether to delete the shown row."""
        row = self._row
        if row is None or not self.delete.isEnabled():
            return
        if isinstance(row, ModelCard):
            ask_to_delete(self._desk, self, row)
            return
        title, words = f"Delete {short_name(row)} for good?", f"This frees {file_size(row.size)} of the disk."
        delete = lambda: self._desk.removal.delete_for_good(row)  # noqa: E731
        ask(self, title, f"{words} It cannot be undone.", "Delete for good", delete, removes=True)

    def _reveal(self) -> None:
        assert isinstance(self._row, ModelCard)
        if self._row.path.exists():
            show_folder(self._row.path)
        else:
            self.say("It is not there any more.", "danger")
            self._desk.library.look()

    def _verify(self) -> None:
        assert isinstance(self._row, ModelCard)
        self._desk.verification.start(self._row)

    def _show_verification(self) -> None:
        model, done = self._desk.verification.model, self._desk.verification.done_bytes
        shown = model is not None and self._is_shown(model)
        self.progress.setVisible(shown)
        self.stop.setVisible(shown)
        if model is not None and shown:
            self.say(f"Verifying: {file_size(done)} of {file_size(model.disk_bytes)} read")
            self.progress.show_share(min(done / max(model.disk_bytes, 1), 1.0))
        elif self.status.text().startswith("Verifying"):
            self.say("")

    def _on_verified(self, model: ModelCard, verdict: "Verdict") -> None:
        self._show_verification()
        words, color = verdict_words(verdict)
        words = words if self._is_shown(model) else f"{short_name(model)}: {words}"
        if verdict.is_whole or not model.repository:
            self.say(words, color)
        else:
            damaged = replace(model, revision=verdict.commit or model.revision)  # main may be another by now
            note = "What is wrong is fetched again: see the Downloads page."
            self.say(words, color, "Repair", lambda: self._download(damaged, note))

    def _on_verify_failed(self, model: ModelCard, error: RdchatError) -> None:
        self._show_verification()
        self.say(str(error) if self._is_shown(model) else f"{short_name(model)}: {error}", "danger")

    def _download(self, model: ModelCard, note: str) -> None:
        """Download the damaged and missing files; intact ones are not fetched again."""
        try:
            self._desk.downloads.start(model.repository, model.revision, model.gguf)
        except RdchatError as error:
            self.say(str(error), "danger")
        else:
            self.say(note)

    def _is_shown(self, model: ModelCard) -> bool:
        return isinstance(self._row, ModelCard) and self._row.path == model.path

    def _on_load_progress(self, progress: LoadProgress) -> None:
        if isinstance(self._row, ModelCard) and self._desk.library.is_loading(self._row):
            self.say(load_words(progress))

    def _on_load_failed(self, failure: Failure) -> None:
        link = "Load anyway" if failure.can_load_anyway else ""
        self.say(f"{failure.message} {failure.hint}".strip(), "danger", link, self._desk.slot.load_anyway)

    def _on_unloaded(self, freed: int) -> None:
        self.say(f"Unloaded: {gigabytes(freed)} of memory given back." if freed else "Unloaded.", "success")

    def _on_removed(self, removed: Removed) -> None:
        trashed = removed.trashed
        words, undo = f"Deleted {short_name(removed.model)}.", "" if trashed is None else "Undo"
        self.say(words, "muted", undo, lambda: self._desk.removal.restore(trashed) if trashed else None)


def _offer(button: QPushButton, words: str, reason: str = "", tip: str = "") -> None:
    """Name a button; with a reason it is disabled, and says why."""
    button.setText(words)
    button.setEnabled(not reason)
    set_tip(button, reason or tip)
    button.setAccessibleDescription(reason or tip)
