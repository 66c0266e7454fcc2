"""Puts messages and selections on the clipboard in the form that is wanted."""

import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum

from PySide6.QtCore import QMimeData, QObject, QTimer
from PySide6.QtGui import QGuiApplication

from rdchat.ui.transcript.copying.excerpt import reading
from rdchat.ui.transcript.copying.markdown_text import as_markdown, as_plain
from rdchat.ui.transcript.copying.rich_text import as_html
from rdchat.ui.transcript.markdown.blocks import Block
from rdchat.ui.transcript.markdown.parser import Parser

_SLICE_S = 0.01  # of the main thread's time: a long text takes longer to be read than the window may wait


class CopyForm(StrEnum):
    """What a copy is, in words."""

    MARKDOWN = "Markdown"
    PLAIN = "Plain text"
    RICH = "Rich text"


def copy_blocks(blocks: Sequence[Block], form: CopyForm) -> None:
    """Put blocks on the clipboard; rich text has plain text beside it, for where only that is taken."""
    data = QMimeData()
    data.setText(as_markdown(blocks) if form is CopyForm.MARKDOWN else as_plain(blocks))
    if form is CopyForm.RICH:
        data.setHtml(as_html(blocks))
    QGuiApplication.clipboard().setMimeData(data)


class TextCopy(QObject):
    """Reads a text between the window's own events, then copies it. A copy that is asked for meanwhile replaces it."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        self._steps: Iterator[list[Block]] = iter(())
        self._blocks: list[Block] = []
        self._then: Callable[[list[Block]], object] = lambda _blocks: None
        self._timer = QTimer(self, interval=0)
        self._timer.timeout.connect(self._read)

    def copy(self, text: str, parser: Parser, form: CopyForm, then: Callable[[], object]) -> None:
        """Copy a text in a form, and call `then` when it is on the clipboard."""

        def done(blocks: list[Block]) -> None:
            copy_blocks(blocks, form)
            then()

        self._steps, self._blocks, self._then = reading(text, parser), [], done
        self._read()

    def _read(self) -> None:
        until = time.perf_counter() + _SLICE_S
        for blocks in self._steps:
            self._blocks = blocks
            if time.perf_counter() > until:
                self._timer.start()
                return
        self._timer.stop()
        self._then(self._blocks)
