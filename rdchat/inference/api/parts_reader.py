"""Splits a reply into thoughts and answer while it is written, as pieces that never change once they were returned.

All who show, send or store a reply get its parts from here. `thoughts.Parting` finds the markers; this reader decides
how much of the text is certain. Offsets are in characters of the text, with what the reply continues before it.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.inference.api.requests import GenerationRequest
from rdchat.inference.api.thoughts import Parting, ReplyPart, Thoughts, has_marker, own_markers, unfinished

# A marker with so many characters after it is settled: more text does not change its meaning.
_SETTLED = 512
# How a call in JSON begins, such as `{"name": "add`; it may break off at the text's end, as in `{"na`. Another one may
# begin within it.
_HEAD = re.compile(r'(?=(\{\s*(?:\Z|"\w*(?:\Z|"\s*(?:\Z|:\s*(?:\Z|"[^"]*"?))))))')


@dataclass(frozen=True, slots=True)
class Piece:
    """More text of a reply, all of one part.

    Attributes:
        text: The text; the texts of all pieces are the reply, in order.
        is_thought: Whether it belongs to a thought; otherwise to the answer.
        is_mark: Whether it is the marker that begins the part, with the blanks beside it.
    """

    text: str
    is_thought: bool = False
    is_mark: bool = False


def grown(parts: tuple[ReplyPart, ...], pieces: Iterable[Piece]) -> tuple[ReplyPart, ...]:
    """Return the parts of a text that has grown by pieces.

    A marker begins a new part behind it, any other piece lengthens the last part. Parts (0, 4) with the pieces
    `</think>` as a marker and `Yes` become (0, 4), (12, 15).
    """
    longer = list(parts)
    for piece in pieces:
        end = (longer[-1].end if longer else 0) + len(piece.text)
        if piece.is_mark:
            # A marker that comes in several pieces begins one part.
            if longer and longer[-1].start == longer[-1].end:
                longer.pop()
            longer.append(ReplyPart(end, end, piece.is_thought))
        elif longer:
            longer[-1] = replace(longer[-1], end=end)
        else:
            longer.append(ReplyPart(0, end, piece.is_thought))
    return tuple(longer)


def _begun(mark: str) -> str:
    """Return a pattern for a mark, and for a beginning of the mark at the end of a text: `a(?:b|END)` for `ab`."""
    pattern = ""
    for letter in reversed(mark):
        behind = f"(?:{pattern}|\\Z)" if pattern else ""
        pattern = re.escape(letter) + behind
    return pattern


class _Last(Enum):
    """What was returned last of a reply.

    Attributes:
        MARKER: A marker, or nothing yet: the part has none of its text.
        THOUGHT: Text of a thought.
        ANSWER: Text of the answer.
        CALL: All that stands before a tool call. It stays so: no more is returned.
    """

    MARKER = auto()
    THOUGHT = auto()
    ANSWER = auto()
    CALL = auto()


@dataclass(frozen=True, slots=True)
class _Returned:
    """How much of a reply was returned. A piece leads from one to the next (`after`), and a call to the last one.

    Each of `_Last` can follow on each, but for CALL, which nothing follows. `has_answer` never becomes False again.

    Attributes:
        end: Where the last piece ended.
        last: What it was.
        has_answer: Whether some piece was text of the answer; it is true with ANSWER.
    """

    end: int
    last: _Last = _Last.MARKER
    has_answer: bool = False

    def after(self, piece: Piece) -> "_Returned":
        """Return what was returned with one more piece."""
        end = self.end + len(piece.text)
        if piece.is_mark:
            return replace(self, end=end, last=_Last.MARKER)
        if piece.is_thought:
            return replace(self, end=end, last=_Last.THOUGHT)
        return _Returned(end, _Last.ANSWER, has_answer=True)


class PartsReader:
    """Splits one reply, once: a piece that it has returned never changes.

    It holds back what may be the beginning of a marker, blanks that may stand beside one, and all from a tool call on:
    whether that is a call shows at the end. `_returned` says what was returned before; all else follows from the text.

    Args:
        begun: Whether the prompt opened a thought.
        shaped: Whether the answer has a shape, so that markers in it are data.
        plain: Whether all text is the answer.
        markers: See `Parting`.
        call_marks: Texts with which a tool call may begin; in those that begin with a brace, blanks may stand.
        before: The text that the reply continues.
        before_control: Offsets of control tokens in it.
    """

    def __init__(
        self,
        begun: bool = False,
        *,
        shaped: bool = False,
        plain: bool = False,
        markers: frozenset[str] = frozenset(),
        call_marks: Sequence[str] = (),
        before: str = "",
        before_control: Sequence[int] = (),
    ) -> None:
        self._plain = plain or (shaped and not begun)
        self._shaped = shaped
        self._call_marks = () if shaped else call_marks
        self._heads = tuple(mark for mark in self._call_marks if mark.startswith("{"))
        self._call = re.compile(
            "|".join(_begun(mark) for mark in self._call_marks if mark not in self._heads) or "(?!)"
        )
        self._offsets = set(before_control)
        # The scan of the settled text; what is behind it is read again each time, on a copy.
        self._settled = Parting(begun, markers, self._offsets, shaped=shaped)
        self._text = before
        self._begins_at = len(before)
        # Blanks that wait for a letter behind them.
        self._blanks: list[str] = []
        # If the text is longer than this, no marker in it can still change its meaning; it grows with each marker.
        self._open_until = len(before) + _SETTLED * bool(before)
        self._returned = _Returned(len(before))
        if before:
            parting = self._settled.fork()
            parting.read_markers(before, len(before))
            parts = parting.parts()
            text = _Last.THOUGHT if parts[-1].is_thought else _Last.ANSWER
            last = text if parts[-1].start < parts[-1].end else _Last.MARKER
            self._returned = _Returned(len(before), last, has_answer=bool(Thoughts(before, parts).answer))

    @classmethod
    def for_request(
        cls, request: GenerationRequest, begun: bool, markers: frozenset[str], call_marks: Sequence[str] = ()
    ) -> "PartsReader":
        """Return a reader for the reply to a request; the other arguments are those of the class.

        Where the text that the reply continues has no known control tokens, the markers of the thought with which it
        begins count as such.
        """
        before = request.messages[-1] if request.continue_last else ChatMessage(Role.ASSISTANT, "")
        return cls(
            begun,
            shaped=request.shape is not None,
            plain=request.text is not None,
            markers=markers,
            call_marks=call_marks,
            before=before.content,
            before_control=before.own_control or own_markers(before.content, begun=begun),
        )

    def add_text(self, text: str, control: Iterable[int] = ()) -> tuple[Piece, ...]:
        """Add new text of the reply, and return the pieces that are certain now.

        1. Blanks alone wait for the next text. Once a call has begun, nothing is returned any more. Where all text is
           the answer (`plain`), it is returned as it comes, blanks too.
        2. What may be the beginning of a marker at the end is left out of the visible text.
        3. The parts of the visible text are found. Each gives what was not returned of it before.

        Args:
            text: The text.
            control: Offsets in the reply of the control tokens that are known since.
        """
        self._offsets.update(self._begins_at + offset for offset in control)
        if text.isspace() and not self._plain:
            self._blanks.append(text)
            return ()
        text = self._take_blanks() + text
        self._text += text
        if self._returned.last is _Last.CALL or not text:
            return ()
        if self._plain:
            return (Piece(text),)
        if has_marker(self._text, len(text)):
            self._open_until = len(self._text) + _SETTLED
        visible = self._text[: len(self._text) - unfinished(self._text)]
        *closed, last = self._visible_parts(visible)
        pieces: list[Piece] = []
        for part in closed:
            self._add(pieces, visible, part)
        self._add(pieces, visible, last, is_last=True)
        return tuple(pieces)

    def _visible_parts(self, visible: str) -> tuple[ReplyPart, ...]:
        """Return the parts of the visible text that may have something new; the last one is open.

        Where no marker is near, and the open part has text already, all of the text is of that kind. Otherwise the
        markers in the settled text are read for good, and those behind it on a copy of the scan. So a part that an
        earlier copy has closed comes again; nothing of it is new.
        """
        last = self._returned.last
        no_marker_is_near = len(visible) == len(self._text) and len(visible) > self._open_until
        if no_marker_is_near and last is not _Last.MARKER:
            return (ReplyPart(0, len(visible), last is _Last.THOUGHT),)
        # The parts that were closed before are in pieces already.
        known = self._settled.closed
        self._settled.read_markers(self._text, len(self._text) - _SETTLED)
        parting = self._settled.fork(known)
        parting.read_markers(visible, len(visible))
        return parting.parts()

    def _take_blanks(self) -> str:
        blanks = "".join(self._blanks)
        self._blanks.clear()
        return blanks

    def _add(self, pieces: list[Piece], text: str, part: ReplyPart, *, is_last: bool = False) -> None:
        """Add pieces of what is new of a part: its marker, and its text up to where a call begins; then no more.

        The marker is the text between two parts; it comes first, unless some of the part's own text was returned.
        Blanks at the end of the text wait where a marker or a call may follow (the last part), at the end of a thought,
        before a call, and where the answer has nothing but blanks so far. They come with later text, as part of the
        next marker or of the answer. A part of the answer that a marker has ended returns them at once.
        """
        if self._returned.last is _Last.CALL:
            return
        inside = part.is_thought
        # The part is new, or only its marker was returned: blanks that belong to the marker may still come.
        if part.start >= self._returned.end or self._returned.last is _Last.MARKER:
            self._give(pieces, Piece(text[self._returned.end : self._marker_end(text, part)], inside, is_mark=True))
        body = text[self._returned.end : part.end]
        has_call = False
        if self._call_marks and not inside:
            at, has_call = self._call_in(body)
            body = body[:at] if is_last or has_call else body
        blanks_wait = is_last or inside or has_call or not (self._returned.has_answer or body.strip())
        self._give(pieces, Piece(body.rstrip() if blanks_wait else body, inside))
        if has_call:
            self._returned = replace(self._returned, last=_Last.CALL)

    def _marker_end(self, text: str, part: ReplyPart) -> int:
        """Return where the marker before a part ends, with the blanks that belong to it.

        As in `Thoughts`, blanks behind a marker belong to it before a thought, and before the first text of the answer.
        They are text of the answer where it goes on behind a later marker, and at the very beginning of the reply.
        """
        end = max(part.start, self._returned.end)
        if part.is_thought or (part.start > 0 and not self._returned.has_answer and not self._shaped):
            body = text[end : part.end]
            end += len(body) - len(body.lstrip())
        return end

    def _give(self, pieces: list[Piece], piece: Piece) -> None:
        """Add a piece, which begins where the last one ended, unless its text is empty."""
        if piece.text:
            pieces.append(piece)
            self._returned = self._returned.after(piece)

    def _call_in(self, text: str) -> tuple[int, bool]:
        """Return where a call begins in more of the answer, or may begin at its end, and whether its mark is whole."""
        openings = [(result.start(), result[0] in self._call_marks)] if (result := self._call.search(text)) else []
        for head in _HEAD.finditer(text) if self._heads else ():
            written = "".join(head[1].split())
            is_whole = written.startswith(self._heads)
            may_go_on = head.end(1) == len(text) and any(mark.startswith(written) for mark in self._heads)
            if is_whole or may_go_on:
                openings.append((head.start(), is_whole))
                break
        return min(openings, default=(len(text), False))

    def is_answer(self, text: str, offset: int) -> bool:
        """Return whether an offset in a reply is in the answer; `text` may be longer than what `add_text` got."""
        text = self._text[: self._begins_at] + text
        end = self._begins_at + offset
        parting = self._settled.fork(self._settled.closed)
        parting.read_markers(text[:end], end)
        return self._plain or not parting.parts()[-1].is_thought

    def finish_reply(self, ended: bool) -> Thoughts:
        """Return the text with which the reply begins, and the complete reply split into parts.

        Args:
            ended: Whether the model ended it itself. Then a thought that it did not close is its answer.
        """
        self._text += self._take_blanks()
        self._settled.read_markers(self._text, len(self._text))
        control = tuple(sorted(self._offsets))
        last = self._settled.parts()[-1]
        parts = (ReplyPart(0, len(self._text)),) if self._plain else self._settled.parts(ended)
        unclosed = not self._plain and ended and last.is_thought
        return Thoughts(self._text, parts, control, unclosed, self._shaped)

    def own(self, thoughts: Thoughts) -> Thoughts:
        """Return the reply alone, of what `finish_reply` returned."""
        return thoughts.within([(self._begins_at, len(thoughts.text))])
