"""Statistics of a finished reply: as a line of text, and in full in a popup."""

from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QFrame, QWidget

from rdchat.chat.conversation import Drafting, MadeWith, Message
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Mode
from rdchat.ui.speed.sections import FigureRow
from rdchat.ui.style import definitions, formatting
from rdchat.ui.style.buttons import TextButton
from rdchat.ui.style.labels import ThemedLabel
from rdchat.ui.style.layouts import column, row
from rdchat.ui.style.theme import MEDIUM, SMALL, TIGHT, Theme

_NAMED = {Mode.SPECULATIVE, Mode.DRAFTER}  # prompt lookup is its own name
_LAST_PART = "of the last part"
_POSITIONS_LISTED = 4
_NAME_SHOWN = 24  # characters; the definition has all of it
_WIDTH = 280
_FIRST = {"Speed", "Speed-up", "Time to first token"}  # the others are behind More


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
        parts += [
            _mode_text(drafting) if drafting else "",
            _with_unit(formatting.rate(s.decode_tps), "tokens/s"),
            formatting.speedup(s),
            _with_unit(formatting.decimal(s.tokens_per_target_call), "tokens per step"),
            _with_unit(formatting.acceptance(s), "acceptance"),
            f"{formatting.counted(s.drafted_rounds, 'step')} with a draft" if s.rounds else "",
            f"first token {formatting.duration(s.ttft_ms)}" if s.ttft_ms else "",
            f"reading {formatting.duration(s.prefill_ms)}" if s.prefill_ms else "",
            f"{s.cached_prompt_tokens:,} of {s.prompt_tokens:,} prompt tokens kept" if s.cached_prompt_tokens else "",
            f"drafter {drafter_name(drafting)}" if drafting and drafting.mode in _NAMED else "",
            _LAST_PART if drafting and drafting.last_part else "",
        ]
    return [part for part in parts if part]


def facts(message: Message) -> list[Fact]:
    """Return all that was kept of a reply."""
    found = [Fact("Text", "Edited by you", definitions.EDITED)] if message.edited else []
    if message.statistics is not None:
        found += [] if message.edited else _options(message.made_with)
        found += [*_drafting(message.drafting), *_speed(message.statistics), *_drafts(message.statistics)]
        found += _sizes(message.statistics)
    return [fact for fact in found if fact.value]


def drafter_name(drafting: Drafting) -> str:
    """Return the name of the drafter's folder, or of each of several."""
    sources = drafting.drafter.split(", ") if drafting.mode is Mode.AUTO else [drafting.drafter]
    return ", ".join(Path(source).name for source in sources) or formatting.NONE


def _options(made_with: MadeWith | None) -> list[Fact]:
    """Return the temperature of a reply, and the system prompt if it was of this reply alone."""
    found = []
    if made_with and made_with.sampling is not None:
        found.append(Fact("Temperature", f"{made_with.sampling.temperature:g}", definitions.TEMPERATURE))
    if made_with and made_with.once and made_with.system_prompt is not None:
        prompt = made_with.system_prompt.strip()
        words = _shortened(" ".join(prompt.split()) or "None")
        found.append(Fact("System prompt", words, f"Of this reply alone: {prompt or 'none.'}"))
    return found


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


def _speed(s: Statistics) -> list[Fact]:
    prefill = ", ".join(part for part in (formatting.duration(s.prefill_ms), formatting.reading_speed(s)) if part)
    plain = _with_unit(formatting.rate(s.plain_tps), "tokens/s") if s.speedup_range else ""
    return [
        Fact("Speed", _with_unit(formatting.rate(s.decode_tps), "tokens/s") or formatting.NONE, definitions.SPEED),
        Fact("Without drafting", plain, definitions.PLAIN),
        Fact("Speed-up", formatting.speedup(s), definitions.RATIO),
        Fact("Time to first token", formatting.duration(s.ttft_ms), definitions.TTFT),
        Fact("Reading", prefill, "Reading the prompt; tokens kept from the turn before do not count."),
        Fact("Writing time", formatting.duration(s.decode_ms), definitions.DECODE_TIME),
    ]


def _drafts(s: Statistics) -> list[Fact]:
    """Return how well the drafts did; lists that are too long to show are in the definitions."""
    if not s.rounds:
        return []
    shares = [f"{share * 100:.0f}" for share in s.acceptance_by_position]
    shown = ", ".join(shares[:_POSITIONS_LISTED]) + ("…" if len(shares) > _POSITIONS_LISTED else "")
    all_shares = f"{definitions.POSITIONS} From the first place on: {', '.join(shares)}."
    lengths = ", ".join(map(str, s.lengths_of_drafts))
    all_lengths = f"{definitions.KEPT} Steps that kept none, 1 and so on: {lengths}."
    kept = formatting.accepted_per_step(s) if s.accepted_lengths and s.drafted_rounds else ""
    checked = formatting.checked_per_step(s) if s.verified_nodes else ""
    syncs = formatting.decimal(s.host_syncs / s.target_calls) if s.host_syncs and s.target_calls else ""
    dropped = formatting.count(s.dropped_drafts) if s.dropped_drafts else ""
    return [
        Fact("Tokens per step", formatting.decimal(s.tokens_per_target_call), definitions.TOKENS_PER_STEP),
        Fact("Checked per step", checked, definitions.NODES),
        Fact("Kept per step", kept, all_lengths),
        Fact("Acceptance", formatting.acceptance(s), definitions.ACCEPTANCE),
        Fact("Acceptance by position, %", shown, all_shares),
        Fact("Steps with a draft", formatting.count(s.drafted_rounds), definitions.ROUNDS),
        Fact("Dropped drafts", dropped, definitions.DROPPED_DRAFTS),
        Fact("Waits per step", syncs, definitions.HOST_SYNCS),
    ]


def _sizes(s: Statistics) -> list[Fact]:
    kept = f", {s.cached_prompt_tokens:,} kept" if s.cached_prompt_tokens else ""
    accepted_text = "Tokens of the conversation. Cached ones were not read again."
    context = formatting.counted(s.context_tokens, "token") if s.context_tokens else ""
    memory = formatting.memory(s.peak_memory_bytes) if s.peak_memory_bytes else ""
    return [
        Fact("Tokens written", formatting.count(s.generated_tokens), definitions.TOKENS_WRITTEN),
        Fact("Prompt tokens", f"{formatting.count(s.prompt_tokens)}{kept}", accepted_text),
        Fact("Context", context, definitions.CONTEXT),
        Fact("Peak memory", memory, definitions.PEAK_MEMORY),
    ]


def _mode_text(drafting: Drafting) -> str:
    kind = drafting.kind if drafting.mode is Mode.DRAFTER else None
    return f"{drafting.mode.words}, {kind.words}" if kind else drafting.mode.words


def _shortened(words: str) -> str:
    return words if len(words) <= _NAME_SHOWN else f"{words[: _NAME_SHOWN - 1].rstrip(' ,')}…"


def _with_unit(figure: str, unit: str) -> str:
    return "" if figure == formatting.NONE else f"{figure} {unit}"


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
        """Show all figures, in the same place."""
        self.more.hide()
        self.rest.show()
        self.open_above(self._anchor)

    def open_above(self, anchor: QWidget) -> None:
        """Show over a button, or below it where there is no room."""
        self._anchor = anchor
        self.adjustSize()
        place = anchor.mapToGlobal(QPoint(0, -self.height() - TIGHT))
        room = anchor.screen().availableGeometry()
        if place.y() < room.top():
            place = anchor.mapToGlobal(QPoint(0, anchor.height() + TIGHT))
        place.setX(max(room.left(), min(place.x(), room.right() - self.width())))
        self.move(place)
        self.show()
