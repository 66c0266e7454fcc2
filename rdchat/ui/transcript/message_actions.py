"""The row of small buttons of a message, below a reply or beside a prompt's bubble, and the statistics of a reply.

A quiet line beside the buttons says how much faster drafting made the reply; a popup has all statistics.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QWidget

from rdchat.chat.conversation import Drafting, MadeWith, Message
from rdchat.inference.api import Mode, Role, Statistics
from rdchat.ui.speed.figures import FIGURES, FigureSource
from rdchat.ui.speed.sections import FigureRow, verdict
from rdchat.ui.style import (
    DEFINITIONS,
    MEDIUM,
    SMALL,
    TIGHT,
    CopyButton,
    IconButton,
    Part,
    Popover,
    TextButton,
    Theme,
    ThemedLabel,
    column,
    control_font,
    cut,
    formatting,
    keep_room,
    open_beside,
    row,
    set_tip,
    small_text,
)
from rdchat.ui.transcript.message_parts import MessageArea

_LAST_PART = "of the last part"
# The longest value that the popup shows, in characters; its tooltip has the complete one.
_NAME_LENGTH = 24
# The longest list of drafters that is read: an import may have any.
_DRAFTERS_LENGTH = 2000
# The popup's width, in pixels.
_WIDTH = 280
_EDITED = "You edited this text. The figures of the model's text are with the original reply."
_TEMPERATURE = "How freely the model chose: 0 always takes the most likely token."

HEIGHT = 28
"""The row's height, in pixels."""


class Fact(NamedTuple):
    """A figure with its name and its definition."""

    name: str
    value: str
    definition: str


def speed_line(statistics: Statistics) -> str:
    """Return how much faster or slower drafting made a reply; empty where that was not measured."""
    meaning = verdict(statistics, now=False, writing=False, parameters=0)
    return meaning.text if meaning.color in ("success", "warning") else ""


def facts(message: Message) -> list[Fact]:
    """Return all stored figures of a reply; those that were not measured are left out."""
    measured = [Fact("Text", "Edited by you", _EDITED)] if message.edited else []
    if message.statistics is not None:
        if not message.edited:
            measured += _option_facts(message.made_with)
        drafting = message.drafting or Drafting(None)
        measured += [*_drafting_facts(drafting), *_figure_facts(message.statistics, drafting)]
    return [fact for fact in measured if fact.value not in ("", formatting.NONE)]


def _figure_facts(statistics: Statistics, drafting: Drafting) -> Iterator[Fact]:
    """Yield the figures; the definition of one also lists how many drafts kept how many tokens."""
    source = FigureSource(statistics, how=drafting)
    for name, text in FIGURES.items():
        value = text(source)
        definition = DEFINITIONS[name]
        if name == "Kept per step" and statistics.accepted_lengths:
            lengths = ", ".join(map(str, statistics.lengths_of_drafts))
            definition += f" Steps with a draft that kept none, 1 and so on: {lengths}."
        yield Fact(name, value, definition)


def drafter_name(drafting: Drafting) -> str:
    """Return the name of the drafter's folder, or of each of several."""
    drafter = cut(drafting.drafter, _DRAFTERS_LENGTH)
    sources = drafter.split(", ") if drafting.mode is Mode.AUTO else [drafter]
    return ", ".join(Path(source).name for source in sources) or formatting.NONE


def _option_facts(made_with: MadeWith | None) -> list[Fact]:
    """Return the temperature of a reply, and the system prompt if it was of this reply alone."""
    options = []
    if made_with and made_with.sampling is not None:
        options.append(Fact("Temperature", f"{made_with.sampling.temperature:g}", _TEMPERATURE))
    if made_with and made_with.once and made_with.system_prompt is not None:
        prompt = made_with.system_prompt.strip()
        text = cut(" ".join(prompt.split()) or "None", _NAME_LENGTH)
        options.append(Fact("System prompt", text, f"Of this reply alone: {prompt or 'none.'}"))
    return options


def _drafting_facts(drafting: Drafting) -> list[Fact]:
    """Return how the tokens of a reply were drafted, and which part of the reply the figures are of."""
    name = cut(drafter_name(drafting), _NAME_LENGTH) if drafting.drafter else ""
    mode = drafting.mode.label if drafting.mode else ""
    last_part = "The reply was continued: all figures are those of the part that was written last."
    return [
        Fact("Drafting", mode, f"The drafting mode that ran. {drafting.reason}".rstrip()),
        Fact(
            "Server", cut(drafting.server, _NAME_LENGTH), f"The remote server that wrote the reply: {drafting.server}."
        ),
        Fact("Drafted by", name, f"What proposed the tokens: {drafting.drafter}"),
        Fact("Figures", _LAST_PART if drafting.last_part else "", last_part),
    ]


class ReplyDetails(Popover):
    """A popup with all statistics of one reply; a click beside it or Esc closes it."""

    def __init__(self, message: Message, theme: Theme, button: QWidget) -> None:
        super().__init__(theme, "window", button)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setAccessibleName("Details of the reply")
        self.setFixedWidth(_WIDTH)
        parts = column(within=self, spacing=TIGHT + 2, margins=(MEDIUM, MEDIUM, MEDIUM, SMALL))
        if message.model:
            parts.addWidget(ThemedLabel(theme, message.model, bold=True))
        for fact in facts(message):
            figure = FigureRow(theme, fact.name, fact.definition)
            figure.show_value(fact.value)
            parts.addWidget(figure)
        if message.drafting and message.drafting.reason:
            parts.addWidget(small_text(theme, message.drafting.reason))


class MessageActions(QWidget):
    """Copy, edit or regenerate, the step to other alternatives, and the menu.

    A reply has two buttons more while the speed panel is open: its statistics and its tokens, which the menu has too.
    """

    edit_requested = Signal()
    # The menu is to open at a point of the screen.
    menu_requested = Signal(QPoint)

    def __init__(self, message: Message, area: MessageArea, text: Callable[[], str], parent: QWidget) -> None:
        super().__init__(parent)
        self._message = message
        self._area = area
        self._last = False
        self._hovered = False
        self._buttons: list[IconButton] = []
        is_prompt = message.role is Role.USER
        regenerate = partial(area.regenerate_requested.emit, message.id)
        step = partial(area.alternative_requested.emit, message.id)
        self._previous = IconButton("previous", "Previous version", area.theme, self, partial(step, -1))
        self._next = IconButton("next", "Next version", area.theme, self, partial(step, 1))
        self._number = small_text(area.theme, tabular=True, wraps=False)
        self._number.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.copy_button = CopyButton("Copy message" if is_prompt else "Copy reply", area.theme, text, self)
        parts: list[Part] = [None] if is_prompt else []
        parts += [self._previous, self._number, self._next, self._add(self.copy_button)]
        if is_prompt:
            self._answer = self._button("regenerate", "Get a reply", regenerate)
            self._answer.hide()
            parts += [self._button("edit", "Edit message", self.edit_requested.emit), self._answer]
        else:
            self._details = self._button("info", "", self._show_details)
            self._tokens = self._button("tokens", "", partial(area.tokens_requested.emit, message.id))
            parts += [self._button("regenerate", "Regenerate reply", regenerate), self._details, self._tokens]
        self._more = self._button("more", "More", self._open_menu)
        self.speed = TextButton("", area.theme, partial(area.speed_requested.emit, message.id), color="muted")
        self.speed.setFont(control_font(-1, tabular=True))
        self.speed.focus_changed.connect(self._reveal)
        set_tip(self.speed, "Show the speed panel")
        parts += [self._more, self.speed]
        if not is_prompt:
            parts.append(None)
        row(*parts, within=self, spacing=0)
        self.setFixedHeight(HEIGHT)
        keep_room(self)

    def _button(self, icon: str, name: str, act: Callable[[], object]) -> IconButton:
        return self._add(IconButton(icon, name, self._area.theme, self, act))

    def _add(self, button: IconButton) -> IconButton:
        button.focus_changed.connect(self._reveal)
        self._buttons.append(button)
        return button

    def show_actions(self, message: Message) -> None:
        """Show which alternative this is, whether the text is the person's, and what can be done."""
        self._message = message
        several = message.siblings > 1
        self.speed.setText(speed_line(message.statistics or Statistics()))
        self.copy_button.setEnabled(bool(message.text))
        if message.role is not Role.USER:
            self.show_figures()
        for button in (self._previous, self._next):
            button.setVisible(several)
        self._previous.setEnabled(message.sibling > 0)
        self._next.setEnabled(message.sibling + 1 < message.siblings)
        number = f"{message.sibling + 1} of {message.siblings}" if several else ""
        edited = "edited" if several else "Edited"
        self._number.show_text(", ".join(part for part in (number, edited if message.edited else "") if part))
        set_tip(self._number, "You edited this reply" if message.edited else "")
        self._reveal()

    def show_figures(self) -> tuple[IconButton, ...]:
        """Show the buttons of a reply's figures if the speed panel is open, with what was recorded; return them."""
        has_tokens = self._area.has_tokens(self._message.id)
        recorded = {self._details: ("Details", bool(facts(self._message))), self._tokens: ("Show tokens", has_tokens)}
        for button, (name, is_recorded) in recorded.items():
            text = name if is_recorded else f"{name}: not recorded"
            button.setAccessibleName(text)
            set_tip(button, text)
            button.setEnabled(is_recorded)
            button.setVisible(self._area.shows_figures)
        return tuple(recorded)

    def offer_reply(self, offered: bool) -> None:
        """Offer to get a reply to a prompt that has none."""
        self._answer.setVisible(offered)

    def set_revealed(self, *, last: bool | None = None, hovered: bool | None = None) -> None:
        """Set whether it is the last message or under the pointer (None: as before), and show its buttons if so.

        The line on its speed is shown under the pointer alone.
        """
        self._last = self._last if last is None else last
        self._hovered = self._hovered if hovered is None else hovered
        self._reveal()

    def _reveal(self) -> None:
        """Show the buttons and the line, or conceal them; `show_actions` has made the line's text before."""
        focused = any(button.hasFocus() for button in (*self._buttons, self._previous, self._next, self.speed))
        for button in self._buttons:
            button.set_concealed(not (self._last or self._hovered or focused))
        self.speed.setVisible(bool(self.speed.text()) and (self._hovered or focused))

    def _open_menu(self) -> None:
        self.menu_requested.emit(self._more.mapToGlobal(self._more.rect().bottomLeft()))

    def _show_details(self) -> None:
        button = self._details if self._area.shows_figures else self._more
        details = ReplyDetails(self._message, self._area.theme, button)
        open_beside(details, button)
