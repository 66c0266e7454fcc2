"""Copies messages and selections as Markdown, plain text or rich text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from PySide6.QtCore import QObject, QStringListModel
from PySide6.QtGui import QGuiApplication

from rdchat.services.background.background_work import BackgroundWork
from rdchat.ui.look.plain_text import without_controls
from rdchat.ui.transcript.markdown.blocks import Block
from rdchat.ui.transcript.markdown.markdown_text import as_markdown, as_plain
from rdchat.ui.transcript.markdown.parser import Parser
from rdchat.ui.transcript.markdown.rich_text import as_html
from rdchat.ui.transcript.markdown.selection import blocks_of


class CopyForm(StrEnum):
    """The form of a copy, as menus name it."""

    MARKDOWN = "Markdown"
    PLAIN = "Plain text"
    RICH = "Rich text"


@dataclass(frozen=True, slots=True)
class _Copied:
    """The contents of the clipboard; rich text comes with plain text for programs that take nothing else."""

    text: str
    html: str = ""


def copy_blocks(blocks: Sequence[Block], form: CopyForm) -> None:
    """Put blocks on the clipboard."""
    _put(_in_form(blocks, form))


class TextCopy(QObject):
    """Copies long texts in the background; a new copy replaces one that is still running."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._then: Callable[[], object] = lambda: None
        self._task = BackgroundWork("copy", self)

    def copy(self, text: str, make_parser: Callable[[], Parser], form: CopyForm, then: Callable[[], object]) -> None:
        """Copy a text in a form, and call `then` when it is on the clipboard."""
        self._then = then
        self._task.replace(lambda _job: _in_form(blocks_of(text, make_parser()), form), self._on_done)

    def _on_done(self, copied: _Copied) -> None:
        _put(copied)
        self._then()


def _in_form(blocks: Sequence[Block], form: CopyForm) -> _Copied:
    if form is CopyForm.MARKDOWN:
        return _Copied(as_markdown(blocks))
    return _Copied(as_plain(blocks), as_html(blocks) if form is CopyForm.RICH else "")


def _put(copied: _Copied) -> None:
    # made by Qt and then emptied: one made here would outlive Python on the clipboard, and crash the exit
    source = QStringListModel([""])
    data = source.mimeData([source.index(0, 0)])
    data.clear()
    data.setText(without_controls(copied.text))
    if copied.html:
        data.setHtml(without_controls(copied.html))
    QGuiApplication.clipboard().setMimeData(data)
