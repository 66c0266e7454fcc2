"""The files of the message that is being written: their chips in the composer, and how files are added and removed."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtGui import QCursor, QResizeEvent
from PySide6.QtWidgets import QMenu, QScrollArea, QWidget

from rdchat import host, mac_desktop
from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import Message, MessagePath
from rdchat.files import FORMATS
from rdchat.inference.library.local_models import seen_size
from rdchat.services.background_work import BackgroundWork
from rdchat.services.chat.chat_prompt import FileText
from rdchat.services.files.pending_files import PendingFile, PendingFiles
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.files.chips import CHIP_HEIGHT, ChipRow, FileChip, Picture, part_text, picture_of
from rdchat.ui.files.image_window import ImageWindow
from rdchat.ui.files.sent_text import FileView, PartSheet
from rdchat.ui.style import (
    TIGHT,
    FileMode,
    PlainField,
    Theme,
    add_action,
    ask_to_open,
    discard,
    lay_out_later,
    pop_up,
    scaled,
    scrolled,
)

# The most lines of chips; more scroll.
_MAX_LINES = 3
# The most refusals that are shown at once, the last ones.
_REFUSALS = 3
MAX_TEXT = 500_000
"""A pasted text of more characters stays a file: Qt needs a second to lay out a megabyte."""
_ENDINGS = " ".join(f"*.{ending}" for each in FORMATS for ending in each.endings)
_FILTERS = ("All Files (*)", f"Images ({_ENDINGS})")


class PendingRow(QScrollArea):
    """The chips of the composer; it takes no room without files, and scrolls beyond three lines.

    Attributes:
        choice_requested: Emitted with a file's id.
    """

    height_changed = Signal()
    choice_requested = Signal(int)
    remove_requested = Signal(int)
    removable = True
    align = 0.0

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.row = ChipRow()
        self._by_id: dict[int, FileChip] = {}
        # Whether there are images, which can be sent without words.
        self.has_images = False
        scrolled(self.row, self).setWidgetResizable(False)
        self.setAccessibleName("Files of this message")
        for widget in (self, self.viewport(), self.row):
            # The composer draws the background.
            widget.setAutoFillBackground(False)
        self.hide()

    def show_files(self, pending: PendingFiles, context: int | None) -> None:
        """Show the open chat's files; `context` is the model's context in tokens, None without a model."""
        old = self._by_id
        self._by_id = {}
        to_shorten = pending.to_shorten
        for file in pending.files:
            chip = old.pop(file.id, None) or self._make(file.id)
            self._by_id[file.id] = chip
            detail, color = chip_text(file, context, too_long=file in to_shorten)
            chip.show_file(file.name, detail, color, tip=_tip(file))
            chip.show_picture(_picture_of(file))
            chip.show_progress((file.fraction or 0.0) if file.read is None else None)
        discard(*old.values())
        self.has_images = bool(pending.images)
        self._show_chips()

    def _show_chips(self) -> None:
        self.row.set_chips(self._by_id.values())
        self.setVisible(bool(self._by_id))
        self._fit()

    def _make(self, file_id: int) -> FileChip:
        chip = FileChip(self._theme, "raised", removable=self.removable, parent=self.row)
        chip.clicked.connect(lambda: self.choice_requested.emit(file_id))
        chip.remove_requested.connect(lambda: self.remove_requested.emit(file_id))
        return chip

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        lay_out_later(self)

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.LayoutRequest:
            self._fit()
        return super().event(event)

    def _fit(self) -> None:
        width = self.width()
        highest = _MAX_LINES * scaled(CHIP_HEIGHT) + 2 * TIGHT + 2
        if (height := self.row.arrange_chips(width, self.align)) > highest:
            # The scroll bar stands beside the chips.
            width = self.viewport().width()
            height = self.row.arrange_chips(width, self.align)
        self.row.resize(width, height)
        visible_height = min(height, highest)
        if visible_height != self.height():
            self.setFixedHeight(visible_height)
            self.height_changed.emit()


class SharedRow(PendingRow):
    """The files of a project, each with how the model gets it; `choice_requested` has a file's index."""

    removable = False
    align = 0.5

    def show_shared(self, files: Sequence[AttachedFile], in_passages: Sequence[AttachedFile] | None) -> None:
        """Show these files, of which some are not whole; None where that is not counted yet.

        A chip may stand for another file than before.
        """
        for index in range(len(self._by_id), len(files)):
            self._by_id[index] = self._make(index)
        discard(*(self._by_id.pop(index) for index in range(len(files), len(self._by_id))))
        for chip, file in zip(self._by_id.values(), files, strict=True):
            detail = "Of the project"
            if in_passages is not None:
                detail = "In passages" if file in in_passages else part_text(file, "Whole file")
            chip.show_file(file.name, detail, tip="Click to have it read whole with your next message.")
        self._show_chips()


class FileAttacher(QObject):
    """Adds files to a message that is written or edited, removes them, and shows them as chips.

    Args:
        controller: Counts and stores the files.
        files: The files of the message.
        chips: Shows them.
        theme: The appearance to follow.
        parent: The window; dialogs stay above it.
        question: Returns the message's text.

    Attributes:
        noted: Emitted with the reason why a file was not added; empty when it no longer holds.
        done: Emitted when a file was added, chosen or removed: typing may go on.
    """

    noted = Signal(str)
    done = Signal()

    def __init__(
        self,
        controller: ChatController,
        files: PendingFiles,
        chips: PendingRow,
        theme: Theme,
        parent: QWidget,
        *,
        question: Callable[[], str],
    ) -> None:
        super().__init__(parent)
        self._controller = controller
        self._files = files
        self._question = question
        self._chips = chips
        self._theme = theme
        self._parent = parent
        self._refusals: list[str] = []
        self._screenshots = BackgroundWork("screenshot", self)
        chips.remove_requested.connect(self._remove)
        chips.choice_requested.connect(self._choose)
        controller.prompt_refused.connect(self._on_prompt_refused)
        self._files.changed.connect(self._show)
        self._files.refused.connect(self._show_refusal)
        controller.model_slot.loaded.connect(self._show)
        self._show()

    def attach_files(self, paths: Sequence[str]) -> None:
        """Attach files, wherever they come from."""
        self._begin_to_add()
        self._files.add_files(paths)
        self.done.emit()

    def add_image(self, image: bytes | Callable[[], bytes]) -> None:
        """Attach an image that was pasted or dropped and is no file: its data, or what returns them on a thread."""
        self._begin_to_add()
        self._files.add_image(image, "Image")
        self.done.emit()

    def add_text(self, text: str) -> bool:
        """Attach a long text that was pasted, unless the message has too many files."""
        return self._files.add_text(text)

    def _begin_to_add(self) -> None:
        self._refusals.clear()
        self.noted.emit("")

    def share_undo(self, field: PlainField) -> None:
        """Have Undo in a text field bring back files that were removed.

        `PlainField.undo` calls `take_back` while the document is unmodified; typing makes it modified.
        """
        field.take_back = partial(self._files.take_back, MAX_TEXT)
        # So Undo brings back the file once what is typed after this is undone.
        self._chips.remove_requested.connect(lambda _id: field.document().setModified(False))

    def offer(self) -> None:
        """Ask for files to attach, for one of the project's, or on a Mac for a part of the screen."""
        if not host.MACOS and not self.shared:
            self.choose_files()
            return
        menu = QMenu(self._parent)
        add_action(menu, "Files…", self.choose_files)
        if host.MACOS:
            add_action(menu, "Screenshot", self._take_screenshot)
        for index, file in enumerate(self.shared):
            add_action(menu, f"Read {file.name} Whole", partial(self.add_shared, index))
        pop_up(menu, QCursor.pos())

    def _take_screenshot(self) -> None:
        # Without data, the person has cancelled it.
        take = lambda png: self.add_image(png) if png else None  # noqa: E731
        self._screenshots.do(mac_desktop.screenshot, take, lambda error: self.noted.emit(str(error)))

    @property
    def shared(self) -> Sequence[AttachedFile]:
        """The files of the open chat's project."""
        chat = self._controller.chat
        return chat.replies.order.files(chat.conversation)

    def add_shared(self, index: int) -> None:
        """Attach a file of the project, so that it is read whole, unless the message has it."""
        self._begin_to_add()
        file = self.shared[index]
        if file not in [each.file for each in self._files.files]:
            with self._controller.storage.reading():
                self._files.restore_files([(file, self._controller.replies.file_text(file))])
        self.done.emit()

    def choose_files(self) -> None:
        """Ask for files to attach."""
        ask_to_open(self._parent, "Attach Files", FileMode.ExistingFiles, self.attach_files, _FILTERS, accept="Attach")

    def view(self, file: AttachedFile, path: MessagePath, text_of: FileText) -> None:
        """Show an image among those of a path, or what was sent of another file."""
        if (picture := picture_of(file, text_of)) is not None:
            # A copy of the path, as it reads messages that were not needed yet, and does so on a thread.
            self._open(picture, partial(_pictures_on, path[:], text_of))
        else:
            FileView(file, text_of, self._theme, self._parent.window()).show()

    def _open(self, picture: Picture, find: Callable[[], list[Picture]]) -> None:
        info = self._controller.model_slot.info
        cap = self._controller.settings.values.image_cap
        folder = info.path if info and info.sees else None
        seen = lambda each: seen_size(folder, each.size.width(), each.size.height(), cap)  # noqa: E731
        ImageWindow(picture, find, seen, self._theme, self._parent.window()).show()

    def _choose(self, file_id: int) -> None:
        """Show a file that is an image, and ask which part of another one is sent."""
        pictures = {file.id: picture for file in self._files.files if (picture := _picture_of(file))}
        if file_id in pictures:
            self._open(pictures[file_id], lambda: list(pictures.values()))
        else:
            self.choose_part(file_id)

    def choose_part(self, file_id: int, question: str = "") -> None:
        """Ask which part of a file to send, for a question or for the typed text."""
        choice = self._files.part_choice(file_id)
        if choice is None:
            return
        sheet = PartSheet(choice, self._context, question or self._question(), self._theme, self._parent.window())
        sheet.chosen.connect(lambda part: self._files.choose_part(file_id, part))
        sheet.chosen.connect(lambda: self.noted.emit(""))
        sheet.finished.connect(lambda _result: self.done.emit())
        sheet.open()

    @property
    def _context(self) -> int | None:
        info = self._controller.model_slot.info
        return info.context_length if info else None

    def _on_prompt_refused(self, text: str, _reason: str) -> None:
        """Ask for a part of the first file that does not fit, if that is why a message was not sent."""
        if self._files is self._controller.chat.files and (to_shorten := self._files.to_shorten):
            self.choose_part(to_shorten[0].id, text)

    def _remove(self, file_id: int) -> None:
        self._files.remove_file(file_id)
        self.done.emit()

    def _show(self) -> None:
        self._chips.show_files(self._files, self._context)

    def _show_refusal(self, why: str) -> None:
        self._refusals.append(why)
        self.noted.emit("\n".join(self._refusals[-_REFUSALS:]))


def chip_text(file: PendingFile, context: int | None, *, too_long: bool) -> tuple[str, str]:
    """Return the line below a file's name, and its colour.

    While it is read, how far that is; then its tokens, or before they are counted its size; and behind that the part
    that was chosen, or that one must be chosen.
    """
    if file.read is None or file.part is None:
        return ("Waiting…" if file.fraction is None else f"Reading… {file.fraction:.0%}"), "muted"
    if file.count is None:
        # An image's text is its bytes.
        size = "An image" if file.image else f"{len(file.part.text):,} characters"
        text = "Counting…" if context is not None else size
    else:
        text = file.count.description
        if context and not too_long:
            share = file.count.tokens / context
            text += " · <1%" if share < 0.01 else f" · {share:.0%}"
    if too_long and file.count is not None:
        return f"{text} · choose a part", "danger"
    return (f"{text} · {file.part.label}" if file.part.label else text), "muted"


def _pictures_on(path: Iterable[Message], text_of: FileText) -> list[Picture]:
    files = (file for message in path for file in message.files)
    return [picture for file in files if (picture := picture_of(file, text_of))]


def _picture_of(file: PendingFile) -> Picture | None:
    part = file.part
    return picture_of(file.file, lambda _file: part.text) if file.file and part else None


def _tip(file: PendingFile) -> str:
    if picture := _picture_of(file):
        return " ".join(each for each in (f"{picture.pixels_text}.", file.read.note if file.read else "") if each)
    if file.read is None:
        return "This file is being read."
    part = f"Only {file.part.label} will be sent." if file.part and file.part.label else ""
    return " ".join(each for each in (part, file.read.note, "Click to choose what is sent.") if each)
