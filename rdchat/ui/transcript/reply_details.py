"""Statistics of a finished reply: in words, as a line beside its buttons, and in full in a popup."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QPoint, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QFrame, QSizePolicy, QVBoxLayout, QWidget

from rdchat.chat.conversation import Drafting, Message
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Mode
from rdchat.ui.look import definitions, formatting
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme, control_font
from rdchat.ui.speed.sections import FigureRow

_NAMED = {Mode.SPECULATIVE, Mode.DRAFTER}  # prompt lookup is its own name
_LAST_PART = "of the last part"
_POSITIONS_SHOWN = 4
_NAME_SHOWN = 24  # characters; the definition has all of it
_BETWEEN = " · "
_WIDTH = 280


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure with its name and its definition."""

    name: str
    value: str
    definition: str


def summary(message: Message) -> list[str]:
    """Return the parts of the line of statistics, the most important first; what was not measured is left out."""
    statistics = message.statistics
    edited = "edited" if message.edited else ""
    if statistics is None:
        return [edited] if edited else []
    drafting = message.drafting
    said = [
        edited,
        _mode_words(drafting) if drafting else "",
        _with_unit(formatting.rate(statistics.decode_tps), "tokens/s"),
        formatting.ratio(statistics.speedup) if statistics.speedup and statistics.rounds else "",
        _with_unit(formatting.decimal(statistics.tokens_per_target_call), "per call"),
        _with_unit(formatting.percent(statistics.acceptance_rate), "accepted"),
        formatting.counted(statistics.rounds, "round") if statistics.rounds else "",
        f"first token {formatting.duration(statistics.ttft_ms)}" if statistics.ttft_ms else "",
        f"prefill {formatting.duration(statistics.prefill_ms)}" if statistics.prefill_ms else "",
        _kept(statistics),
        f"drafter {drafter_name(drafting)}" if drafting and drafting.mode in _NAMED else "",
        _LAST_PART if drafting and drafting.last_part else "",
    ]
    return [part for part in said if part]


def facts(message: Message) -> list[Fact]:
    """Return all that was kept of a reply."""
    statistics = message.statistics
    found = _making(message)
    if statistics is not None:
        found += [*_how(message.drafting), *_speed(statistics), *_drafts(statistics), *_sizes(statistics)]
    return [fact for fact in found if fact.value]


def drafter_name(drafting: Drafting) -> str:
    """Return the name of the drafter's folder, or of each of several."""
    sources = drafting.drafter.split(", ") if drafting.mode is Mode.AUTO else [drafting.drafter]
    return ", ".join(Path(source).name for source in sources) or formatting.NONE


def _making(message: Message) -> list[Fact]:
    """Return the options of the reply, and whether the person changed its text."""
    if message.edited:
        return [Fact("Text", "Edited by you", definitions.EDITED)]
    made_with = message.made_with
    if made_with is None or message.statistics is None:
        return []
    found = []
    if made_with.sampling is not None:
        found.append(Fact("Temperature", f"{made_with.sampling.temperature:g}", definitions.TEMPERATURE))
    if made_with.once and made_with.system_prompt is not None:
        words = " ".join(made_with.system_prompt.split()) or "None"
        short = words if len(words) <= _NAME_SHOWN else f"{words[: _NAME_SHOWN - 1].rstrip()}…"
        found.append(Fact("System prompt", short, f"Of this reply alone: {made_with.system_prompt.strip() or 'none.'}"))
    return found


def _how(drafting: Drafting | None) -> list[Fact]:
    if drafting is None:
        return []
    reason = f" {drafting.reason}" if drafting.reason else ""
    found = [Fact("Drafting", _mode_words(drafting), f"The drafting mode that ran.{reason}")]
    if drafting.drafter:
        name = drafter_name(drafting)
        short = name if len(name) <= _NAME_SHOWN else f"{name[: _NAME_SHOWN - 1].rstrip(' ,')}…"
        found.append(Fact("Drafter", short, f"What proposed the tokens: {drafting.drafter}"))
    if drafting.last_part:
        told = "The reply was continued: all figures are those of the part that was written last."
        found.append(Fact("Figures", _LAST_PART, told))
    return found


def _speed(statistics: Statistics) -> list[Fact]:
    speed = _with_unit(formatting.rate(statistics.decode_tps), "tokens/s") or formatting.NONE
    plain = _with_unit(formatting.rate(statistics.plain_tps), "tokens/s") if statistics.speedup else ""
    # a plainly decoded reply has no rounds: what it is compared with was measured later
    ratio = formatting.ratio(statistics.speedup) if statistics.speedup and statistics.rounds else ""
    rate = _with_unit(formatting.rate(statistics.prefill_tps), "tokens/s")
    prefill = formatting.duration(statistics.prefill_ms) + (f", {rate}" if rate else "")
    return [
        Fact("Speed", speed, definitions.SPEED),
        Fact("Plain decoding", plain, definitions.PLAIN),
        Fact("Ratio to plain decoding", ratio, definitions.RATIO),
        Fact("Time to first token", formatting.duration(statistics.ttft_ms), definitions.TTFT),
        Fact("Prefill", prefill, "Reading the prompt; tokens kept from the turn before do not count."),
        Fact("Decode", formatting.duration(statistics.decode_ms), definitions.DECODE_TIME),
    ]


def _drafts(statistics: Statistics) -> list[Fact]:
    """Return how well the drafts did; lists that are too long to show are in the definitions."""
    rounds = statistics.rounds
    if not rounds:
        return []
    per_call = formatting.decimal(statistics.tokens_per_target_call)
    accepted = f"{formatting.percent(statistics.acceptance_rate)}, {statistics.accepted:,} of {statistics.drafted:,}"
    shares = [f"{share * 100:.0f}" for share in statistics.acceptance_by_position]
    shown = ", ".join(shares[:_POSITIONS_SHOWN]) + ("…" if len(shares) > _POSITIONS_SHOWN else "")
    all_shares = f"{definitions.POSITIONS} From the first place on: {', '.join(shares)}."
    mean = formatting.decimal(statistics.accepted / rounds) if statistics.accepted_lengths else ""
    lengths = ", ".join(str(number) for number in statistics.accepted_lengths)
    all_lengths = f"{definitions.LENGTHS} Shown is the mean. Rounds that accepted none, 1 and so on: {lengths}."
    nodes = formatting.decimal(statistics.verified_nodes / rounds) if statistics.verified_nodes else ""
    dropped = formatting.count(statistics.dropped_drafts) if statistics.dropped_drafts else ""
    calls = statistics.target_calls
    syncs = formatting.decimal(statistics.host_syncs / calls) if statistics.host_syncs and calls else ""
    return [
        Fact("Tokens per call", per_call, definitions.TOKENS_PER_CALL),
        Fact("Accepted", accepted if statistics.drafted else formatting.NONE, definitions.ACCEPTANCE),
        Fact("Accepted by position, %", shown, all_shares),
        Fact("Accepted length", mean, all_lengths),
        Fact("Rounds", formatting.count(rounds), definitions.ROUNDS),
        Fact("Verified nodes per round", nodes, definitions.NODES),
        Fact("Dropped drafts", dropped, definitions.DROPPED_DRAFTS),
        Fact("Host syncs per round", syncs, definitions.HOST_SYNCS),
    ]


def _sizes(statistics: Statistics) -> list[Fact]:
    prompt = formatting.count(statistics.prompt_tokens)
    kept = f", {statistics.cached_prompt_tokens:,} kept" if statistics.cached_prompt_tokens else ""
    context = formatting.counted(statistics.context_tokens, "token") if statistics.context_tokens else ""
    memory = formatting.memory(statistics.peak_memory_bytes) if statistics.peak_memory_bytes else ""
    kept_words = "Tokens of the conversation; kept ones were in the cache already."
    return [
        Fact("Tokens written", formatting.count(statistics.generated_tokens), definitions.TOKENS_WRITTEN),
        Fact("Prompt tokens", f"{prompt}{kept}", kept_words),
        Fact("Context", context, definitions.CONTEXT),
        Fact("Peak memory", memory, definitions.PEAK_MEMORY),
    ]


def _mode_words(drafting: Drafting) -> str:
    if drafting.mode is Mode.OFF:
        return "Drafting off"
    kind = drafting.kind if drafting.mode is Mode.DRAFTER else None
    return f"{drafting.mode.words}, {kind.words}" if kind else drafting.mode.words


def _kept(statistics: Statistics) -> str:
    """Return how much of the prompt was still in the cache: after an edit, everything before it."""
    kept, prompt = statistics.cached_prompt_tokens, statistics.prompt_tokens
    return f"{kept:,} of {prompt:,} prompt tokens kept" if kept else ""


def _with_unit(figure: str, unit: str) -> str:
    return "" if figure == formatting.NONE else f"{figure} {unit}"


class FactsLine(QWidget):
    """Shows as many parts of the summary as fit. While it is concealed it keeps its place."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._parts: Sequence[str] = ()
        self._concealed = True
        self.setFont(control_font(-1, tabular=True))
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(self.tr("Statistics of the reply"))

    @property
    def shown_text(self) -> str:
        """The visible text."""
        return "" if self._concealed else self._fitting()

    def show_message(self, message: Message) -> None:
        self._parts = summary(message)
        self.setAccessibleDescription(", ".join(self._parts))
        set_tip(self, _BETWEEN.join(self._parts) if self._parts else "")
        self.update()

    def set_concealed(self, concealed: bool) -> None:
        self._concealed = concealed
        self.update()

    def _fitting(self) -> str:
        for count in range(len(self._parts), 0, -1):
            text = _BETWEEN.join(self._parts[:count])
            if self.fontMetrics().horizontalAdvance(text) <= self.width() - SMALL:
                return text
        return ""

    def sizeHint(self) -> QSize:
        return QSize(0, self.fontMetrics().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(self._theme.colors.muted)
        painter.drawText(self.rect().adjusted(SMALL, 0, 0, 0), Qt.AlignmentFlag.AlignVCenter, self.shown_text)


class ReplyDetails(QFrame):
    """A popup with all statistics of one reply; a click beside it or Esc closes it."""

    tokens_requested = Signal()

    def __init__(self, message: Message, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setFrameShape(QFrame.Shape.StyledPanel)
        self.setAccessibleName(self.tr("Details of the reply"))
        self.setFixedWidth(_WIDTH)
        column = QVBoxLayout(self)
        column.setContentsMargins(MEDIUM, MEDIUM, MEDIUM, SMALL)
        column.setSpacing(TIGHT + 2)
        if message.model:
            column.addWidget(ThemedLabel(theme, message.model, bold=True))
        for fact in facts(message):
            figure = FigureRow(theme, fact.name, fact.definition)
            figure.show_value(fact.value)
            column.addWidget(figure)
        if message.drafting and message.drafting.reason:
            reason = ThemedLabel(theme, message.drafting.reason, "muted", -1)
            reason.setWordWrap(True)
            column.addWidget(reason)
        tokens = TextButton(self.tr("Show tokens"), theme)
        tokens.clicked.connect(self.close)
        tokens.clicked.connect(self.tokens_requested)
        column.addWidget(tokens, 0, Qt.AlignmentFlag.AlignRight)
        tokens.setFocus()

    def open_above(self, anchor: QWidget) -> None:
        """Show over a button, or below it where there is no room."""
        self.adjustSize()
        place = anchor.mapToGlobal(QPoint(0, -self.height() - TIGHT))
        room = anchor.screen().availableGeometry()
        if place.y() < room.top():
            place = anchor.mapToGlobal(QPoint(0, anchor.height() + TIGHT))
        place.setX(max(room.left(), min(place.x(), room.right() - self.width())))
        self.move(place)
        self.show()
