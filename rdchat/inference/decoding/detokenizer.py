"""Turns token ids into text, one token at a time: never half a character, and with stop strings across tokens."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

_INCOMPLETE = "\ufffd"


MayStop = Callable[[str, int], bool]


def _anywhere(_text: str, _offset: int) -> bool:
    return True


class Decoder(Protocol):
    """The only method of a tokenizer that is used here."""

    def decode(self, token_ids: list[int], /) -> str: ...


class Detokenizer:
    """The text of one reply as its tokens arrive.

    A token's text is what it adds to the decoding of the tokens before it (as in the incremental detokenisers of vLLM
    and TGI), so it is right for every kind of tokenizer. Text is held back while it ends inside a character, and while
    its end might begin a stop string.

    Args:
        tokenizer: Decodes token ids.
        stop: Stop strings; the text ends just before the first of them to appear.
        context: Last tokens of the text that is continued. Empty for a fresh reply, whose leading space is dropped, as
            mlx-lm's detokenisers do.
        control: Id to text of control tokens, whose offsets in the text are told.
        token_data: Returns the UTF-8 bytes of a token, to tell a real U+FFFD from an incomplete character.

    Attributes:
        stop: The stop string that ended the text; empty while none has.
        new_control_offsets: Offsets in the text of the control tokens that the last `add` found.
    """

    def __init__(
        self,
        tokenizer: Decoder,
        stop: tuple[str, ...] = (),
        context: Sequence[int] = (),
        control: Mapping[int, str] = MappingProxyType({}),
        token_data: Callable[[int], bytes] = lambda _: b"",
    ) -> None:
        self._tokenizer = tokenizer
        self._token_data = token_data
        self._control = control
        # Texts of control tokens that are not in the text yet.
        self._open_control: list[str] = []
        self._stop = stop
        self._fresh = not context
        # Tokens that are decoded together; those before `_read` are final.
        self._window = list(context)
        self._read = len(context)
        self._final_window_text = tokenizer.decode(self._window) if context else ""
        # The decoded text, stop strings included.
        self._text = ""
        # Characters of `_text` that were handed out.
        self._released = 0
        # For each token, the length of `_text` once its last character is complete.
        self._ends: list[int] = []
        # Tokens at the end whose last character is not complete.
        self._open_tokens = 0
        self._cut: int | None = None
        self.stop = ""
        self.new_control_offsets: list[int] = []

    @property
    def text(self) -> str:
        """The text up to a stop string, held-back characters included."""
        return self._text if self._cut is None else self._text[: self._cut]

    @property
    def stopped(self) -> bool:
        """Whether a stop string has appeared."""
        return self._cut is not None

    @property
    def held_tokens(self) -> int:
        """Number of tokens that end before the stop string; all of them where none has appeared."""
        if self._cut is None:
            return len(self._ends) + self._open_tokens
        return sum(end <= self._cut for end in self._ends)

    def add(self, token_id: int, may_stop: MayStop = _anywhere) -> str:
        """Take one token; return the characters that became final with it.

        Args:
            token_id: The token.
            may_stop: Returns whether a stop string at an offset of a text ends it.
        """
        self._window.append(token_id)
        self._open_tokens += 1
        self.new_control_offsets = []
        if token_id in self._control:
            self._open_control.append(self._control[token_id])
        decoded = self._tokenizer.decode(self._window)
        if decoded.endswith(_INCOMPLETE) or not decoded.startswith(self._final_window_text):
            return ""
        return self._take(decoded, may_stop)

    def finish(self, may_stop: MayStop = _anywhere) -> str:
        """Return the characters still held back, without incomplete ones. U+FFFD itself is a character."""
        released, decoded = self._released, self._tokenizer.decode(self._window)
        data = b"".join(map(self._token_data, self._window[len(self._window) - self._open_tokens :]))
        _, mark, rest = data.rpartition(_INCOMPLETE.encode())
        lost = rest.decode(errors="replace") if mark else decoded
        decoded = decoded[: len(decoded) - len(lost) + len(lost.rstrip(_INCOMPLETE))]
        if not self.stopped and self._open_tokens and decoded.startswith(self._final_window_text):
            self._take(decoded, may_stop)
        held = self.text[released:]
        self._released = len(self.text)
        return held

    def _take(self, decoded: str, may_stop: MayStop) -> str:
        added = decoded[len(self._final_window_text) :]
        if self._fresh and not self._text and added.startswith(" "):
            added = added[1:]
        before = len(self._text)
        self._text += added
        self._put_control(before)
        self._ends += [len(self._text)] * self._open_tokens
        self._open_tokens = 0
        # The last final piece stays as context for the next.
        self._window = self._window[self._read :]
        self._read = len(self._window)
        self._final_window_text = self._tokenizer.decode(self._window)
        self._find_stop(before, may_stop)
        return self._release()

    def _put_control(self, before: int) -> None:
        """Find new control tokens in the text; one that the decoder spells differently is left out."""
        for text in self._open_control:
            if (offset := self._text.find(text, before)) >= 0:
                self.new_control_offsets.append(offset)
                before = offset + len(text)
        self._open_control.clear()

    def _find_stop(self, before: int, may_stop: MayStop) -> None:
        for stop in self._stop:
            offset = self._text.find(stop, max(0, before - len(stop) + 1))
            while offset >= 0 and not may_stop(self._text, offset):
                offset = self._text.find(stop, offset + 1)
            if offset >= 0 and (self._cut is None or offset < self._cut):
                self._cut, self.stop = offset, stop

    def _release(self) -> str:
        end = len(self.text) if self.stopped else len(self._text) - self._possible_stop_length()
        released = self._text[self._released : end]
        self._released = max(end, self._released)
        return released

    def _possible_stop_length(self) -> int:
        """Return the length of the longest end of the text that begins some stop string."""
        text = self._text
        lengths = (
            n
            for stop in self._stop
            for n in range(1, min(len(stop) - 1, len(text)) + 1)
            # The first test is quick, and nearly always false.
            if stop[n - 1] == text[-1] and text.endswith(stop[:n])
        )
        return max(lengths, default=0)
