"""One reply of a race: who runs, how fast, for how long, and what is written so far."""

from PySide6.QtGui import QTextCursor
from PySide6.QtWidgets import QGridLayout, QPlainTextEdit, QProgressBar, QWidget

from rdchat.services.engine.race import Replay, ReplayState
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.layouts import column
from rdchat.ui.look.theme import TIGHT, Theme


class ReplayView(QWidget):
    """Shows a `Replay` at the moment it is told."""

    def __init__(self, theme: Theme, name: str, placeholder: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._replay: Replay | None = None
        self._characters = 0
        self.name = ElidedLabel(theme, name, bold=True)
        self.speed = ThemedLabel(theme, formatting.NONE, "muted", points_more=10, bold=True, tabular=True)
        self.unit = ThemedLabel(theme, "tokens/s", "muted")
        self.state = ThemedLabel(theme, " ", "muted", tabular=True)
        self.text = QPlainTextEdit(readOnly=True)
        self.text.setTabChangesFocus(True)
        self.text.setPlaceholderText(placeholder)
        self.progress = QProgressBar(textVisible=False, maximum=1000)
        self.progress.setFixedHeight(6)
        self._lay_out()
        theme.changed.connect(self._restyle)
        self._restyle()
        self.show_name(name)

    def _lay_out(self) -> None:
        head = QGridLayout()
        head.setHorizontalSpacing(TIGHT + 2)
        head.setVerticalSpacing(0)
        head.addWidget(self.name, 0, 0, 1, 2)
        head.addWidget(self.speed, 1, 0, 2, 1)
        head.addWidget(self.unit, 1, 1)
        head.addWidget(self.state, 2, 1)
        head.setColumnStretch(1, 1)
        head.setColumnMinimumWidth(0, self.fontMetrics().horizontalAdvance("000.0") * 2)  # figures keep their place
        column(head, self.progress, (self.text, 1), within=self)

    def show_name(self, name: str) -> None:
        self.name.setText(name)
        self.text.setAccessibleName(f"Reply: {name}")
        self.progress.setAccessibleName(f"Progress: {name}")

    def load(self, replay: Replay | None) -> None:
        """Take another recorded reply, and show nothing of it yet."""
        self._replay = replay
        self._rewind()
        self.speed.setText(formatting.NONE)
        self.speed.set_color("muted")
        self.state.setText(" ")  # an empty label would be lower
        self.progress.setValue(0)

    def show_moment(self, clock_ms: float) -> None:
        """Show the replay as it was `clock_ms` after the request; going back is possible."""
        if self._replay is None:
            return
        state = self._replay.at(clock_ms)
        if state.characters < self._characters:
            self._rewind()
        self._write(self._replay.text[self._characters : state.characters])
        self._characters = state.characters
        self._show_figures(state)

    def _show_figures(self, state: ReplayState) -> None:
        total = len(self._replay.run.token_ids) if self._replay else 0
        self.speed.setText(formatting.rate(state.tokens_per_s))
        self.speed.set_color("muted" if state.tokens_per_s is None else "text")
        elapsed = f"{state.elapsed_ms / 1000:.2f} s"
        self.state.setText(f"{formatting.counted(state.tokens, 'token')} in {elapsed}" if state.ended else elapsed)
        self.state.set_color("success" if state.ended else "muted")
        self.progress.setValue(round(1000 * state.tokens / total) if total else 0)

    def _rewind(self) -> None:
        self._characters = 0
        self.text.clear()

    def _write(self, text: str) -> None:
        if not text:
            return
        bar = self.text.verticalScrollBar()
        follow = bar.value() == bar.maximum()
        cursor = QTextCursor(self.text.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.insertText(text)
        if follow:
            bar.setValue(bar.maximum())

    def _restyle(self) -> None:
        self.text.setFont(self._theme.body_font())
