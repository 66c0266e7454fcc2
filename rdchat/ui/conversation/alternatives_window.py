"""A window with two alternatives of one message side by side, in which the words that differ are marked.

Alternatives are the versions of a message: edits of a prompt, or other replies to it. Words are compared on a thread.
"""

import re
from collections.abc import Callable
from difflib import Match, SequenceMatcher
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QScrollBar, QWidget

from rdchat.chat.conversation import Message
from rdchat.inference.api import Role
from rdchat.services.background_work import BackgroundWork
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    TIGHT,
    ElidedLabel,
    Ground,
    IconButton,
    Separator,
    SideWindow,
    Theme,
    column,
    formatting,
    push_button,
    row,
    scrolled,
    show_in_front,
    small_text,
    splitter,
    utf16_spans,
)
from rdchat.ui.transcript.markdown.parser import MarkdownParser, PlainParser
from rdchat.ui.transcript.markdown.text_body import TextView
from rdchat.wording import counted

type Spans = list[tuple[int, int]]

# This matches a word, a character of a script without spaces between words, or a sign.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]|[^\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+|[^\s]")
# Between texts of more words than this, frequent words are not compared, which is much faster.
_EXACT = 3000
# With a smaller share of words in common, marks would cover nearly everything.
_LITTLE = 0.3


class _Matcher(SequenceMatcher[str]):
    """Compares words, and finds no more where it takes too long: words that repeat take the cube of their number."""

    a: list[str]
    b2j: dict[str, list[int]]
    # The pairs of the same word that it may still look at.
    _left = 5_000_000

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        self._left -= sum(len(self.b2j.get(word, ())) for word in self.a[alo:ahi])
        if self._left < 0:
            return Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)


def differences(one: str, other: str) -> tuple[Spans, Spans] | None:
    """Return, for each of two texts, the spans of words that the other lacks.

    None if the texts have little in common. Where words repeat too often, the rest counts as different.

    A span is begin and end in UTF-16 units.
    """
    pieces = [list(_WORD.finditer(text)) for text in (one, other)]
    first, second = ([word[0] for word in matches] for matches in pieces)
    exact = max(len(first), len(second)) <= _EXACT
    matcher = _Matcher(None, first, second, autojunk=not exact)
    if matcher.ratio() < _LITTLE:
        return None
    in_one: Spans = []
    in_other: Spans = []
    for kind, begin, end, other_begin, other_end in matcher.get_opcodes():
        if kind == "equal":
            continue
        if end > begin:
            in_one.append((pieces[0][begin].start(), pieces[0][end - 1].end()))
        if other_end > other_begin:
            in_other.append((pieces[1][other_begin].start(), pieces[1][other_end - 1].end()))
    return utf16_spans(one, in_one), utf16_spans(other, in_other)


def made_text(message: Message) -> str:
    """Return how a message was made: by whom, its temperature, its speed and its files."""
    made_with = message.made_with
    statistics = message.statistics
    parts = ["yours" if message.role is Role.USER else "", "edited by you" if message.edited else ""]
    if made_with is not None and made_with.sampling is not None:
        parts.append(f"temperature {made_with.sampling.temperature:g}")
    if statistics is not None:
        rate = formatting.rate(statistics.decode_tps)
        parts.append(f"{rate} tokens/s" if rate != formatting.NONE else "")
        last_part = " in the last part" if message.drafting and message.drafting.last_part else ""
        parts.append(counted(statistics.generated_tokens, "token") + last_part)
    if made_with is not None and made_with.system_prompt is not None:
        parts.append("own system prompt")
    parts.append(", ".join(file.name for file in message.files))
    text = " · ".join(part for part in parts if part)
    return text[:1].upper() + text[1:]


class AlternativePane(QWidget):
    """Shows one of the alternatives of a message, how it was made, and a button to choose it."""

    def __init__(
        self, role: Role, theme: Theme, side: str, step: Callable[[int], object], use: Callable[[], object]
    ) -> None:
        super().__init__()
        self.previous = IconButton("previous", f"Previous version, {side}", theme, None, partial(step, -1))
        self.next = IconButton("next", f"Next version, {side}", theme, None, partial(step, 1))
        self.position = small_text(theme, tabular=True, wraps=False)
        self.model = ElidedLabel(theme, bold=True)
        self.made = ElidedLabel(theme, "", "muted", -1)
        parser = PlainParser() if role is Role.USER else MarkdownParser()
        self.text = TextView(parser, theme, f"Version, {side}")
        ground = Ground(theme, "surface")
        column(self.text, None, within=ground, margins=(MEDIUM, SMALL, MEDIUM, LARGE))
        self.area = scrolled(ground)
        self.area.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)  # The text keeps its width.
        self.use = push_button("Use This One", "Shows this one in the chat and continues from it", use)
        self.use.setAccessibleName(f"Use This One, {side}")
        parts = ((self.model, 1), self.previous, self.position, self.next)
        head = row(*parts, spacing=TIGHT, margins=(MEDIUM, SMALL, SMALL, 0))
        caption = row(self.made, margins=(MEDIUM, 0, MEDIUM, SMALL))
        foot = row(None, self.use, margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        column(head, caption, Separator(theme), (self.area, 1), Separator(theme), foot, within=self, spacing=0)

    def show_alternative(self, message: Message, *, in_use: bool) -> None:
        """Show an alternative; the one that the chat shows already need not be chosen."""
        is_prompt = message.role is Role.USER
        self.model.setText("Your message" if is_prompt else message.model or "Reply")
        self.made.setText(made_text(message))
        self.position.setText(f"{message.sibling + 1} of {message.siblings}")
        self.previous.setEnabled(message.sibling > 0)
        self.next.setEnabled(message.sibling + 1 < message.siblings)
        self.use.setEnabled(not in_use)
        self.use.setText("In use" if in_use else "Use This One")
        self.text.body.marks.mark_parts([])
        self.text.set_text(message.text if is_prompt else message.parts.answer)

    @property
    def visible_text(self) -> str:
        """The text as it is drawn."""
        return self.text.body.document().toPlainText()


class AlternativesWindow(SideWindow):
    """Follows the alternatives of one message of the open chat; it closes with that chat.

    Args:
        controller: Has the alternatives, and shows the one that is chosen.
        message: One of them.
        theme: The appearance to follow.
        parent: The window stays in front of this one.
    """

    def __init__(self, controller: ChatController, message: Message, theme: Theme, parent: QWidget) -> None:
        super().__init__("Compare Versions", (1000, 680), (560, 360), parent)
        self._chat = controller.chat
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self._what = "messages" if message.role is Role.USER else "replies"
        # The message and its alternatives, oldest first.
        self._all = self._chat.alternatives(message.id)
        ids = [each.id for each in self._all]
        right = max(1, ids.index(message.id)) if message.id in ids else 0
        # The ids of those in the panes: the message at the right, and the one before it at the left. The first one has
        # none before it, so it stands at the left of the second.
        self._ids = ids[max(0, right - 1) : right + 1]
        self.panes = tuple(
            AlternativePane(message.role, theme, side, partial(self._step, index), partial(self._use, index))
            for index, side in enumerate(("left", "right"))
        )
        self.together = QCheckBox("Scroll together")
        self.together.setChecked(True)
        self.note = small_text(theme, wraps=False)
        self._comparison = BackgroundWork("compare", self)
        # Whether a pane is being scrolled along with the other one.
        self._scrolling = False
        for pane in self.panes:
            pane.text.drawn.connect(self._compare)
        bars = [pane.area.verticalScrollBar() for pane in self.panes]
        for bar, other in (bars, bars[::-1]):
            bar.valueChanged.connect(partial(self._scroll_other, other, bar))
        foot = row(self.together, None, self.note, margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        ground = Ground(theme, "surface")
        split = splitter(Qt.Orientation.Horizontal, *((pane, 1) for pane in self.panes))
        column((split, 1), foot, within=ground, spacing=0)
        column(ground, within=self)
        for changed in (self._chat.path_changed, self._chat.message_changed):
            changed.connect(self._refresh)
        self._chat.opened.connect(self.close)
        self._show()

    def open_in_front(self) -> None:
        """Show the window, where there are two alternatives to show."""
        if len(self._ids) > 1:
            show_in_front(self)
        else:
            self.close()

    def _refresh(self) -> None:
        """Show what there is now; an alternative may have been deleted, or written on.

        A deleted one in a pane is replaced by the first other one. With a single one left, the window closes.
        """
        before = self._all
        self._all = self._chat.alternatives(self._ids[0]) if self._ids else []
        ids = [each.id for each in self._all]
        if len(ids) < 2:
            self.close()
        elif self._all != before:
            remaining = [each for each in self._ids if each in ids]
            others = [each for each in ids if each not in remaining]
            self._ids = sorted([*remaining, *others][:2], key=ids.index) if len(remaining) < 2 else remaining
            self._show()

    def _show(self) -> None:
        """Show the alternatives of the panes.

        Each pane that has drawn its text begins the comparison anew (`_compare`); its end marks the words (`_mark`).
        """
        self.note.setText("")
        self._comparison.drop_jobs()
        # What `_mark` notes below where no words differ: messages with other files are not the same.
        files = {each.files for each in self._all if each.id in self._ids}
        self._same = "are the same" if len(files) == 1 else "have the same words"
        messages = {each.id: each for each in self._all}
        for pane, message_id in zip(self.panes, self._ids, strict=False):  # A deleted chat has none.
            pane.show_alternative(messages[message_id], in_use=message_id in self._chat.path.ids)

    def _step(self, index: int, step: int) -> None:
        """Show the alternative `step` further on in a pane; at either end nothing changes."""
        ids = [each.id for each in self._all]
        self._ids[index] = ids[max(0, min(ids.index(self._ids[index]) + step, len(ids) - 1))]
        self.panes[index].area.verticalScrollBar().setValue(0)
        self._show()

    def _use(self, index: int) -> None:
        self.close()
        self._chat.show_alternative(self._ids[index], 0)

    def _compare(self) -> None:
        texts = [pane.visible_text for pane in self.panes]
        self._comparison.replace(lambda _job: differences(*texts), partial(self._mark, texts))

    def _mark(self, texts: list[str], spans: tuple[Spans, Spans] | None) -> None:
        """Mark the words that differ, and say below how much the texts have in common."""
        if texts != [pane.visible_text for pane in self.panes]:
            return  # One of them has changed.
        for pane, spans_of_pane in zip(self.panes, spans or ([], []), strict=True):
            pane.text.body.marks.mark_parts(spans_of_pane)
        note = "Words that differ are marked"
        if spans is None:
            note = f"These {self._what} have little in common"
        elif not any(spans):
            note = f"Both {self._what} {self._same}"
        self.note.setText(note)

    def _scroll_other(self, other: QScrollBar, bar: QScrollBar, _value: int) -> None:
        """Keep both at the same share of their height."""
        if self.together.isChecked() and bar.maximum() > 0 and not self._scrolling:
            self._scrolling = True
            other.setValue(round(bar.value() / bar.maximum() * other.maximum()))
            self._scrolling = False
