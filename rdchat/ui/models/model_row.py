"""`ModelRow`, a model or drafter in any state: its texts, its download, and the two buttons that its state offers.

Downloads, drafters and other computers list such rows (`RowList`); the details of a model have one in place of
their buttons. A row shows a `Model` (in `services.models.fit`), which says where the model is and what is known of it;
the page shows it again whenever that changes.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QCheckBox, QMenu, QPushButton, QToolButton, QWidget
from shiboken6 import isValid

from rdchat.errors import RdchatError
from rdchat.hub import find_endpoint
from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState
from rdchat.inference.api import remote_model
from rdchat.services.models.deletion_and_verification import RemovalQuestion, reason_not_to_delete, reason_not_to_verify
from rdchat.services.models.fit import Model, ModelState
from rdchat.services.models.library import figures_of
from rdchat.services.models.model_services import Models
from rdchat.ui.models import model_texts
from rdchat.ui.models.reading_pane import PageLinks
from rdchat.ui.style import (
    MACHINE,
    MEDIUM,
    SHOW_FOLDER,
    TIGHT,
    Answer,
    ElidedLabel,
    FlatButton,
    IconButton,
    Separator,
    TextButton,
    Theme,
    ThemedLabel,
    ThinBar,
    ask,
    column,
    discard,
    listed,
    open_page,
    push_button,
    row,
    set_tip,
    show_folder,
    show_share,
    small_text,
)
from rdchat.wording import counted, size_text

_COLORS = {DownloadState.FAILED: "danger", DownloadState.FINISHED: "success"}
_PART = "It is for a model, and cannot answer by itself."
_MAX_LISTED_FILES = 300
# Names of beam setups in the card of a trained drafter: W4 L5 is four beams (width) of length five. A row gives the
# figure of the first that the card has.
_SETUPS = ("W4 L5", "W1 L5", "W4 L5 + lookup")


class ModelRow(QWidget):
    """Shows a model and what can be done with it.

    Args:
        models: Downloads, loads, deletes and uses it.
        links: Open the token's dialog.
        theme: The appearance to follow.
        margin: Space at the left and right, in pixels.
        in_details: Whether it stands below the model's own heading: without name and hairline, with its buttons first.

    Attributes:
        main, other: The two buttons of the model's state.
        reveal, verify, delete: What can be done with files on this machine.
    """

    def __init__(
        self, models: Models, links: PageLinks, theme: Theme, margin: int = 0, *, in_details: bool = False
    ) -> None:
        super().__init__()
        self._models = models
        self._model = Model("")
        # Whether Cancel was pressed: once the download has stopped, the person is asked whether to remove its files.
        # That question ends it, and so does a press of another button, or another model in this row.
        self._cancelled = False
        # Why the download could not be started; empty again for another model or another state of it.
        self._start_problem = ""
        self.name = ElidedLabel(theme, "", bold=True, middle=True)
        self.badge = ThemedLabel(theme, "", "success", -1)
        self.facts, self.figures, self.state = (small_text(theme, tabular=True) for _ in range(3))
        self.problem, self.hint = (small_text(theme, tabular=True, selectable=True) for _ in range(2))
        self.bar = ThinBar("Downloaded")
        self.files = FileList(theme)
        self.main, self.other = (push_button("", "", partial(self._press, index)) for index in range(2))
        self.clear = IconButton("close", "", theme, act=lambda: models.downloads.hide_download(self._model.id))
        self.page = push_button("Open Web Page", "", lambda: open_page(self._download.page))
        self.token = push_button("Enter Token…", "", links.token_requested.emit)
        self.reveal, self.verify, self.delete = (QAction(text, self) for text in (SHOW_FOLDER, "Verify", "Delete…"))
        self.reveal.triggered.connect(self._show_folder)
        self.verify.triggered.connect(self._verify)
        self.delete.triggered.connect(self.ask_to_delete)
        self.more = self._tools() if in_details else self._menu_button()
        self._lay_out(theme, margin, in_details=in_details)
        slot = models.slot
        for happened in (slot.load_started, slot.loaded, slot.failed, slot.unload_started, slot.unloaded):
            happened.connect(self._show_state)

    def _lay_out(self, theme: Theme, margin: int, *, in_details: bool) -> None:
        buttons = row(self.main, self.other, self.more, self.clear)
        texts_below = (self.figures, self.problem, self.hint, row(self.page, self.token, None), self.files)
        below = row((self.state, 1), self.files.fold)
        if in_details:
            self.name.hide()
            # The bar takes the place of the button; without it, the buttons stand at the left.
            head = row((self.bar, 1000), buttons, None, self.badge)
            column(head, below, *texts_below, within=self, spacing=TIGHT)
        else:
            head = row((column(row((self.name, 1), self.badge), self.facts, spacing=2), 1), buttons, spacing=MEDIUM)
            margins = (margin, MEDIUM, margin, MEDIUM)
            parts = column(head, self.bar, below, *texts_below, spacing=TIGHT, margins=margins)
            column(parts, Separator(theme), within=self, spacing=0)

    @property
    def file_actions(self) -> tuple[QAction, ...]:
        """What can be done with files on this machine, as buttons or in a menu."""
        return self.reveal, self.verify, self.delete

    def _tools(self) -> QWidget:
        """Return a button for each action on files."""
        tools = QWidget()
        line = row(within=tools, spacing=TIGHT)
        for action in self.file_actions:
            button = FlatButton()
            action.setIconText(action.text())  # Qt would take away the dots
            button.setDefaultAction(action)
            line.addWidget(button)
        return tools

    def _menu_button(self) -> FlatButton:
        menu = QMenu(self)
        button = FlatButton()
        menu.addActions(self.file_actions)
        menu.setToolTipsVisible(True)
        button.setText("More")
        button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        button.setMenu(menu)
        return button

    def show_model(self, model: Model) -> None:
        """Show a model as it is now."""
        if model.is_in_downloads and model.download is self._model.download:
            return  # A state of a download is one object, and is shown already.
        if _version(model) != _version(self._model):
            self._cancelled = False
        if model.id != self._model.id or model.state is not self._model.state:
            self._start_problem = ""
        self._model = model
        name = self._name
        self.name.setText(name)
        set_tip(self.name, model.id if model.card is not None else "")
        self._show_texts()
        self.more.setVisible(model.card is not None)
        self.more.setAccessibleName(f"More for {name}")
        if model.card is not None:
            self.verify.setVisible(not model.drafts)
            tip = "Compare its files with the checksums on Hugging Face"
            _enable(self.verify, reason_not_to_verify(model.card), tip)
            is_downloading = model.state is ModelState.DOWNLOADING
            problem = "Pause the download first." if is_downloading else reason_not_to_delete(model.card)
            _enable(self.delete, problem, "Delete it, after a question")
        self.clear.setVisible(model.is_in_downloads and model.is_installed)
        self.clear.show_as("close", f"Remove {name} from this list")
        self._show_state()
        if self._cancelled and model.state is not ModelState.DOWNLOADING:
            self._ask_to_remove()

    def _show_state(self) -> None:
        self._show_progress()
        self._show_buttons()

    @property
    def _name(self) -> str:
        model = self._model
        chosen = self._models.library.chosen
        if model.is_in_downloads:
            return model_texts.download_title(self._download)
        return model_texts.drafter_name(model.card, [chosen.name] if chosen else ()) if model.card else model.id

    @property
    def _target_is_loaded(self) -> bool:
        """Whether the model that drafters are listed for is the loaded one."""
        target = self._models.library.chosen
        return target is not None and target.is_loaded

    @property
    def _download(self) -> Download:
        """The model's download; without one, one that has not begun."""
        return self._model.download or Download(self._model.id)

    def _show_texts(self) -> None:
        """Show what is known of the model itself: whether it is in use, its facts, and a drafter's measured figure."""
        model = self._model
        library = self._models.library
        badge = ""
        if model.drafts and library.uses(model) and self._target_is_loaded:
            badge = "In use"
        elif model.drafts and model.is_installed and model.card is None:
            # A search on the hub has found a drafter that is here; those listed as here need no such word.
            badge = "Installed"
        self.badge.show_text(badge)
        self.facts.show_text(model_texts.drafter_facts(model) if model.drafts else model.facts)
        set_tip(self.facts, f"Kind: {model.card.kind.label}" if model.card is not None and model.card.kind else "")
        figures = figures_of(model.card.model) if model.card is not None and model.card.is_drafter else {}
        setup = next((setup for setup in _SETUPS if setup in figures), None)
        text = f"{figures[setup]:.1f} tokens per step on questions like those of its training" if setup else ""
        self.figures.show_text(text)

    def _show_progress(self) -> None:
        """Show how far the download is or where the model is, its files, and what is wrong."""
        model = self._model
        download = self._download
        state = model.state
        runs = state is ModelState.DOWNLOADING
        stopped = state is ModelState.STOPPED
        show_share(self.bar, model_texts.share(download))
        self.bar.setVisible(runs or (stopped and download.done_bytes > 0))
        if runs or stopped or model.is_in_downloads:
            self.state.show_text(model_texts.state_text(download), _COLORS.get(download.state, "muted"))
            self.files.show_files(download.files)
        else:
            text = "Installed." if model.card is None and not model.facts else ""
            if self._is_in_use:
                text = "Loading…" if self._models.slot.loading else "In use now."
            self.state.show_text(text if model.is_installed and not model.drafts else "", "success")
            self.files.show_files(())
        self.files.fold.setAccessibleName(f"{self.files.fold.text()}: {self._name}")
        problem, hint = self._problem()
        failed = stopped and download.state is DownloadState.FAILED
        self.problem.show_text(problem, "danger" if self._start_problem or failed else "warning")
        self.hint.show_text(hint)
        self.page.setVisible(bool(hint and download.page))
        self.token.setVisible(bool(hint and download.lack))

    def _problem(self) -> tuple[str, str]:
        """Return what is wrong with the model or its download, and what to do about it; each may be empty.

        A download's problem is shown in any state of the download; a drafter's, why it does not fit the chosen model,
        only while it has no download under way.
        """
        model = self._model
        download = self._download
        if self._start_problem:
            return self._start_problem, ""
        if model.state is ModelState.STOPPED:
            return model_texts.problem_text(download)
        if model.state is ModelState.DOWNLOADING:
            return model_texts.note_text(download), ""
        if model.drafts:
            return model_texts.drafter_problem(model, self._models.library.problem_of(model)), ""
        return download.problem, download.hint

    def _actions(self) -> tuple[Answer, Answer]:
        """Return the text of each of the two buttons, and what it does; an empty text hides the button."""
        model = self._model
        models = self._models
        download = self._download
        match model.state:
            case ModelState.FOUND:
                # A model that is not all here has a card only as an unfinished download.
                newer = " Newer Version," if model.has_older_version else ""
                size = model.size
                start = "Resume" if model.card else f"Download{newer}{f' {size_text(size)}' if size else ''}"
                return (start, self._start), ("Web Page" if model.drafts else "", self._open_page)
            case ModelState.DOWNLOADING:
                return ("Pause", lambda: models.downloads.pause(download.id)), ("Cancel", self._cancel)
            case ModelState.STOPPED:
                resume = "Try Again" if download.state is DownloadState.FAILED else "Resume"
                return (resume, lambda: models.downloads.resume(download.id)), ("Remove", self._ask_to_remove)
        # Installed
        if model.drafts:
            library = models.library
            smaller = model.is_smaller_model
            return (
                ("Use", lambda: library.use(model.id, is_model=smaller)),
                ("Try in a Benchmark…", lambda: library.race(model.id, is_model=smaller)),
            )
        # A row with a card has the folder among its file actions.
        folder = SHOW_FOLDER if model.folder is not None and model.card is None else ""
        return self._load_action(), (folder, self._show_folder)

    def _load_action(self) -> Answer:
        """Return the button that loads or unloads an installed model. A remote one takes no memory here."""
        model = self._model
        slot = self._models.slot
        load, unload = ("Use", "") if remote_model(model.load_name) else ("Load", "Unload")
        if self._is_in_use:
            return "Stop Loading" if slot.loading else unload, slot.unload_model
        return load if model.card or model.load_name else "", self._load

    @property
    def _is_in_use(self) -> bool:
        """Whether it is loaded, or being loaded."""
        model = self._model
        slot = self._models.slot
        if model.card is not None:
            return self._models.library.is_in_use(model.card)
        return bool(model.load_name) and slot.chosen == model.load_name and (slot.loading or slot.info is not None)

    def _show_buttons(self) -> None:
        """Name the buttons, and disable them with a reason where they can do nothing."""
        for button, (text, _) in zip((self.main, self.other), self._actions(), strict=True):
            button.setText(text)
            button.setVisible(bool(text))
            button.setAccessibleName(f"{text}: {self._name}")
            _enable(button)  # `_remove` disabled it, and may have failed
        model = self._model
        library = self._models.library
        if model.state is ModelState.FOUND:
            self.main.setEnabled(model.can_start and not (model.hub is not None and model.hub.problem))
        elif model.state is not ModelState.INSTALLED:
            return
        elif model.drafts:
            reason = library.problem_of(model) if self._target_is_loaded else "Load this model first."
            _enable(self.main, reason or ("It is in use." if library.uses(model) else ""))
            _enable(self.other, reason)
        elif self._is_in_use:
            _enable(self.main, tip="" if self._models.slot.loading else "Free its memory. Chats then have no model.")
        elif model.card is not None:
            _enable(self.main, _PART if model.card.is_drafter else model.card.problem, "Use this model (Return)")

    def load_or_resume(self) -> None:
        """Load the model, or resume its download."""
        if self._model.state is not ModelState.DOWNLOADING and not self._is_in_use and self.main.isEnabled():
            self._press(0)

    def ask_to_delete(self) -> None:
        """Ask whether to delete the files on this machine.

        What a deletion does is found out first; the row may be gone when that is known.
        """

        def confirm(question: RemovalQuestion) -> None:
            if isValid(self) and self.isVisible():
                self._confirm_deletion(question)

        if self._model.card is not None and self.delete.isEnabled():
            self._models.removal.ask_about(self._model.card, confirm)

    def _confirm_deletion(self, question: RemovalQuestion) -> None:
        """Show what a deletion does, and delete the model after a yes; ask again if that has changed meanwhile."""
        models = self._models
        library = models.library
        model = question.model
        name = model_texts.short_name(model.name)
        loaded = library.is_loaded(model)
        sentences = question.question_text(loaded or library.is_used(model), library.targets_of(model))
        title = f"Delete {name} for good?" if question.for_good else f"Delete {name}?"
        title = f"Delete the download of {name}?" if model.is_unfinished else title
        answer = "Unload and Delete" if loaded else "Delete"
        option = None
        if question.tower is not None:
            option = QCheckBox(f"Also delete its vision ({size_text(question.tower.plan.freed_bytes)})")
            option.setChecked(True)

        def delete() -> None:
            without = replace(question, tower=None)
            models.delete(question if option and option.isChecked() else without, self._confirm_deletion)

        ask(self, title, sentences, answer, delete, removes=True, option=option)

    def _press(self, index: int) -> None:
        self._cancelled = False
        self._actions()[index][1]()

    def _start(self) -> None:
        model = self._model
        revision = model.card.revision if model.card is not None else "main"
        try:
            self._models.downloads.start_download(Download(model.id, revision, model.is_model))
        except RdchatError as error:
            self._start_problem = str(error)
            self._show_progress()

    def _load(self) -> None:
        """Load the model; ask first if it is known to be too large."""
        card = self._model.card
        machine = self._models.machine
        slot = self._models.slot
        name, sizes = (card.model or None, card.sizes) if card is not None else (self._model.load_name, None)
        if machine is None or sizes is None or not machine.refuses(sizes):
            slot.load_model(name)
            return
        over = size_text(machine.need(sizes).total_bytes - machine.memory.room.limit_bytes)
        question = f"{model_texts.short_name(self._name)} is too large. Load it anyway?"
        risk = f"It may make {MACHINE} slow, and the system may quit rdchat."
        detail = f"It needs {over} more memory than is available. {risk}"
        ask(self, question, detail, "Load Anyway", lambda: slot.load_model(name, anyway=True))

    def _cancel(self) -> None:
        self._cancelled = True
        self._models.downloads.pause(self._download.id)

    def _ask_to_remove(self) -> None:
        """Ask whether to keep the files of a stopped download for later; without files, remove it at once."""
        self._cancelled = False
        download = self._download
        if self._model.is_installed or self._model.download is None:
            # The download ended before it could be stopped.
            return
        # A pair has a folder once its model is complete. Then only the files of the drafter, its companion, are
        # removed: their names begin with `part`, which is empty for all other downloads.
        part = f"{model_texts.short_name(download.companion)}/" if download.folder else ""
        done_bytes = sum(file.done_bytes for file in download.files if file.name.startswith(part))
        # When the answer comes, the row may show another download.
        remove = partial(self._remove, download.id)
        if not done_bytes:
            remove()
            return
        size = size_text(done_bytes)
        question = f"Keep the {size} so you can resume later?"
        title = model_texts.download_title(download)
        title = f"{download.companion}. The model stays." if part else title
        ask(self, question, title, f"Remove {size}", remove, leave="Keep", removes=True)

    def _remove(self, download: str) -> None:
        for button in (self.main, self.other):
            button.setEnabled(False)
        self._models.downloads.discard(download)

    def _open_page(self) -> None:
        open_page(find_endpoint().page(self._model.id))

    def _show_folder(self) -> None:
        if self._model.folder is not None:
            show_folder(self._model.folder)

    def _verify(self) -> None:
        if self._model.card is not None:
            self._models.verification.verify_model(self._model.card)


def _enable(part: QPushButton | QAction, reason: str = "", tip: str = "") -> None:
    """Enable a button or an entry; with a reason why not, disable it, and give the reason as its tooltip."""
    part.setEnabled(not reason)
    set_tip(part, reason or tip)
    if isinstance(part, QPushButton):
        part.setAccessibleDescription(reason or tip)


def _version(model: Model) -> tuple[str, str]:
    """Return a model's id and its revision: a row that shows another one forgets what was asked of the one before."""
    return model.id, model.card.revision if model.card is not None else ""


class RowList(QWidget):
    """A row for each model. A row stays as long as its model is listed, so that it keeps the focus.

    The arguments are those of `ModelRow`.

    Attributes:
        rows: The rows by the ids of their models.
    """

    def __init__(self, models: Models, links: PageLinks, theme: Theme, margin: int = 0) -> None:
        super().__init__()
        self._make = partial(ModelRow, models, links, theme, margin)
        self._column = column(None, within=self, spacing=0)
        self.rows: dict[str, ModelRow] = {}

    def show_models(self, models: Sequence[Model]) -> None:
        """Show these models."""
        for key in self.rows.keys() - {model.id for model in models}:
            row = self.rows.pop(key)
            self._column.removeWidget(row)
            discard(row)
        for index, model in enumerate(models):
            if model.id not in self.rows:
                self.rows[model.id] = self._make()
            row = self.rows[model.id]
            if self._column.indexOf(row) != index:
                self._column.insertWidget(index, row)
            row.show_model(model)
        self.setVisible(bool(models))


class FileList(ThemedLabel):
    """Lists each file with its size or its progress, one on each line.

    Attributes:
        fold: The button that folds and unfolds the list; the owner places it.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "", "muted", -1, tabular=True, wraps=True, selectable=True)
        self._files: Sequence[DownloadFile] = ()
        self._more = ""
        self._note = ""
        self._open = False
        self.fold = TextButton("", theme, self._toggle)
        self.show_files(())

    def show_files(self, files: Sequence[DownloadFile], more: str = "", note: str = "") -> None:
        """Show these files.

        Args:
            files: The files.
            more: Follows the number of files on the button.
            note: Shown below the list.
        """
        self._files = files
        self._more = more
        self._note = note
        self.fold.setVisible(bool(files))
        self._show()

    def _toggle(self) -> None:
        self._open = not self._open
        self._show()

    def _show(self) -> None:
        self.fold.setText(f"{'Hide' if self._open else 'Show'} {counted(len(self._files), 'file')}{self._more}")
        files = self._files if self._open else ()
        lines = [f"{file.name}: {file.note or model_texts.file_text(file)}" for file in files]
        self.show_text(f"{listed(lines, _MAX_LISTED_FILES, '\n')}\n{self._note}".strip() if lines else "")
