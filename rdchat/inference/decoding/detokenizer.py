"""Turns the tokens of a reply into text as they arrive: never half a character, and with stop strings across tokens.

Offsets and lengths are in characters of the reply's text.
"""

from codecs import getincrementaldecoder
from collections.abc import Callable, Mapping
from types import MappingProxyType

MayStop = Callable[[str, int], bool]
"""Returns whether a stop string at an offset of a text ends it."""

DataOf = Callable[[int, int | None], bytes]
"""Returns the UTF-8 bytes of a token behind another one, or behind a word where there is None."""


class Detokenizer:
    """The text of one reply as its tokens arrive.

    It is the UTF-8 text of the tokens' bytes, with U+FFFD for bytes that are no character, so no byte changes the text
    of others, as in the decoders of tokenizers with byte tokens. A character's first bytes wait for the others. Text
    is also held back while its end might begin a stop string.

    Args:
        data_of: Returns the bytes of a token.
        stop: Stop strings; the text ends just before the first of them to appear.
        before: Last token of the text that is continued. None for a fresh reply, whose leading space is dropped, as
            mlx-lm's detokenisers do.
        control: Id to text of control tokens; see `control_offsets`.

    Attributes:
        stop: The stop string that ended the text; empty while none has.
    """

    def __init__(
        self,
        data_of: DataOf,
        stop: tuple[str, ...] = (),
        before: int | None = None,
        control: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._data_of = data_of
        self._control = control
        self._stop = stop
        self._fresh = before is None
        self._last_token = before
        # It keeps the first bytes of a character.
        self._decoder = getincrementaldecoder("utf-8")("replace")
        # The decoded text, stop strings included.
        self._text = ""
        # Characters of `_text` that were handed out.
        self._released = 0
        # For each token, the length of `_text` with its last character, also where that character is not complete yet.
        self._ends: list[int] = []
        # Where the stop string begins; None while none has appeared.
        self._cut: int | None = None
        self.stop = ""

    @property
    def text(self) -> str:
        """The text up to a stop string, held-back characters included."""
        return self._text[: self._cut]

    @property
    def stopped(self) -> bool:
        """Whether a stop string has appeared."""
        return self._cut is not None

    @property
    def held_tokens(self) -> int:
        """Number of tokens that end before the stop string."""
        return sum(end <= len(self.text) for end in self._ends)

    def add_token(self, token_id: int, may_stop: MayStop = lambda _text, _offset: True) -> str:
        """Take one token; return the characters that became final with it.

        Args:
            token_id: The token.
            may_stop: Returns whether a stop string at an offset of a text ends it.
        """
        before = len(self._text)
        self._text += self._decoder.decode(self._data_of(token_id, self._last_token))
        self._last_token = token_id
        if self._fresh and self._text:
            self._text = self._text.removeprefix(" ")
            self._fresh = False
        waiting, _ = self._decoder.getstate()
        self._ends.append(len(self._text) + bool(waiting))
        if self._stop:
            self._find_stop(before, may_stop)
        return self._release()

    def last_text(self) -> str:
        """Return the characters still held back; a character that is not complete has no text."""
        return self.text[self._released :]

    def control_offsets(self, token_id: int) -> list[int]:
        """Return the offset in the text of its last token, if that is a control token spelled as the decoder does.

        It is a list of this one offset, or an empty list.
        """
        spelled = self._control.get(token_id)
        return [len(self._text) - len(spelled)] if spelled is not None and self._text.endswith(spelled) else []

    def _find_stop(self, before: int, may_stop: MayStop) -> None:
        """Find the first stop string that ends in the new text, from offset `before` on, and that `may_stop` allows."""
        for stop in self._stop:
            offset = self._text.find(stop, max(0, before - len(stop) + 1))
            while offset >= 0 and not may_stop(self._text, offset):
                offset = self._text.find(stop, offset + 1)
            if offset >= 0 and (self._cut is None or offset < self._cut):
                self._cut = offset
                self.stop = stop

    def _release(self) -> str:
        held = self._possible_stop_length() if self._stop else 0
        end = len(self._text) - held if self._cut is None else self._cut
        released = self._text[self._released : end]
        self._released = end
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
