"""What the main window's actions do, and when they are enabled.

`menus.py` has the table of the actions: their texts, keys and places. The command palette's other entries (models,
presets, pages of Settings and chats) come from here.
"""

import platform
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal, qVersion
from PySide6.QtWidgets import QApplication, QLineEdit, QMessageBox, QPlainTextEdit, QTextEdit, QWidget

from rdchat import __version__, host, paths
from rdchat.chat.conversation import NEW_CHAT, Conversation, Notice, Origin
from rdchat.chat.listing import FolderRow
from rdchat.chat.projects import Folder
from rdchat.chat.settings import MAX_TEXT_SIZE, MIN_TEXT_SIZE
from rdchat.errors import InvalidSettingError
from rdchat.inference.api import Mode, Role
from rdchat.services.app.start_request import MAX_CHARACTERS, StartRequest, request_of_start
from rdchat.services.chat_list.chat_order import Location, named
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.conversation.conversation_view import ConversationView
from rdchat.ui.conversation.project_views import ProjectSheet
from rdchat.ui.conversation.regenerate_sheet import RegenerateSheet
from rdchat.ui.settings.settings_window import PLACES
from rdchat.ui.sidebar.sidebar import Sidebar
from rdchat.ui.style import (
    FileMode,
    SideWindow,
    Theme,
    app_pixmap,
    ask,
    ask_to_open,
    formatting,
    message_box,
    show_folder,
    show_in_front,
)
from rdchat.ui.window.model_button import ModelButton
from rdchat.ui.window.palette import PaletteEntry
from rdchat.ui.window.side_windows import SideWindows
from rdchat.ui.window.type_anywhere import takes_text

# The chats in the command palette; older ones are found by a search.
_MAX_CHATS = 1000
_CREDITS = """Chat with language models that run on your own machine, or on servers that you add.

Python {}, Qt {}, MLX {}, mlx-lm {}

Licensed under the Apache License 2.0. The default model is SmolLM2 135M Instruct by Hugging Face, Apache License 2.0. \
Qt is used under the LGPL 3."""


@dataclass(frozen=True, slots=True)
class WindowParts:
    """The parts of the main window."""

    sidebar: Sidebar
    conversation: ConversationView
    panel: QWidget
    model: ModelButton
    windows: SideWindows


class Commands(QObject):
    """Carries out actions. What concerns the main window itself is emitted as a signal.

    Args:
        window: The window of the actions.
        parts: Its parts.
        controller: The conversations.
        theme: The appearance to follow.

    Attributes:
        sidebar_requested: Emitted to show the sidebar.
        side_toggled: Emitted to show the sidebar or the panel, or to hide it if it is visible.
        drafting_requested: Emitted to go to the draft settings of the speed panel.
        close_requested: Emitted to close the main window.
        settings_requested: Emitted with the page of the settings to show; empty for the last one.
    """

    sidebar_requested = Signal()
    side_toggled = Signal(QWidget)
    drafting_requested = Signal()
    settings_requested = Signal(str)
    close_requested = Signal()

    def __init__(self, window: QWidget, parts: WindowParts, controller: ChatController, theme: Theme) -> None:
        super().__init__(window)
        self._window = window
        self._theme = theme
        self.controller = controller
        self._chats = controller.chats
        self.parts = parts

    @property
    def chat(self) -> Conversation | None:
        """The open chat; None if it is not stored yet."""
        return self._chats.chat.stored_conversation

    # When actions are enabled

    def has_chat(self) -> bool:
        """Return whether a stored chat is open."""
        return self.chat is not None

    def can_stop(self) -> bool:
        """Return whether a reply of the open chat or the quick window is being written, or waits for the model."""
        return self.controller.quick.busy or self.controller.chat.id in self.controller.replies.chats_being_written

    def stop_in_front(self) -> None:
        """Close an open menu or popover; without one, stop the reply of the quick window or of the open chat."""
        if (popup := QApplication.activePopupWidget()) is not None:
            popup.close()
        elif self.parts.windows.quick_in_front:
            self.controller.quick.stop_reply()
        else:
            self.controller.stop_reply()

    def has_reply(self) -> bool:
        """Return whether the chat ends with a reply."""
        messages = self.controller.chat.path
        return bool(messages) and messages[-1].role is Role.ASSISTANT

    def has_tokens(self) -> bool:
        """Return whether the tokens of the last reply were recorded."""
        return self.has_reply() and self.controller.traces.has_trace(self.controller.chat.path[-1].id)

    def can_regenerate(self) -> bool:
        """Return whether the loaded model can write the last reply again."""
        return self.controller.replies.state is EngineState.IDLE and self.can_regenerate_with()

    def can_regenerate_with(self) -> bool:
        """Return whether another model may write the last reply again."""
        chat = self.controller.chat
        ready = self.controller.replies.state in (EngineState.IDLE, EngineState.NO_MODEL)
        return ready and bool(chat.path) and chat.streaming_id is None

    # Chats

    def _beside(self) -> Conversation:
        """Return a new chat in the folder that is chosen in the sidebar, else in that of the open chat."""
        row = self.parts.sidebar.list.current_row
        folder_id = row.folder.id if isinstance(row, FolderRow) else self._chats.chat.conversation.folder_id
        return replace(NEW_CHAT, folder_id=folder_id)

    def new_chat_folder(self) -> Folder | None:
        """Return the folder of the project that a new chat begins in; None outside of projects."""
        return self.controller.replies.order.project_folder(self._beside())

    def new_chat_text(self) -> str:
        """Return the text of the action that begins a chat, with the project that it is in."""
        folder = self.new_chat_folder()
        return f"New Chat in {named(folder.name)}" if folder else "New Chat"

    def new_chat(self, *, outside: bool = False) -> None:
        """Begin a chat, and list the chats instead of a search; in the quick window, begin another exchange there.

        Within a project it stays there, unless it shall be outside.
        """
        if self.parts.windows.quick_in_front:
            self.controller.quick.forget_exchange()
            return
        stays = self.new_chat_folder() and not outside
        self._chats.chat.start_new(self._beside().folder_id if stays else None)
        self.parts.sidebar.show_location(Location.CHATS)

    def new_temporary(self) -> None:
        """Begin a temporary chat, and leave a search."""
        self._chats.chat.start_temporary()
        self.parts.sidebar.leave_search()

    def ask_to_leave(self, then: Callable[[], object]) -> None:
        """Ask whether to discard or to keep the temporary chat; after either, `then` opens something else."""
        chat = self._chats.chat

        def leave(end: Callable[[], object]) -> None:
            end()
            then()

        detail = "It is not stored, and cannot be brought back."
        question = "Discard this temporary chat?"
        box = ask(self._window, question, detail, "Discard", partial(leave, chat.discard), removes=True)
        keep = box.addButton("Keep This Chat", QMessageBox.ButtonRole.AcceptRole)
        keep.clicked.connect(partial(leave, chat.keep_temporary))
        # After Cancel, the row that was clicked would stay the current one.
        box.finished.connect(self.parts.sidebar.mark_open)

    def new_folder(self) -> None:
        """Create a folder and open the editor of its name."""
        self.sidebar_requested.emit()
        self.parts.sidebar.show_location(Location.CHATS)
        self.parts.sidebar.row_actions.make_folder()

    def chat_action_text(self, name: str, text: str) -> str:
        """Return the text of an action on the open chat, such as `Unpin Chat`; `text` if no stored chat is open.

        `chat_actions` has a text such as `Unpin{}` and a function for each name.
        """
        chat = self.chat
        return self.parts.sidebar.row_actions.chat_actions(chat)[name][0].format(" Chat") if chat else text

    def run_chat_action(self, name: str) -> None:
        """Carry out an action on the open chat."""
        if (chat := self.chat) is not None:
            if name == "rename":
                self.sidebar_requested.emit()
            self.parts.sidebar.row_actions.chat_actions(chat)[name][1]()

    def search_in_front(self, *, in_chat: bool = True) -> None:
        """Search the window in front: a side window's own search, else the open chat, else all chats."""
        front = QApplication.activeWindow()
        if in_chat and isinstance(front, SideWindow) and front.search is not None:
            front.search.setFocus(Qt.FocusReason.ShortcutFocusReason)
        elif in_chat and self._chats.chat.id is not None:
            show_in_front(self._window)
            self.parts.conversation.find_bar.open_bar()
        else:
            self.sidebar_requested.emit()
            self.parts.sidebar.focus_search()

    def search_all_chats(self, text: str) -> None:
        """Search all chats for words."""
        self.search_in_front(in_chat=False)
        self.parts.sidebar.search.setText(text)

    # What the command palette lists

    def entries(self) -> Iterator[PaletteEntry]:
        """Return models to load, presets for the open chat, pages of Settings, and the newest chats to open."""
        for name, model in self.parts.model.choices():
            act = partial(self.controller.model_slot.load_model, model)
            yield PaletteEntry(f"model {model}", name, "Model", act, "load model")
        for each in self.controller.settings.values.presets:
            yield PaletteEntry(
                f"preset {each.id}", each.name, "Preset", partial(self.controller.chat.use_preset, each.id)
            )
        for page, more in PLACES.items():
            yield PaletteEntry(
                f"settings {page}", f"Settings: {page}", "", partial(self.settings_requested.emit, page), more
            )
        for chat in self._chats.newest(_MAX_CHATS):
            yield PaletteEntry(f"chat {chat.id}", chat.title, "Chat", partial(self.open_chat, chat.id), "open chat")

    def open_chat(self, conversation_id: int) -> None:
        """Open a chat, to write in it."""
        show_in_front(self._window)
        self._chats.chat.open_chat(conversation_id)
        self.parts.conversation.composer.setFocus()

    # Editing

    def undo(self) -> None:
        """Undo typing in a text field, else the last change to chats and messages."""
        focused = QApplication.focusWidget()
        if isinstance(focused, QLineEdit | QPlainTextEdit | QTextEdit) and not focused.isReadOnly():
            focused.undo()
            return
        self.parts.conversation.banners.close_banner("undo")
        self._chats.undo()

    def paste(self) -> None:
        """Paste into the focused text field of the window in front; without one, into the message field."""
        if self._front is self._window and not takes_text(QApplication.focusWidget()):
            self.parts.conversation.composer.setFocus()
        self.edit("paste")

    def edit(self, slot: str) -> None:
        """Call a slot of the focused text field, such as `paste`; all kinds of text fields have the same slots."""
        act = getattr(QApplication.focusWidget(), slot, None)
        if callable(act):
            act()

    # Replies and drafts

    def regenerate_text(self) -> str:
        """Return the text of the action that writes the last reply again, or writes the missing one."""
        return "Regenerate Last Reply" if self.has_reply() else "Get a Reply"

    def regenerate(self) -> None:
        """Write the last reply again."""
        self.controller.regenerate(self.controller.chat.path[-1].id)

    def regenerate_with(self, message_id: int | None = None) -> None:
        """Ask with which model and options to write a reply again, by default the last one."""
        controller = self.controller
        model = self.parts.model
        reply = controller.chat.path[-1].id if message_id is None else message_id
        info = controller.model_slot.info
        # The model that is loaded; while another one is borrowed for a reply, the one that comes back after it.
        own = info.name if info else ""
        if info and info.server:
            own = formatting.remote_label(info.server, info.name)
        if controller.borrowed.loan is not None:
            own = controller.borrowed.loan.own_name
        model.look_for_models()
        chat = controller.chat
        usual = chat.values.system_prompt, chat.values.sampling
        sheet = RegenerateSheet(own, model.choices, *usual, theme=self._theme, parent=self._window)
        model.choices_changed.connect(sheet.offer_models)
        sheet.submitted.connect(lambda *options: controller.regenerate(reply, *options))
        sheet.open()

    def edit_project(self, folder: Folder | None = None) -> None:
        """Open the settings of a folder's project, or of a new one."""
        model = self.parts.model
        model.look_for_models()
        sheet = ProjectSheet(folder, self.controller, model.choices, self._theme, self._window)
        model.choices_changed.connect(sheet.offer_models)
        sheet.open()

    def choose_mode(self, mode: Mode) -> None:
        """Change the draft mode; show why, if it is not available."""
        drafting = self.controller.drafting
        drafting.change(replace(drafting.settings, mode=mode))
        if drafting.problem(mode):
            self.drafting_requested.emit()

    def show_tokens(self) -> None:
        """Show the tokens and drafts of the last reply."""
        self.parts.windows.show_tokens(self.controller.chat.path[-1].id)

    # Model folders

    def choose_model(self) -> None:
        """Ask for a model folder and load it."""
        self._ask_for_folder("Open Model Folder", self._load)

    def choose_models_folder(self) -> None:
        """Ask for the folder where the dialog for models begins."""
        self._ask_for_folder("Choose Where to Look for Models", self._begin_in)

    def _ask_for_folder(self, title: str, then: Callable[[list[str]], None]) -> None:
        begin = self.controller.settings.values.models_folder
        ask_to_open(self._window, title, FileMode.Directory, then, folder=begin)

    def _load(self, chosen: list[str]) -> None:
        self._begin_in([str(Path(chosen[0]).parent)])
        self.controller.model_slot.load_model(chosen[0])

    def _begin_in(self, chosen: list[str]) -> None:
        """Let the dialogs for models begin in the first chosen folder."""
        self.controller.settings.change_values(models_folder=chosen[0])

    # From outside

    def carry_out(self, request: StartRequest) -> None:
        """Do what another start of rdchat, or the system, asks for."""
        if request.quick:
            self.parts.windows.quick.open_here()
            return
        show_in_front(self._window)
        composer = self.parts.conversation.composer
        # A web page can open its link again and again, and each adds text.
        if request.text and len(composer.text) > MAX_CHARACTERS:
            composer.show_note("The text of the link was left out, since the message is long.")
        elif request.text:
            self.controller.chat.unsent.note_origin(request.text, Origin.LINK)
            composer.add_text(request.text)
        for path in request.files:
            self.parts.windows.drops.take_files((path,))

    def open_file(self, opened: str) -> None:
        """Open a file or an address; show why, if it cannot be opened."""
        try:
            self.carry_out(request_of_start([opened]))
        except InvalidSettingError as error:
            self.controller.notice_raised.emit(Notice(error.message, error.hint))

    # Windows

    def close_front(self) -> None:
        """Close the window in front, which may be another one: a Mac has one menu bar for all windows."""
        front = self._front
        if front is self._window:
            self.close_requested.emit()
        else:
            front.close()

    def minimize(self) -> None:
        """Minimise the window in front."""
        self._front.showMinimized()

    def turn_full_screen(self) -> None:
        """Let the window in front fill the screen; if it does, give it its former size."""
        self._front.setWindowState(self._front.windowState() ^ Qt.WindowState.WindowFullScreen)

    @property
    def _front(self) -> QWidget:
        return QApplication.activeWindow() or self._window

    def quit(self) -> None:
        """Close the main window, unless a benchmark runs and the person wants to keep it."""
        if self.parts.windows.may_quit():
            self._window.close()

    def change_text_size(self, by: int) -> None:
        """Make the text of conversations larger or smaller, in points."""
        points = self.controller.settings.values.text_size + by
        self.controller.settings.change_values(text_size=min(max(points, MIN_TEXT_SIZE), MAX_TEXT_SIZE))

    def show_versions(self) -> None:
        """Show the versions, the licences and a way to the log. Versions come from metadata: MLX is not imported."""
        # The build for a Mac is named with its macOS: "0.31.1 for macOS 14.0".
        mlx = " for macOS ".join(filter(None, (version("mlx"), host.mlx_variant())))
        versions = platform.python_version(), qVersion(), mlx, version("mlx-lm")
        title = f"rdchat {__version__}"
        text = _CREDITS.format(*versions)
        box = message_box(QMessageBox.Icon.NoIcon, title, text, title="About rdchat", parent=self._window)
        box.setIconPixmap(app_pixmap(72, 2))
        box.setEscapeButton(box.addButton(QMessageBox.StandardButton.Ok))
        log = box.addButton("Show Log", QMessageBox.ButtonRole.ActionRole)
        log.clicked.connect(lambda: show_folder(paths.log_path()))
        box.open()
