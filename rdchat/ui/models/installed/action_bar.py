"""The buttons for the shown model, and a line about the last action."""

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QPushButton, QWidget

from rdchat.errors import RdchatError
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.api.model_facts import ModelCard, gigabytes
from rdchat.services.engine.engine_request import Failure
from rdchat.services.models.installed.model_files import reason_not_to_delete, reason_not_to_verify
from rdchat.services.models.models import Models
from rdchat.ui.models.removal import ResultLine, ask_to_delete
from rdchat.ui.models.texts import key_of, short_name, verdict_text
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.formatting import MACHINE, file_size, load_text
from rdchat.ui.style.labels import set_tip
from rdchat.ui.style.layouts import column, row
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
