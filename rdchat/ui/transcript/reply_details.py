"""Statistics of a finished reply: as a line of text, and in full in a popup."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QFrame, QWidget

from rdchat.chat.conversation import Drafting, MadeWith, Message
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Mode
from rdchat.ui.speed.figures import DEFINITIONS, FIGURES, FigureSource
from rdchat.ui.speed.sections import FigureRow
from rdchat.ui.style import formatting
from rdchat.ui.style.buttons import TextButton
from rdchat.ui.style.labels import ThemedLabel
from rdchat.ui.style.layouts import column, row
from rdchat.ui.style.theme import MEDIUM, SMALL, TIGHT, Theme

_NAMED = {Mode.SPECULATIVE, Mode.DRAFTER}  # prompt lookup is its own name
_LAST_PART = "of the last part"
_LIST_LENGTH = 4  # positions
_NAME_LENGTH = 24  # characters; the definition has the complete name
_WIDTH = 280
_FIRST = {"Speed", "Speed-up", "Time to first token"}  # the others are behind More
_IN_LINE = {
    "Speed": "{}",
    "Speed-up": "{}",
    "Tokens per step": "{} tokens per step",
    "Acceptance": "{} acceptance",
    "Steps with a draft": "steps with a draft: {}",
    "Time to first token": "first token {}",
    "Reading time": "reading {}",
}
_EDITED = "You edited this text. The figures of the model's text are with the original reply."
_TEMPERATURE = "How freely the model chose: 0 always takes the most likely token."


class Fact(NamedTuple):
    """A figure with its name and its definition."""

    name: str
    value: str
    definition: str


def summary(message: Message) -> list[str]:
    """Return the parts of the line of statistics, the most important first; what was not measured is left out."""
    s, drafting = message.statistics, message.drafting
    parts = ["edited" if message.edited else ""]
    if s is not None:
        figures = [(FIGURES[name](FigureSource(s)), form) for name, form in _IN_LINE.items()]
        kept = f"{s.cached_prompt_tokens:,} of {s.prompt_tokens:,} prompt tokens kept" if s.cached_prompt_tokens else ""
        parts += [
            _mode_text(drafting) if drafting else "",
            *(form.format(value) for value, form in figures if value != formatting.NONE),
            kept,
            f"drafter {drafter_name(drafting)}" if drafting and drafting.mode in _NAMED else "",
            _LAST_PART if drafting and drafting.last_part else "",
        ]
    return [part for part in parts if part]


def facts(message: Message) -> list[Fact]:
    """Return all that was kept of a reply; what was not measured is left out."""
    measured = [Fact("Text", "Edited by you", _EDITED)] if message.edited else []
    if message.statistics is not None:
        measured += [] if message.edited else _options(message.made_with)
        measured += [*_drafting(message.drafting), *_figures(message.statistics)]
    return [fact for fact in measured if fact.value not in ("", formatting.NONE)]


def _figures(statistics: Statistics) -> Iterator[Fact]:
    """Yield the figures; lists that are too long to show are in the definitions."""
    for name, text in FIGURES.items():
        value, definition = text(FigureSource(statistics)), DEFINITIONS[name]
        if name == "Kept per step" and statistics.accepted_lengths:
            lengths = ", ".join(map(str, statistics.lengths_of_drafts))
            definition += f" Steps that kept none, 1 and so on: {lengths}."
        elif name == "Acceptance by position, %" and value.count(",") >= _LIST_LENGTH:
            definition += f" From the first position on: {value}."
            value = f"{', '.join(value.split(', ')[:_LIST_LENGTH])}…"
        yield Fact(name, value, definition)


def drafter_name(drafting: Drafting) -> str:
    """Return the name of the drafter's folder, or of each of several."""
    sources = drafting.drafter.split(", ") if drafting.mode is Mode.AUTO else [drafting.drafter]
    return ", ".join(Path(source).name for source in sources) or formatting.NONE


def _options(made_with: MadeWith | None) -> list[Fact]:
    """Return the temperature of a reply, and the system prompt if it was of this reply alone."""
    options = []
    if made_with and made_with.sampling is not None:
        options.append(Fact("Temperature", f"{made_with.sampling.temperature:g}", _TEMPERATURE))
    if made_with and made_with.once and made_with.system_prompt is not None:
        prompt = made_with.system_prompt.strip()
        text = _shortened(" ".join(prompt.split()) or "None")
        options.append(Fact("System prompt", text, f"Of this reply alone: {prompt or 'none.'}"))
    return options


def _drafting(drafting: Drafting | None) -> list[Fact]:
    if drafting is None:
        return []
    name = _shortened(drafter_name(drafting)) if drafting.drafter else ""
    last_part = "The reply was continued: all figures are those of the part that was written last."
    return [
        Fact("Drafting", _mode_text(drafting), f"The drafting mode that ran. {drafting.reason}".rstrip()),
        Fact("Drafter", name, f"What proposed the tokens: {drafting.drafter}"),
        Fact("Figures", _LAST_PART if drafting.last_part else "", last_part),
    ]


def _mode_text(drafting: Drafting) -> str:
    kind = drafting.kind if drafting.mode is Mode.DRAFTER else None
    return f"{drafting.mode.label}, {kind.label}" if kind else drafting.mode.label


def _shortened(text: str) -> str:
    return text if len(text) <= _NAME_LENGTH else f"{text[: _NAME_LENGTH - 1].rstrip(' ,')}…"


class ReplyDetails(QFrame):
    """A popup with all statistics of one reply; a click beside it or Esc closes it."""

    tokens_requested = Signal()

    def __init__(self, message: Message, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setAccessibleName("Details of the reply")
        self.setFixedWidth(_WIDTH)
        parts = column(within=self, spacing=TIGHT + 2, margins=(MEDIUM, MEDIUM, MEDIUM, SMALL))
        if message.model:
            parts.addWidget(ThemedLabel(theme, message.model, bold=True))
        self.rest = QWidget()
        rest = column(within=self.rest, spacing=TIGHT + 2)
        for fact in facts(message):
            figure = FigureRow(theme, fact.name, fact.definition)
            figure.show_value(fact.value)
            (parts if fact.name in _FIRST else rest).addWidget(figure)
        parts.addWidget(self.rest)
        self.rest.hide()
        if message.drafting and message.drafting.reason:
            parts.addWidget(ThemedLabel(theme, message.drafting.reason, "muted", -1, wraps=True))
        self.more = TextButton("More", theme, self._show_rest)
        tokens = TextButton("Show Tokens", theme)
        tokens.clicked.connect(self.close)
        tokens.clicked.connect(self.tokens_requested)
        parts.addLayout(row(self.more, None, tokens))
        tokens.setFocus()

    def _show_rest(self) -> None:
        """Show all figures, at the same position."""
        self.more.hide()
        self.rest.show()
        self.open_above(self._anchor)

    def open_above(self, anchor: QWidget) -> None:
        """Show over a button, or below it where there is no room."""
        self._anchor = anchor
        self.adjustSize()
        corner = anchor.mapToGlobal(QPoint(0, -self.height() - TIGHT))
        room = anchor.screen().availableGeometry()
        if corner.y() < room.top():
            corner = anchor.mapToGlobal(QPoint(0, anchor.height() + TIGHT))
        corner.setX(max(room.left(), min(corner.x(), room.right() - self.width())))
        self.move(corner)
        self.show()
