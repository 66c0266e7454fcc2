"""Message boxes are Qt's own on every system: the alerts of macOS 27 crash for some. File dialogs stay the system's."""

import ast

import pytest
from PySide6.QtWidgets import QMessageBox
from pytestqt.qtbot import QtBot

from rdchat.ui.style.labels import message_box
from tests.project.scripts import ROOT, module_tree

# What makes an alert of the system by itself.
_FUNCTIONS = {"about", "aboutQt", "critical", "information", "question", "warning"}
# The first is Qt's dialog for errors, the other one would hold for file dialogs, too.
_NAMES = {"QErrorMessage", "AA_DontUseNativeDialogs"}


@pytest.mark.parametrize("icon", QMessageBox.Icon)
def test_a_message_box_is_not_the_systems(icon: QMessageBox.Icon, qtbot: QtBot) -> None:
    box = message_box(icon, "A question")
    qtbot.addWidget(box)
    assert box.testOption(QMessageBox.Option.DontUseNativeDialog)


def makes_alert(node: ast.AST) -> bool:
    """Return whether code makes a message box, or a class of them, without `message_box`."""
    match node:
        case ast.ClassDef():
            return any("QMessageBox" in ast.unparse(base) for base in node.bases)
        case ast.Call():
            return ast.unparse(node.func).endswith("QMessageBox")
        case ast.Attribute(attr=name) if name in _FUNCTIONS:
            return "QMessageBox" in ast.unparse(node.value)
        case ast.Attribute(attr=name) | ast.Name(id=name):
            return name in _NAMES
    return False


def alerts(tree: ast.Module) -> list[str]:
    return [ast.unparse(node) for node in ast.walk(tree) if makes_alert(node)]


@pytest.mark.parametrize(
    "code",
    [
        "QtWidgets.QMessageBox(parent)",
        "class Box(QMessageBox): pass",
        "QMessageBox.warning(parent, 'a', 'b')",
        "QErrorMessage()",
        "app.setAttribute(Qt.ApplicationAttribute.AA_DontUseNativeDialogs)",
    ],
)
def test_the_rule_knows_each_way_around(code: str) -> None:
    assert alerts(ast.parse(code))


def test_one_function_makes_all_message_boxes() -> None:
    found = {path.stem: found for path in (ROOT / "rdchat").rglob("*.py") if (found := alerts(module_tree(path)))}
    assert found == {"labels": ["QMessageBox(icon, title, '', parent=parent)"]}
