"""Copies messages and selections as Markdown, plain text or rich text."""

from collections.abc import Sequence
from enum import StrEnum

from PySide6.QtCore import QStringListModel
from PySide6.QtGui import QGuiApplication

from rdchat.ui.look.copied_text import without_controls
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


def copy_blocks(blocks: Sequence[Block], form: CopyForm) -> None:
    """Put blocks on the clipboard; rich text comes with plain text for programs that take nothing else."""
    # made by Qt and then emptied: one made here would outlive Python on the clipboard, and crash the exit
    source = QStringListModel([""])
    data = source.mimeData([source.index(0, 0)])
    data.clear()
    data.setText(without_controls(as_markdown(blocks) if form is CopyForm.MARKDOWN else as_plain(blocks)))
    if form is CopyForm.RICH:
        data.setHtml(without_controls(as_html(blocks)))
    QGuiApplication.clipboard().setMimeData(data)


def copy_text(text: str, parser: Parser, form: CopyForm) -> None:
    """Put a text on the clipboard in a form."""
    copy_blocks(blocks_of(text, parser), form)
