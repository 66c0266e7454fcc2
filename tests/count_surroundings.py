"""Counts what stands around a chat: menu entries, pages, controls, figures, icons and windows, as JSON, one line each.

It reads the real widgets of the real window, offscreen, with the scripted engine of the tests and one reply, and finds
them by their Qt classes and by what a person reads on them. With --actions it prints in place of the counts a sorted
list of everything that can be done: each entry of a menu, each command without one, each control with its window and
page.

Usage: python -m tests.count_surroundings [--actions]     (under a minute, without a model)
"""

import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QAction, QDesktopServices
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QFileDialog,
    QKeySequenceEdit,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QPlainTextEdit,
    QScrollBar,
    QStackedWidget,
    QTabBar,
    QTabWidget,
    QTextEdit,
    QWidget,
)

from rdchat import paths
from rdchat.app import App
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Engines, LedgerEntry, Mode, Statistics
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.window.main_window import MainWindow
from tests.services import fakes

_QUESTION = "Why does a plane fly?"
_REPLY = "Air that is turned down by the wings pushes them up."
_FIGURES = Statistics(
    prompt_tokens=300,
    cached_prompt_tokens=200,
    generated_tokens=101,
    prefill_ms=500,
    ttft_ms=620,
    decode_ms=4000,
    rounds=50,
    drafted=90,
    accepted=50,
    from_chat=20,
    from_replies=6,
    from_phrases=4,
    target_calls=50,
    verified_nodes=160,
    host_syncs=50,
    drafted_lengths=(5, 10, 25, 10),
    accepted_lengths=(15, 20, 15),
    peak_memory_bytes=812_000_000,
    context_tokens=512,
    plain_step_ms=70,
    plain_error=0.05,
    speeds=(20.0, 30.0, 25.0),
    others_share=0.0,
    ledger=(
        LedgerEntry("prefill", "", 1, 600),
        LedgerEntry("draft", "", 50, 500),
        LedgerEntry("round", "", 50, 3400),
        LedgerEntry("wait", "round", 50, 3000),
        LedgerEntry("detokenize", "", 50, 40),
    ),
)
# What a person uses.
_CONTROLS = (
    QAbstractButton,
    QComboBox,
    QLineEdit,
    QAbstractSpinBox,
    QAbstractSlider,
    QKeySequenceEdit,
    QPlainTextEdit,
    QTextEdit,
    QAbstractItemView,
)
# Their own parts are no controls.
_WHOLE = QComboBox, QLineEdit, QAbstractSpinBox, QKeySequenceEdit, QTabBar, QAbstractItemView
# Entries and buttons that end the app, need another program, or change the chat that is looked at.
_LEFT_ALONE = re.compile(
    r"Quit|Close|Full Screen|Log|Delete|Archive|Trash|Undo|Redo|Stop|Regenerate|Send|Edit message|Cut|Paste|Text|Size|"
    r"Hide|Sidebar|Panel|Copy|Duplicate|Temporary"
)
# A number, perhaps with its other end or its error: one figure.
_NUMBER = r"[\d][\d,.]*"
_FIGURE = re.compile(rf"{_NUMBER}(?:\s*[^\d\s]*\s*(?:to|±|of|\N{{EN DASH}})\s*{_NUMBER})?|^\N{{EN DASH}}$")


class Window(NamedTuple):
    """A window that was opened: how, its title, its sort, and its controls by page, or a menu's entries."""

    way: str
    title: str
    sort: str
    inside: list[str]


@contextmanager
def running_app(folder: Path) -> Iterator[App]:
    """Run the app in a folder of its own, with the scripted engine."""
    os.environ |= {
        paths.DATA_VARIABLE: str(folder / "data"),
        paths.CACHE_VARIABLE: str(folder / "cache"),
        "HF_HOME": str(folder / "hub"),
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
    }
    QDesktopServices.openUrl = lambda _address: True  # type: ignore[method-assign]
    fakes.ScriptedReply.statistics = _FIGURES  # type: ignore[assignment, method-assign]
    qt = QApplication.instance() or QApplication([])
    assert isinstance(qt, QApplication)
    settings = SettingsStore(paths.settings_path())
    settings.save_settings(Settings(panel_visible=False, titles_by_model=False))
    engine = fakes.ScriptedEngine([fakes.Reply(tuple(re.findall(r"\S+ ?", _REPLY)), mode=Mode.AUTO)])
    app = App(qt, ConversationStore(paths.database_path()), settings, lambda: cast(Engines, engine))
    app.open_window()
    try:
        yield app
    finally:
        app.window.close()
        app.end_app()


class Surroundings:
    """The window with one reply; each method reads one part of what stands around it."""

    def __init__(self, window: MainWindow, controller: ChatController) -> None:
        self.window = window
        self._controller = controller
        self._wait(lambda: self._controller.model_slot.info is not None)
        self._controller.send(_QUESTION)
        self._wait(lambda: len(self._controller.chat.path) == 2)
        self._wait(lambda: self._controller.chat.path[-1].status is not MessageStatus.STREAMING)
        self._wait(lambda: self._controller.replies.state is EngineState.IDLE)
        self._chat = self._controller.chat.id
        self._rest(0.3)

    def menus(self) -> dict[str, list[QAction]]:
        """Return the entries of each menu; a submenu's are its menu's."""
        menus = {}
        for top in self.window.menuBar().actions():
            menu = top.menu()
            assert isinstance(menu, QMenu)
            menus[top.text().replace("&", "")] = list(_entries(menu))
        return menus

    def commands(self) -> list[QAction]:
        """Return the commands that are in no menu."""
        return [each for each in self.window.actions() if each.text()]

    def icons(self) -> list[str]:
        """Return the names of the buttons below the reply."""
        texts = (each for each in self.window.findChildren(QTextEdit) if _REPLY in each.toPlainText())
        part: QWidget | None = next(texts)
        while part is not None:
            buttons = [each for each in part.findChildren(QAbstractButton) if each.isVisible() and not each.text()]
            if buttons:
                return [_name(each) for each in buttons]
            part = part.parentWidget()
        return []

    def panel(self) -> QWidget:
        """Open the speed panel, and return it."""
        self._trigger("Speed Panel")
        self._rest(0.5)
        named = (each for each in self.window.findChildren(QWidget) if each.accessibleName() == "Speed panel")
        return next(each for each in named if not isinstance(each, QAbstractButton))

    def opened(self, text: str) -> QWidget:
        """Trigger an entry or command, and return the window that it opens."""
        before = {each for each in QApplication.topLevelWidgets() if each.isVisible()}
        self._trigger(text)
        self._wait(lambda: bool(self._new(before)))
        self._rest(0.3)
        return self._new(before)[0]

    def pages(self, window: QWidget) -> Iterator[tuple[str, QWidget]]:
        """Show each page of a window, nested ones too, and yield its path of titles and its widget."""
        yield from self._pages(window, "")

    def _pages(self, part: QWidget, path: str) -> Iterator[tuple[str, QWidget]]:
        chooser = _chooser(part)
        if chooser is None:
            yield path, part
            return
        for index, title in enumerate(chooser.titles):
            chooser.choose(index)
            self._rest(0.2)
            page = chooser.stack.currentWidget() if chooser.stack is not None else None
            yield from self._pages(page or part, f"{path} > {title}" if path else title)

    def unfold(self, part: QWidget) -> None:
        """Unfold everything in a part that is folded."""
        while folded := [each for each in part.findChildren(QAbstractButton) if _is_folded(each)]:
            folded[0].click()
            self._rest(0.1)

    def windows(self) -> list[Window]:
        """Open what entries, commands and the main window's buttons open."""
        found: list[Window] = []
        for menu, entries in [*self.menus().items(), ("Commands", self.commands())]:
            for action in entries:
                if action.menu() is None and not action.isCheckable():
                    self._try(f"{menu} > {_plain(action.text())}", _plain(action.text()), action.trigger, found)
        self._again()
        tried: set[str] = set()
        while button := next((each for each in self._buttons() if _key(each) not in tried), None):
            tried.add(_key(button))
            self._try(f"Button > {_name(button)}", _name(button), button.click, found)
            self._open_chat()
        return found

    def _buttons(self) -> list[QAbstractButton]:
        """Return the buttons of the main window as they are now: opening a chat makes some anew."""
        every = self.window.findChildren(QAbstractButton)
        return [each for each in every if each.isVisible() and each.isEnabled() and not each.isCheckable()]

    def _try(self, way: str, name: str, act: Callable[[], None], found: list[Window]) -> None:
        if _LEFT_ALONE.search(name):
            return
        self._open_chat()
        before = {each for each in QApplication.topLevelWidgets() if each.isVisible()}
        act()
        self._rest(0.15)
        for window in self._new(before):
            title = window.windowTitle() or window.accessibleName() or name
            found.append(Window(way, title, _sort(window), [*self.inside(window)]))
            window.close()
        self._rest(0.05)

    def inside(self, window: QWidget) -> Iterator[str]:
        """Yield what a window that was opened has: a menu's entries, or its controls by page."""
        if isinstance(window, QMenu):
            yield from (_plain(each.text()) for each in _entries(window))
        elif not isinstance(window, QFileDialog):
            for path, page in self.pages(window):
                self.unfold(page)
                yield from (f"{path}: {each}" if path else each for each in map(_described, controls(page)))

    def _again(self) -> None:
        """Write the reply another time: two versions can be compared."""
        self._open_chat()
        before = self._controller.chat.path[-1].siblings
        self._trigger("Regenerate")
        self._wait(lambda: self._controller.chat.path[-1].siblings > before)
        self._wait(lambda: self._controller.chat.path[-1].status is not MessageStatus.STREAMING)
        self._wait(lambda: self._controller.replies.state is EngineState.IDLE)

    def context_menus(self) -> Iterator[tuple[str, list[QAction]]]:
        """Yield what the context menus of the visible parts of the main window offer."""
        shown: list[QMenu] = []
        popup = QMenu.popup
        QMenu.popup = lambda menu, *_where: shown.append(menu)  # type: ignore[method-assign]
        try:
            for part in self.window.findChildren(QWidget):
                for place in _context_places(part):
                    shown.clear()
                    part.customContextMenuRequested.emit(place)
                    self._rest(0.05)
                    for menu in shown:
                        menu.aboutToShow.emit()
                        yield f"Context menu of {_name(part)}", list(_entries(menu))
            for button in self.window.findChildren(QAbstractButton):
                if button.isVisible() and button.isEnabled() and _name(button).startswith("More"):
                    shown.clear()
                    button.click()
                    self._rest(0.05)
                    for menu in shown:
                        menu.aboutToShow.emit()
                        yield f"Menu of {_name(button)}", list(_entries(menu))
        finally:
            QMenu.popup = popup  # type: ignore[method-assign]

    def _open_chat(self) -> None:
        if self._controller.chat.id != self._chat and self._chat is not None:
            self._controller.chat.open_chat(self._chat)
            self._rest(0.1)

    def _trigger(self, text: str) -> None:
        every = [each for entries in self.menus().values() for each in entries] + self.commands()
        next(each for each in every if _plain(each.text()).startswith(text)).trigger()

    def _new(self, before: set[QWidget]) -> list[QWidget]:
        return [each for each in QApplication.topLevelWidgets() if each.isVisible() and each not in before]

    def _wait(self, reached: Callable[[], bool]) -> None:
        end = time.monotonic() + 120
        while not reached():
            if time.monotonic() > end:
                raise TimeoutError("the app did not get there within two minutes")
            self._rest(0.02)

    def _rest(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            QApplication.processEvents()
            time.sleep(0.005)


class Chooser(NamedTuple):
    """What leads to the pages of a part: their titles, a function that shows one, and what holds them."""

    titles: list[str]
    choose: Callable[[int], None]
    stack: QTabWidget | QStackedWidget | None


def _chooser(part: QWidget) -> Chooser | None:
    """Return the outermost tabs or list of pages in a part; None if it has no pages."""
    for widget in _visible(part, QWidget):
        if isinstance(widget, QTabWidget) and widget.tabBar().isVisible():
            titles = [widget.tabText(index) for index in range(widget.count())]
            return Chooser(titles, widget.setCurrentIndex, widget)
        if isinstance(widget, QTabBar) and widget.count() > 1:
            return Chooser([widget.tabText(index) for index in range(widget.count())], widget.setCurrentIndex,
                           _stack_of(part, widget.count()))  # fmt: skip
        if isinstance(widget, QListView) and widget.model() is not None:
            model = widget.model()
            if (stack := _stack_of(part, model.rowCount())) and _leads_to_pages(widget, stack):
                titles = [str(model.index(row, 0).data()) for row in range(model.rowCount())]
                return Chooser(titles, partial(_choose_row, widget), stack)
    return None


def _leads_to_pages(view: QListView, stack: QStackedWidget) -> bool:
    """Return whether each row of a list shows the page with its number; else the list shows things, not pages."""
    before = view.currentIndex()
    pages = []
    for row in range(stack.count()):
        _choose_row(view, row)
        pages.append(stack.currentIndex())
    view.setCurrentIndex(before)
    return pages == list(range(stack.count())) and len(pages) > 1


def _choose_row(view: QListView, row: int) -> None:
    view.setCurrentIndex(view.model().index(row, 0))


def _stack_of(part: QWidget, count: int) -> QStackedWidget | None:
    return next((each for each in _visible(part, QStackedWidget) if each.count() == count), None)


def _visible[W: QWidget](part: QWidget, kind: type[W]) -> Iterator[W]:
    """Yield the visible widgets of a kind inside a part, the outer ones before the inner ones."""
    waiting = [part]
    while waiting:
        inside = [each for each in waiting.pop(0).children() if isinstance(each, QWidget) and not each.isWindow()]
        for each in inside:
            if each.isVisible():
                waiting.append(each)
                if isinstance(each, kind):
                    yield each


def controls(part: QWidget) -> list[QWidget]:
    """Return the controls that a part shows: what is part of another control, or only shows a text, is none."""
    return [each for each in _visible(part, QWidget) if isinstance(each, _CONTROLS) and not _is_part(each, part)]


def _is_part(widget: QWidget, limit: QWidget) -> bool:
    if isinstance(widget, QScrollBar) or (isinstance(widget, QPlainTextEdit | QTextEdit) and widget.isReadOnly()):
        return True
    owner = widget.parentWidget()
    while owner is not None and owner is not limit:
        if isinstance(owner, _WHOLE):
            return True
        owner = owner.parentWidget()
    return False


def figures(part: QWidget) -> list[str]:
    """Return the figures that a part shows: each number, range or dash of a label, and each drawing as one."""
    found = []
    for label in _visible(part, QLabel):
        found += [each.group() for each in _FIGURE.finditer(label.text())]
    return found


def charts(part: QWidget) -> list[str]:
    """Return the names of the drawings that a part shows: what paints itself, and is neither a text nor a control."""
    return [
        each.accessibleName()
        for each in _visible(part, QWidget)
        if each.accessibleName() and not isinstance(each, (QLabel, *_CONTROLS)) and not each.findChildren(QWidget)
    ]


def _entries(menu: QMenu) -> Iterator[QAction]:
    for action in menu.actions():
        inside = action.menu()
        if isinstance(inside, QMenu) and inside.actions():
            yield from _entries(inside)
        elif not action.isSeparator():
            yield action


def _context_places(part: QWidget) -> list[QPoint]:
    """Return where a part opens a context menu of its own: on its first row, or in its middle."""
    if not part.isVisible() or part.contextMenuPolicy() is not Qt.ContextMenuPolicy.CustomContextMenu:
        return []
    if isinstance(part, QAbstractItemView):
        model = part.model()
        areas = (part.visualRect(model.index(row, 0)) for row in range(model.rowCount()))
        return [area.center() for area in areas if not area.isEmpty()]
    return [part.rect().center()]


def _is_folded(button: QAbstractButton) -> bool:
    return button.isVisible() and button.isEnabled() and button.accessibleName().endswith(", folded")


def _sort(window: QWidget) -> str:
    if isinstance(window, QFileDialog):
        return "file dialog"
    if isinstance(window, QMenu):
        return "menu"
    kinds = {Qt.WindowType.Popup: "popover", Qt.WindowType.Sheet: "sheet", Qt.WindowType.Dialog: "sheet"}
    return kinds.get(window.windowType(), "window")


def _plain(text: str) -> str:
    return text.replace("&", "")


def _name(widget: QWidget) -> str:
    """Return what a person reads on a control, or what a screen reader says of it."""
    text = widget.text() if isinstance(widget, QAbstractButton) else ""
    hint = widget.placeholderText() if isinstance(widget, QLineEdit) else ""
    name = _plain(text) or widget.accessibleName() or hint or widget.toolTip()
    return re.sub(r", (un)?folded$", "", name).split("\n")[0] or "(no name)"


def _described(widget: QWidget) -> str:
    kind = next(each.__name__ for each in type(widget).__mro__ if each.__module__.startswith("PySide6"))
    return f"{_name(widget)} ({kind})"


def _key(button: QAbstractButton) -> str:
    """Return a button's name with those of what holds it: two parts may have buttons of one name."""
    owner = button.parentWidget()
    return f"{_name(button)} in {type(owner).__name__}"


def print_counts(seen: Surroundings) -> None:
    """Print the counts, one a line."""
    menus = {name: len(entries) for name, entries in seen.menus().items()}
    _print("menu entries", sum(menus.values()), **menus)
    _print("icons under a reply", len(seen.icons()), names=seen.icons())
    panel = seen.panel()
    _print("icons under a reply, panel open", len(seen.icons()), names=seen.icons())
    _print("figures in the panel", len(figures(panel)), charts=charts(panel), shown=figures(panel))
    _print("controls in the panel", len(controls(panel)))
    seen.unfold(panel)
    _print("figures in the panel, unfolded", len(figures(panel)), charts=charts(panel), shown=figures(panel))
    _print("controls in the panel, unfolded", len(controls(panel)))
    options = seen.opened("Chat Options")
    _print("controls of Chat Options", len(controls(options)))
    seen.unfold(options)
    _print("controls of Chat Options, unfolded", len(controls(options)))
    options.close()
    for title in ("Settings", "Models"):
        window = seen.opened(title)
        as_opened: dict[str, int] = {}
        unfolded: dict[str, int] = {}
        for path, page in seen.pages(window):
            as_opened[path] = len(controls(page))
            seen.unfold(page)
            unfolded[path] = len(controls(page))
        _print(f"pages of {title}", len(as_opened), names=list(as_opened))
        _print(f"controls of {title}", sum(as_opened.values()), **as_opened)
        _print(f"controls of {title}, unfolded", sum(unfolded.values()), **unfolded)
        window.close()
    kinds: dict[str, set[str]] = {}
    for opened in seen.windows():
        kinds.setdefault(opened.sort, set()).add(opened.title)
    for sort, titles in sorted(kinds.items()):
        _print(f"kinds of {sort}", len(titles), names=sorted(titles))


def _print(what: str, number: int, **more: object) -> None:
    print(json.dumps({"what": what, "count": number, **more}, ensure_ascii=False))


def print_actions(seen: Surroundings) -> None:
    """Print everything that can be done, sorted, and how often where one thing is there several times."""
    found: list[str] = []
    for menu, entries in [*seen.menus().items(), ("Commands in no menu", seen.commands())]:
        found += [f"{menu} > {_plain(each.text())}  {each.shortcut().toString()}".rstrip() for each in entries]
    found += [f"{way} > {_plain(each.text())}" for way, entries in seen.context_menus() for each in entries]
    panel = seen.panel()
    seen.unfold(panel)
    found += [f"Main window: {_described(each)}" for each in controls(seen.window)]
    titles = set()
    for opened in seen.windows():
        found.append(f"{opened.way} opens {opened.title} ({opened.sort})")
        if opened.title not in titles:
            titles.add(opened.title)
            found += [f"{opened.title}: {each}" for each in opened.inside]
    for line, times in sorted(Counter(found).items()):
        print(f"{line}  x{times}" if times > 1 else line)


def main() -> None:
    """Run the app, and print what it has."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, running_app(Path(folder)) as app:
        app.window.resize(1180, 780)
        seen = Surroundings(app.window, app.controller)
        (print_actions if "--actions" in sys.argv else print_counts)(seen)


if __name__ == "__main__":
    main()
