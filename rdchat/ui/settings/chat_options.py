"""The popover with one chat's options: system prompt, thinking, the answers' shape and sampling."""

from PySide6.QtCore import QPoint, QSignalBlocker, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QLayout, QWidget

from rdchat.services.chat.storage_watch import SettingsControl
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.services.order.chat_list import ChatList
from rdchat.ui.settings.answer_shape_form import AnswerShapeForm
from rdchat.ui.settings.sampling_form import SamplingForm
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.labels import ThemedLabel, set_tip
from rdchat.ui.style.layouts import choice_box, column, fill_box, row, text_field
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme

_WIDTH = 320


class ChatOptions(QWidget):
    """Shows the effective values and applies each change at once. A value equal to the preferences is not stored."""

    def __init__(self, desk: ChatList, preferences: SettingsControl, model: ModelSlot, theme: Theme) -> None:
        super().__init__(None, Qt.WindowType.Popup)
        self._desk, self._preferences, self._model, self._theme = desk, preferences, model, theme
        self.setAccessibleName("Chat options")
        self.prompt = text_field(4, "None. For example: You answer briefly, in plain words.")
        self.prompt.setMinimumWidth(_WIDTH)
        self.prompt.setAccessibleName("System prompt of this chat")
        set_tip(self.prompt, "Instructions that the model reads before the chat.")
        tip = "Whether the model thinks before it answers, and how much."
        self.thinking = choice_box("Thinking in this chat", tip, letters=0)
        self._thinking_row = QWidget()
        label = ThemedLabel(theme, "Thinking", bold=True)
        row((label, 1), self.thinking, within=self._thinking_row, spacing=-1, margins=(0, SMALL, 0, 0))
        self.shape = AnswerShapeForm(theme)
        self.form = SamplingForm(theme)
        self.source = ThemedLabel(theme, "", "muted", -1)
        self.defaults = push_button(
            "Use Defaults", "Use the values from Settings, and answers in any format", self._use_defaults
        )
        column(
            ThemedLabel(theme, "System prompt", bold=True),
            self.prompt,
            self._thinking_row,
            SMALL,
            self.shape,
            SMALL,
            ThemedLabel(theme, "Sampling", bold=True),
            self.form,
            TIGHT,
            row((self.source, 1), self.defaults, spacing=-1),
            within=self,
            margins=(LARGE, MEDIUM + TIGHT, LARGE, MEDIUM + TIGHT),
        ).setSizeConstraint(QLayout.SizeConstraint.SetFixedSize)  # it grows when a problem is shown
        self.prompt.textChanged.connect(self._apply)
        self.thinking.activated.connect(self._apply_thinking)
        self.shape.edited.connect(self._apply_shape)
        self.form.edited.connect(self._apply)

    def open_below(self, anchor: QWidget) -> None:
        """Open below a button, inside the screen."""
        self.refresh()
        self.adjustSize()
        corner = anchor.mapToGlobal(QPoint(anchor.width() - self.width(), anchor.height() + TIGHT))
        screen = anchor.screen().availableGeometry()
        left = max(screen.left() + TIGHT, min(corner.x(), screen.right() - self.width() - TIGHT))
        self.move(left, min(corner.y(), max(screen.top(), screen.bottom() - self.height() - TIGHT)))
        self.show()
        self.prompt.setFocus()

    def refresh(self) -> None:
        """Show the effective values."""
        about = self._desk.chat.about
        prompt, sampling = about.system_prompt, about.sampling
        settings = self._preferences.settings
        shown = settings.system_prompt if prompt is None else prompt
        if self.prompt.toPlainText() != shown:
            with QSignalBlocker(self.prompt):
                self.prompt.setPlainText(shown)
        self.form.set_sampling(sampling or settings.sampling_for(self._model.sampling))
        self._show_thinking()
        self.shape.set_shape(about.answer_shape)
        self._show_source()

    def _show_thinking(self) -> None:
        """Offer the choices of the model's chat template; hide the row if there are none."""
        found = self._model.info.thinking if self._model.info else ()
        self._thinking_row.setVisible(bool(found))
        choices = [("Model's default", None), *((each.value.capitalize(), each) for each in found)]
        chosen = self._desk.chat.about.thinking_choice
        fill_box(self.thinking, choices, chosen if chosen in found else None)

    def _apply_thinking(self) -> None:
        self._desk.chat.set_options(thinking_choice=self.thinking.currentData())
        self._show_source()

    def _apply_shape(self) -> None:
        self._desk.chat.set_options(answer_shape=self.shape.shape())
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
        sampling = None if values == settings.sampling_for(self._model.sampling) else values
        self._desk.chat.set_options(system_prompt=prompt, sampling=sampling)
        self._show_source()

    def _use_defaults(self) -> None:
        self._desk.chat.set_options(system_prompt=None, sampling=None, thinking_choice=None, answer_shape=None)
        self.refresh()

    def _show_source(self) -> None:
        desk = self._desk
        about = desk.chat.about
        own = about.has_own_options
        self.source.setText("Changed for this chat" if own else "Same as in Settings")
        self.defaults.setEnabled(own)
        chosen = self.form.fields if about.sampling else self._preferences.settings.chosen_sampling
        self.form.show_sources(self._model.sampling, chosen)
