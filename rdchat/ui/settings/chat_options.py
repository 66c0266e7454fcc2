"""The popover for what one chat does differently: its system prompt, its thinking and its sampling."""

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from rdchat.services.chat.chat_list import ChatList
from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.settings.sampling_form import SamplingForm

_WIDTH = 320


class ChatOptions(QWidget):
    """Shows the values in force and applies each change at once. What equals the preferences is not kept apart."""

    def __init__(
        self,
        desk: ChatList,
        preferences: SettingsControl,
        model: ModelSlot,
        theme: Theme,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self._desk, self._preferences, self._model, self._theme = desk, preferences, model, theme
        self.setAccessibleName("Chat options")
        self.prompt = QPlainTextEdit()
        self.prompt.setMinimumWidth(_WIDTH)
        self.prompt.setFixedHeight(self.prompt.fontMetrics().lineSpacing() * 4 + 12)
        self.prompt.setPlaceholderText("None. For example: You answer briefly, in plain words.")
        self.prompt.setAccessibleName("System prompt of this chat")
        set_tip(self.prompt, "Instructions the model reads before the conversation.")
        self.prompt.setTabChangesFocus(True)
        self.thinking = QComboBox()
        self.thinking.setAccessibleName("Thinking in this chat")
        set_tip(self.thinking, "Whether, or how much, the model thinks before it answers.")
        self._thinking_row = QWidget()
        row = QHBoxLayout(self._thinking_row)
        row.setContentsMargins(0, SMALL, 0, 0)
        row.addWidget(ThemedLabel(theme, "Thinking", bold=True), 1)
        row.addWidget(self.thinking)
        self.form = SamplingForm(theme)
        self.source = ThemedLabel(theme, "", "muted", -1)
        self.defaults = QPushButton("Use defaults")
        set_tip(self.defaults, "Take system prompt and sampling from the preferences again")
        self.defaults.setAutoDefault(False)
        foot = QHBoxLayout()
        foot.addWidget(self.source, 1)
        foot.addWidget(self.defaults)
        layout = QVBoxLayout(self)
        layout.setSizeConstraint(QVBoxLayout.SizeConstraint.SetFixedSize)  # grows where a problem is told
        layout.setContentsMargins(LARGE, MEDIUM + TIGHT, LARGE, MEDIUM + TIGHT)
        layout.setSpacing(SMALL)
        layout.addWidget(ThemedLabel(theme, "System prompt", bold=True))
        layout.addWidget(self.prompt)
        layout.addWidget(self._thinking_row)
        layout.addSpacing(SMALL)
        layout.addWidget(ThemedLabel(theme, "Sampling", bold=True))
        layout.addWidget(self.form)
        layout.addSpacing(TIGHT)
        layout.addLayout(foot)
        self.prompt.textChanged.connect(self._apply)
        self.thinking.activated.connect(self._apply_thinking)
        self.form.edited.connect(self._apply)
        self.defaults.clicked.connect(self._use_defaults)

    def open_below(self, anchor: QWidget) -> None:
        """Show the chat's values under a button, inside the screen."""
        self.refresh()
        self.adjustSize()
        corner = anchor.mapToGlobal(QPoint(anchor.width() - self.width(), anchor.height() + TIGHT))
        screen = anchor.screen().availableGeometry()
        left = max(screen.left() + TIGHT, min(corner.x(), screen.right() - self.width() - TIGHT))
        self.move(left, min(corner.y(), max(screen.top(), screen.bottom() - self.height() - TIGHT)))
        self.show()
        self.prompt.setFocus()

    def refresh(self) -> None:
        """Show the values in force."""
        prompt, sampling = self._desk.chat.system_prompt, self._desk.chat.sampling
        settings = self._preferences.settings
        shown = settings.system_prompt if prompt is None else prompt
        if self.prompt.toPlainText() != shown:
            self.prompt.blockSignals(True)
            self.prompt.setPlainText(shown)
            self.prompt.blockSignals(False)
        self.form.set_sampling(sampling or settings.sampling)
        self._show_thinking()
        self._show_source()

    def _show_thinking(self) -> None:
        """Offer what the model's chat template has a switch for; nothing where it has none."""
        found = self._model.info.thinking if self._model.info else ()
        self._thinking_row.setVisible(bool(found))
        self.thinking.clear()
        self.thinking.addItem("As the model does", None)
        for each in found:
            self.thinking.addItem(each.value.capitalize(), each)
        self.thinking.setCurrentIndex(max(0, self.thinking.findData(self._desk.chat.thinking)))

    def _apply_thinking(self) -> None:
        self._desk.chat.set_thinking(self.thinking.currentData())
        self._show_source()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self._theme.colors.muted)
        painter.setBrush(self._theme.colors.window)
        painter.drawRect(self.rect().adjusted(0, 0, -1, -1))

    def _apply(self) -> None:
        settings = self._preferences.settings
        if self.form.problem.isVisibleTo(self):
            return
        text = self.prompt.toPlainText()
        prompt = None if text == settings.system_prompt else text
        values = self.form.sampling()
        sampling = None if values == settings.sampling else values
        self._desk.chat.set_options(prompt, sampling)
        self._show_source()

    def _use_defaults(self) -> None:
        self._desk.chat.set_options(None, None)
        self._desk.chat.set_thinking(None)
        self.refresh()

    def _show_source(self) -> None:
        desk = self._desk
        own = any(each is not None for each in (desk.chat.system_prompt, desk.chat.sampling, desk.chat.thinking))
        self.source.setText("Changed for this chat" if own else "As in the preferences")
        self.defaults.setEnabled(own)
