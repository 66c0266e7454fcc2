"""Names that are HTML, and name a pipe, are shown as they are, and no source gives Qt a text as HTML."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QLabel, QMessageBox, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

import rdchat
from rdchat.chat.attachments.attached_file import AttachedFile, FileKind
from rdchat.chat.storage import SearchQuery
from rdchat.chat.transfer.chat_import import FileReport, ImportReport, PartialChat, SkippedChat
from rdchat.inference.api import HeadKind, ModelCard, Role, SamplingParams
from rdchat.services.background_work import FolderSearch
from rdchat.ui.conversation.notices import Banner
from rdchat.ui.conversation.regenerate_sheet import RegenerateSheet
from rdchat.ui.style import ElidedLabel, OfflineBrowser, Sheet, Theme, ask, button_text, message_box, tip_text
from rdchat.ui.window.import_export import export_sheet, report_sheet
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.hovering import Pipe, check_tips, menu_tips, rich_labels, shown_tips, watched_pipe


@pytest.fixture
def panel_visible() -> bool:
    return True


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Pipe]:
    with watched_pipe(tmp_path) as pipe:
        yield pipe


@pytest.fixture
def pipe(watched: Pipe) -> Iterator[Pipe]:
    """A pipe that nobody may read."""
    yield watched
    assert not watched.reads


def check(pipe: Pipe, widget: QWidget) -> set[str]:
    """Return which names the tooltips of a widget show as they are; no label has HTML."""
    assert rich_labels(widget) == []
    return check_tips(pipe, shown_tips(widget))


def test_what_is_given_to_qt_raw_is_found(qtbot: QtBot, watched: Pipe) -> None:
    """Without this the tests below could find nothing."""
    pipe = watched
    window = QWidget()
    qtbot.addWidget(window)
    button = QPushButton("Button", window, toolTip=pipe.named("button"))
    window.show()
    with pytest.raises(AssertionError):
        check_tips(pipe, shown_tips(window))
    qtbot.waitUntil(lambda: pipe.reads > 0)  # the process at the other end notes it a little later
    read = pipe.reads
    button.deleteLater()
    column = QVBoxLayout(window)
    column.addWidget(QLabel(pipe.named("label")))
    qtbot.waitUntil(lambda: pipe.reads > read)
    assert rich_labels(window) == [pipe.named("label")]


@pytest.mark.parametrize(
    "text",
    ["a", "a\n  b", "a & b", "&lt;", "<b>a</b>", "<img src='x'>\n  &amp; y  z", "word " * 40, "<a> " * 300 + "\n&"],
)
def test_a_tooltip_shows_its_text(qtbot: QtBot, text: str) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.setToolTip(tip_text(text))
    window.show()
    assert list(shown_tips(window)) == [text]


def test_a_text_without_end_is_cut(qtbot: QtBot, theme: Theme) -> None:
    """To find out where a megabyte is to be elided takes a seventh of a second, whenever it is painted."""
    text = "a" * 1_000_000
    label = ElidedLabel(theme, text)
    qtbot.addWidget(label)
    assert len(label.text()) == 2000 < len(tip_text(text)) < 2100  # with its markup
    assert tip_text("a\n" * 1_000_000).count("\n") == 50
    assert len(button_text(text)) == 200
    label.setText(text)
    assert label.text().endswith("a…")


def filled(chat: Chat, pipe: Pipe) -> None:
    """Store a chat as an import leaves it: with names that strangers chose."""
    store = chat.store
    stored = store.create_conversation(pipe.named("chat"))
    file = AttachedFile(pipe.named("file"), FileKind.TEXT, "0" * 64, 4, note=pipe.named("note"))
    asked = store.add_message(stored.id, None, Role.USER, "Hi", files=[(file, "text")])
    for text in ("One", f"[a link](https://a.b/<img>) <img src='{pipe.path}'>"):
        store.add_message(stored.id, asked.id, Role.ASSISTANT, text, model=pipe.named("slug"))
    chat.chats.open_latest()


@pytest.mark.slow
def test_the_main_window(window: MainWindow, chat: Chat, theme: Theme, pipe: Pipe) -> None:
    filled(chat, pipe)
    chat.load(pipe.named("model"))
    folder = chat.chats.order.create_folder(pipe.named("folder"))
    window.conversation.banners.show_banner(Banner(theme, pipe.named("banner"), pipe.named("detail")), "evil")
    seen = check(pipe, window)
    window.sidebar.filter.choose(SearchQuery(model=pipe.named("slug"), folder_id=folder.id))
    seen |= check(pipe, window.sidebar.filter_line)
    assert seen == {"chat", "model", "file", "note", "slug", "folder"}


def cards(pipe: Pipe, kind: HeadKind | None = None) -> tuple[ModelCard, ...]:
    """Return two models, or drafters, of which one cannot be used."""
    return tuple(
        ModelCard(pipe.named(f"{what}name"), pipe.named(what), pipe.named("place"), kind=kind, problem=problem)
        for what, problem in (("fit", ""), ("unfit", pipe.named("problem")))
    )


def test_the_menus_of_models_and_folders(window: MainWindow, chat: Chat, pipe: Pipe) -> None:
    filled(chat, pipe)
    chat.chats.order.create_folder(pipe.named("folder"))
    chat.start()
    search = FolderSearch(lambda: cards(pipe))
    window.header.model.offer_models(search)
    window.header.model.look_for_models()
    chat.qtbot.waitUntil(lambda: len(window.header.model.choices()) == 1)
    menu = window.header.model.menu()
    assert check_tips(pipe, menu_tips(menu)) == {"fit", "unfitname", "problem"}
    texts = [action.text() for action in menu.actions()]
    assert pipe.named("fitname").replace("&", "&&") in texts
    assert any(pipe.named("place").replace("&", "&&") in text for text in texts)
    check_tips(pipe, menu_tips(window.sidebar.filter.menu()))
    search.finish_work()


def test_sheets_and_questions(window: MainWindow, theme: Theme, pipe: Pipe) -> None:
    regenerate = RegenerateSheet(
        pipe.named("model"), lambda: [(pipe.named("other"), "/other")], "", SamplingParams(), theme=theme, parent=window
    )
    regenerate.open()
    regenerate.model.setCurrentIndex(1)
    assert "model" in check(pipe, regenerate)
    file = FileReport(
        pipe.named("file"), "ChatGPT", without=(PartialChat(pipe.named("title"), "1 image"),),
        not_taken=(SkippedChat(pipe.named("chat"), pipe.named("why")),),
    )  # fmt: skip
    report = report_sheet(window, theme, ImportReport((file,)), lambda: None)
    for sheet in (
        export_sheet(window, theme, pipe.named("chat"), lambda *_choice: None, in_project=True),
        Sheet(window, theme, pipe.named("title"), pipe.named("text"), [("OK", lambda: None)]),
        report,
    ):
        sheet.open()
        check(pipe, sheet)
    listed = report.findChild(QPlainTextEdit)
    for what in ("title", "chat", "why"):
        assert pipe.named(what) in listed.toPlainText()
    boxes = [
        ask(window, pipe.named("question"), pipe.named("detail"), "Do it", lambda: None),
        message_box(QMessageBox.Icon.Warning, pipe.named("failed"), pipe.named("why"), parent=window),
    ]
    for box in boxes:
        box.open()
        check(pipe, box)


def test_a_browser_fetches_nothing(qtbot: QtBot, pipe: Pipe) -> None:
    browser = OfflineBrowser()
    qtbot.addWidget(browser)
    browser.setHtml(f'<link rel="stylesheet" href="{pipe.path}">{pipe.named("page")}')
    browser.show()
    browser.grab()


_OWNER = "ui/style/labels.py"
_OWNED = {"set_tip", "show_tip", "PlainLabel", "OfflineBrowser", "message_box"}  # what may do it there
_SETTERS = {
    "setToolTip", "setStatusTip", "setWhatsThis", "setTabToolTip", "setTabWhatsThis", "setToolTipText",
    "showText",  # of QToolTip and QWhatsThis
    "setTextFormat", "setHtml", "insertHtml", "setMarkdown", "insertMarkdown", "fromHtml", "fromMarkdown",
    "setDefaultStyleSheet", "setSource", "addResource",
}  # fmt: skip
_WIDGETS = {
    "QLabel", "QMessageBox", "QErrorMessage", "QInputDialog", "QProgressDialog", "QSplashScreen", "QTextBrowser",
    "QTextEdit", "QTextDocument", "QGraphicsTextItem", "QStaticText", "QWizardPage", "QWhatsThis",
}  # fmt: skip
_ALLOWED = {
    ("ui/transcript/markdown/copying.py", "setHtml"),  # of the clipboard's data: for other programs
    ("ui/sidebar/rows.py", "ToolTipRole"),  # answered with `tip_text`; the main window's test looks at it
}
_PROPERTIES = {"toolTip", "statusTip", "whatsThis", "textFormat", "html", "markdown"}  # which PySide takes as arguments
_ROLES = {"ToolTipRole", "StatusTipRole", "WhatsThisRole"}


def _sources() -> list[Path]:
    root = Path(rdchat.__file__).parent
    return [path for path in sorted(root.rglob("*.py")) if "PySide6" in path.read_text(encoding="utf-8")]


def _faults(source: str, name: str) -> list[str]:
    """Return what a source gives to Qt by itself."""
    tree = ast.parse(source)
    if name == _OWNER:
        tree.body = [node for node in tree.body if getattr(node, "name", "") not in _OWNED]
    return [
        f"{name}:{node.lineno}: {used}"
        for node in ast.walk(tree)
        for used in _used(node)
        if (name, used) not in _ALLOWED
    ]


def _used(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield from (base.id for base in node.bases if isinstance(base, ast.Name) and base.id in _WIDGETS)
    if isinstance(node, ast.Attribute) and node.attr in _ROLES:
        yield node.attr
    if not isinstance(node, ast.Call):
        return
    called = node.func
    owner = called.value if isinstance(called, ast.Attribute) else None
    name = called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
    if name in _WIDGETS or (owner is not None and name in _SETTERS):
        if not any(map(_is_tip_text, node.args)):
            yield name
    elif isinstance(owner, ast.Name) and owner.id in _WIDGETS and name[0].islower():
        yield owner.id  # QMessageBox.warning(...), not QTextEdit.ExtraSelection()
    yield from (keyword.arg for keyword in node.keywords if keyword.arg in _PROPERTIES)


def _is_tip_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "tip_text"


@pytest.mark.slow
def test_texts_reach_qt_through_one_module() -> None:
    root = Path(rdchat.__file__).parent
    sources = _sources()
    assert len(sources) > 100
    faults = [
        fault for path in sources for fault in _faults(path.read_text("utf-8"), path.relative_to(root).as_posix())
    ]
    assert not faults, "use rdchat.ui.style.labels"


@pytest.mark.parametrize(
    "source",
    [
        "button.setToolTip(name)",
        "QToolTip.showText(place, name, widget)",
        "action.setStatusTip(name)",
        "tabs.setTabToolTip(0, name)",
        "label = QLabel(name)",
        "label = QtWidgets.QLabel(name)",
        "class Label(QLabel): pass",
        "label.setTextFormat(Qt.TextFormat.RichText)",
        "box = QMessageBox(icon, title, name)",
        "QMessageBox.warning(parent, title, name)",
        "QInputDialog.getText(parent, title, name)",
        "class View(QTextBrowser): pass",
        "document = QTextDocument()",
        "view.setHtml(name)",
        "button = QPushButton(name, toolTip=name)",
        "combo.setItemData(0, name, Qt.ItemDataRole.ToolTipRole)",
        "def data(index, role):\n    if role == Qt.ItemDataRole.ToolTipRole:\n        return name",
    ],
)
def test_a_text_given_to_qt_elsewhere_is_found(source: str) -> None:
    assert _faults(source, "ui/some.py")
