"""No source of the user interface gives Qt a text that it may take for HTML: `labels.py` does that alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rdchat

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
    found = [
        f"{name}:{node.lineno}: {used}"
        for node in ast.walk(tree)
        for used in _used(node)
        if (name, used) not in _ALLOWED
    ]
    answered = {id(node) for each in ast.walk(tree) for node in _roles_with_tips(each)}
    found += [
        f"{name}:{node.lineno}: {node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in _ROLES and id(node) not in answered
    ]
    return found


def _used(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield from (base.id for base in node.bases if isinstance(base, ast.Name) and base.id in _WIDGETS)
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


def _roles_with_tips(node: ast.AST) -> Iterator[ast.AST]:
    """Yield mentions of roles that are answered with `tip_text`, or whose data are set to it, or only read."""
    if isinstance(node, ast.If):
        returned = [each for each in ast.walk(ast.Module(node.body, [])) if isinstance(each, ast.Return)]
        if returned and all(_is_tip(each.value) for each in returned):
            yield from ast.walk(node.test)
    elif isinstance(node, ast.IfExp) and _is_tip(node.body):
        yield from ast.walk(node.test)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        sets = node.func.attr in {"setData", "setItemData", "setHeaderData"}
        if node.func.attr in {"data", "itemData", "headerData"} or (sets and any(map(_is_tip_text, node.args))):
            for argument in node.args:
                yield from ast.walk(argument)


def _is_tip(value: ast.expr | None) -> bool:
    if value is None or (isinstance(value, ast.Constant) and value.value is None):
        return True
    if isinstance(value, ast.IfExp):
        return _is_tip(value.body) and _is_tip(value.orelse)
    return _is_tip_text(value)


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
        "def data(index, role):\n    if role == Role.ToolTipRole:\n        return tip_text(a) if a else name",
        "def data(index, role):\n    return name if role == Qt.ItemDataRole.ToolTipRole else None",
        "def data(index, role):\n    return {Qt.ItemDataRole.ToolTipRole: name}.get(role)",
    ],
)
def test_a_text_given_to_qt_elsewhere_is_found(source: str) -> None:
    assert _faults(source, "ui/some.py")


@pytest.mark.parametrize(
    "source",
    [
        "set_tip(button, name)",
        "tabs.setTabToolTip(0, tip_text(name))",
        "selection = QTextEdit.ExtraSelection()",
        "QToolTip.hideText()",
        "label: QLabel = PlainLabel(name)",
        "label.setText(name)",
        "combo.setItemData(0, tip_text(name), Qt.ItemDataRole.ToolTipRole)",
        "def data(index, role):\n    if role == Qt.ItemDataRole.ToolTipRole:\n        return tip_text(name)",
        "def data(index, role):\n    return tip_text(a) if role == Qt.ItemDataRole.ToolTipRole else None",
    ],
)
def test_the_ways_of_the_project_are_not_found_fault_with(source: str) -> None:
    assert not _faults(source, "ui/some.py")
