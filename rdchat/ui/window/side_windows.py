"""The windows besides the main one. Each is imported and built when it is first opened, and then kept."""

import re
import threading
from collections.abc import Callable
from functools import cached_property
from importlib import import_module, resources
from typing import TYPE_CHECKING

from PySide6.QtCore import QByteArray, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence
from PySide6.QtWidgets import QMainWindow, QMenu, QWidget

from rdchat import mac_desktop
from rdchat.chat.settings import WindowGeometry
from rdchat.hub import Suggestion
from rdchat.inference.api import DraftSettings, Role
from rdchat.services.models.larger_model import LargerModel
from rdchat.services.models.model_sources import DeviceMemory, ModelSources
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.files.file_drops import FileDrops
from rdchat.ui.style import LARGE, Ground, SideWindow, Theme, column, scrolled, show_in_front
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import TextView

if TYPE_CHECKING:
    from rdchat.services.models.model_services import Models
    from rdchat.ui.benchmark.benchmark_window import BenchmarkWindow
    from rdchat.ui.drafts.drafts_window import DraftsWindow
    from rdchat.ui.models.models_window import ModelsWindow
    from rdchat.ui.speed.ledger_window import LedgerWindow
    from rdchat.ui.window.quick_window import QuickWindow

_KEYS = QKeySequence.SequenceFormat.NativeText
# A link or picture of Markdown whose address is no web page: its file is not there in the app.
_OTHER_FILE = re.compile(r"(?P<picture>!?)\[(?P<text>[^]\[\n]*)\]\((?!https?:)[^()\s]*\)")
# A line feed within a paragraph: the next line is no heading, row of a table, item of a list or end of the paragraph.
_WRAPPED = re.compile(r"(?<!\n)\n *(?=[^\s|#\d-])")
# Keys that no action has, in tables of their own.
_ELSEWHERE: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = (
    (
        "Message field",
        (("Send", "Return"), ("New line", "Shift+Return"), ("Edit the last question", "Up, while it is empty")),
    ),
    ("Lists of chats and models", (("Open", "Return"), ("Delete", "Delete"))),
    ("Quick window", (("Open the exchange as a chat", "Ctrl+Return"), ("New", "Ctrl+N"), ("Stop", "Ctrl+."))),
    ("Windows with pages", (("Next page", "Ctrl+Tab"), ("Previous page", "Ctrl+Shift+Tab"))),
    ("Other windows", (("Close it", "Esc"),)),
)


class HelpWindow(SideWindow):
    """A page of Markdown that scrolls.

    Args:
        title: The window's title.
        text: Markdown.
        theme: The appearance to follow.
        parent: The main window.
    """

    def __init__(self, title: str, text: str, theme: Theme, parent: QWidget) -> None:
        super().__init__(title, (600, 680), (360, 300), parent)
        self.text = TextView(MarkdownParser(), theme, title)
        page = Ground(theme, "surface")
        column(self.text, None, within=page, margins=LARGE)
        area = scrolled(page)
        self._area = area
        # The keyboard scrolls the area.
        area.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        area.setAccessibleName(title)
        column(area, within=self)
        area.setFocus()
        self.text.set_text(text)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Scroll by Home, End and Space too; the area knows the arrows and the Page keys."""
        bar = self._area.verticalScrollBar()
        page = -bar.pageStep() if event.modifiers() & Qt.KeyboardModifier.ShiftModifier else bar.pageStep()
        moves = {Qt.Key.Key_Home: 0, Qt.Key.Key_End: bar.maximum(), Qt.Key.Key_Space: bar.value() + page}
        if event.key() in moves:
            bar.setValue(moves[Qt.Key(event.key())])
        else:
            super().keyPressEvent(event)


def help_text(name: str) -> str:
    """Return a page that came with rdchat, in Markdown, without pictures and links to other files.

    The lines of a paragraph are joined, except in code: `TextView` breaks a line at each line feed, as chats need it.
    """
    text = resources.files("rdchat.ui").joinpath(f"resources/{name}.md").read_text(encoding="utf-8")
    text = _OTHER_FILE.sub(lambda link: "" if link["picture"] else link["text"], text)
    parts = text.split("```")
    # Every other part is code.
    parts[::2] = [_WRAPPED.sub(" ", part) for part in parts[::2]]
    return "```".join(parts)


def shortcuts_text(window: QMainWindow) -> str:
    """Return a table of keys for each menu, for what only the palette lists, and for some widgets, in Markdown.

    The window's own actions are those that `WindowActions` puts into no menu.
    """
    actions = {}
    for menu in (action.menu() for action in window.menuBar().actions()):
        if isinstance(menu, QMenu):
            actions[menu.title().replace("&", "")] = menu.actions()
    actions["Command Palette"] = window.actions()
    tables = []
    for title, listed in actions.items():
        keys = [(each.text().rstrip("…"), each.shortcut().toString(_KEYS)) for each in listed]
        tables.append((title, tuple(entry for entry in keys if entry[1])))
    return "\n\n".join(
        f"## {title}\n\n| Command | Keys |\n|---|---|\n" + "\n".join(f"| {name} | {key} |" for name, key in entries)
        for title, entries in (*tables, *_ELSEWHERE)
    )


class SideWindows:
    """Builds and opens the windows besides the main one, each when it is first needed.

    `"quick" in self.__dict__` asks whether a window is built: reading `self.quick` would build it.

    Args:
        controller: The conversations.
        theme: The appearance to follow.
        parent: The main window; the windows stay above it and close with it.
        sources: Read the models on this machine.

    Attributes:
        drops: Accepts models and files that are dropped on the main window.
        memory: The memory of this machine.
        larger_model: Chooses a larger model than the default one to offer.
        on_model_services: Each is called with the services of the models window when they are built.
    """

    def __init__(self, controller: ChatController, theme: Theme, parent: QMainWindow, sources: ModelSources) -> None:
        self._controller = controller
        self._theme = theme
        self._parent = parent
        self._sources = sources
        # The chat of the reply that the drafts window shows.
        self._chat_of_tokens: int | None = None
        # The windows that are built, whose geometry is stored by these names.
        self._restored: dict[str, QWidget] = {}
        self.memory = DeviceMemory(sources.memory, parent)
        self.larger_model = LargerModel(controller, sources, self.memory, parent)
        self.on_model_services: list[Callable[[Models], object]] = [self.larger_model.follow]
        self.drops = FileDrops(sources.problem, controller.model_slot.load_model, parent, theme, takes_files=True)

    def restore_geometry[W: QWidget](self, name: str, window: W) -> W:
        """Put a new window where it was when rdchat last quit; Qt moves it onto a screen that exists."""
        geometries = {each.window: each.geometry for each in self._controller.settings.values.side_windows}
        window.restoreGeometry(decoded(geometries.get(name, "")))
        self._restored[name] = window
        return window

    def geometries(self) -> tuple[WindowGeometry, ...]:
        """Return where the windows are now, or were in an earlier run."""
        all_windows = {each.window: each for each in self._controller.settings.values.side_windows}
        for name, window in self._restored.items():
            all_windows[name] = WindowGeometry(name, encoded(window.saveGeometry()))
        return tuple(all_windows.values())

    def _help(self, name: str, title: str, text: str) -> QWidget:
        return self.restore_geometry(name, HelpWindow(title, text, self._theme, self._parent))

    @cached_property
    def guide(self) -> QWidget:
        """Explains the window and the terminal."""
        return self._help("guide", "Guide", help_text("guide"))

    @cached_property
    def drafting_help(self) -> QWidget:
        """Explains drafting."""
        return self._help("about drafting", "What Is Drafting?", help_text("drafting"))

    @cached_property
    def shortcuts(self) -> QWidget:
        """Lists the keys of the actions."""
        return self._help("shortcuts", "Keyboard Shortcuts", shortcuts_text(self._parent))

    @cached_property
    def ledger(self) -> "LedgerWindow":
        """More figures of the last reply, and the time ledger."""
        from rdchat.ui.speed.ledger_window import LedgerWindow  # noqa: PLC0415

        return self.restore_geometry("ledger", LedgerWindow(self._controller, self._theme, self._parent))

    @cached_property
    def drafts(self) -> "DraftsWindow":
        """A reply's tokens and draft trees."""
        from rdchat.ui.drafts.drafts_window import DraftsWindow  # noqa: PLC0415

        window = self.restore_geometry("drafts", DraftsWindow(self._controller.traces, self._theme, self._parent))
        self._controller.chats.conversation_removed.connect(self._close_tokens_of)
        return window

    def show_tokens(self, message_id: int) -> None:
        """Show the tokens of a reply of the open chat."""
        self._chat_of_tokens = self._controller.chat.id
        self.drafts.show_reply(message_id)

    def _close_tokens_of(self, conversation_id: int) -> None:
        if conversation_id == self._chat_of_tokens:
            self.drafts.close()

    def compare(self, message_id: int) -> None:
        """Show two alternatives of a message of the open chat side by side."""
        from rdchat.ui.conversation.alternatives_window import AlternativesWindow  # noqa: PLC0415

        message = self._controller.chat.path.find_message(message_id)
        for open_one in self._parent.findChildren(AlternativesWindow):
            open_one.close()
        if message is not None:
            AlternativesWindow(self._controller, message, self._theme, self._parent).open_in_front()

    @cached_property
    def benchmark_window(self) -> "BenchmarkWindow":
        """Drafting against plain decoding, on one prompt or several."""
        from rdchat.ui.benchmark.benchmark_window import BenchmarkWindow  # noqa: PLC0415

        return self.restore_geometry("benchmark", BenchmarkWindow(self._controller, self._theme, self._parent))

    def open_benchmark(self, typed: str = "", tried: DraftSettings | None = None) -> None:
        """Open the benchmark with the typed text, or the chat's last prompt, or its own last prompt.

        `tried` are draft settings that the chat does not have to use.
        """
        prompts = (message.text for message in reversed(self._controller.chat.path) if message.role is Role.USER)
        self.benchmark_window.open_benchmark(next(filter(str.strip, (typed, *prompts)), ""), tried)

    @cached_property
    def model_services(self) -> "Models":
        """The state behind the models window; also built without the window, to resume downloads."""
        from rdchat.services.models.model_services import Models  # noqa: PLC0415

        controller = self._controller
        models = Models(controller, self._sources, self._parent, memory=self.memory)
        for call in self.on_model_services:
            call(models)
        return models

    @cached_property
    def models(self) -> "ModelsWindow":
        """Models on this machine and on the hub."""
        from rdchat.ui.models.models_window import ModelsWindow  # noqa: PLC0415

        models = self.model_services
        window = self.restore_geometry("models", ModelsWindow(models, self._theme, self._parent))
        models.library.race_requested.connect(lambda draft: self.open_benchmark(tried=draft))
        return window

    @cached_property
    def quick(self) -> "QuickWindow":
        """A question over other programs."""
        from rdchat.ui.window.quick_window import QuickWindow  # noqa: PLC0415

        return QuickWindow(self._controller, self._theme, self._parent)

    @property
    def quick_in_front(self) -> bool:
        """Whether the quick window has the keyboard."""
        return "quick" in self.__dict__ and self.quick.isActiveWindow()

    def show_training(self) -> None:
        """Open the models window at the training."""
        self.models.show_page(self.models.drafters)
        self.models.installed.show_training()

    def get_vision(self) -> None:
        """Offer the vision of the loaded model's original."""
        self.models.show_page(self.models.installed)
        self.models.installed.get_vision(self.model_services.library.loaded)

    def open_discover(self, repository: str) -> None:
        """Open the models window at a model of the hub, and load its card; without a hub id at the suggested ones."""
        self.models.show_page(self.models.discover)
        if repository:
            self.models.discover.open_model(repository)

    def download_row(self, suggestion: Suggestion) -> QWidget:
        """Return a row that downloads a suggested model with its drafter, and shows how far that is."""
        from rdchat.services.models.fit import Model  # noqa: PLC0415
        from rdchat.ui.models.model_row import ModelRow  # noqa: PLC0415
        from rdchat.ui.models.reading_pane import PageLinks  # noqa: PLC0415

        models = self.model_services
        links = PageLinks(self._parent)
        links.token_requested.connect(lambda: self.ask_for_token(self._parent))
        row = ModelRow(models, links, self._theme, in_details=True)
        size = suggestion.weight_bytes + suggestion.drafter.weight_bytes
        result = Model(suggestion.repository, size=size, load_name=suggestion.repository)

        def show() -> None:
            row.show_model(models.with_download(result))

        models.downloads.changed.connect(show)
        show()
        return row

    @property
    def shows_downloads(self) -> bool:
        """Whether the person sees the page of downloads."""
        return "models" in self.__dict__ and self.models.downloads.isVisible()

    def ask_for_token(self, parent: QWidget) -> None:
        """Open the sheet of the hub's token in front of a window."""
        from rdchat.ui.models.models_window import TokenSheet  # noqa: PLC0415

        TokenSheet(self.model_services.account, self._theme, parent).open()

    def import_ahead(self) -> None:
        """Import on a thread what is needed soon.

        That is what keeps a Mac awake during a reply, and the models window: imports are two thirds of the time of its
        first opening.
        """

        def import_them() -> None:
            for name in (*mac_desktop.FRAMEWORKS, "rdchat.ui.models.models_window"):
                import_module(name)

        threading.Thread(target=import_them, name="imports", daemon=True).start()

    def end_background_work(self) -> None:
        """End the work in the background."""
        self.drops.end_checks()
        self.memory.finish_work()
        self.larger_model.end_search()
        if "model_services" in self.__dict__:
            self.model_services.end_services()

    def may_quit(self) -> bool:
        """Return whether no benchmark runs; if one does, ask whether to stop it."""
        if not self._controller.benchmark.running:
            return True
        show_in_front(self.benchmark_window)
        self.benchmark_window.ask_to_stop("Stop the benchmark and quit?", "Stop and Quit", self._parent.close)
        return False


def encoded(blob: QByteArray) -> str:
    """Return one of Qt's blobs as base64, for the settings."""
    return blob.toBase64().toStdString()


def decoded(text: str) -> QByteArray:
    """Return the blob of a base64 text; a text that was edited by hand gives one that Qt's windows refuse."""
    return QByteArray.fromBase64(text.encode("ascii", "ignore"))
