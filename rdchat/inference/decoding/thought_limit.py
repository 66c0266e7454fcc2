"""The limit of a thought, as rules that a `ReplyMatcher` keeps a reply within.

After so many tokens a thought is closed by the model's own marker, and the answer begins; which tokens are forced
depends on those before them alone. The method is that of s1's budget forcing (Muennighoff et al. 2025, arXiv
2501.19393, section 3.1), without words of its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from rdchat.inference.api import Opening, openings
from rdchat.inference.decoding.reply_matcher import Rules, TokenBits, marker_parts
from rdchat.inference.verification import LoadedModel

# Stands before a control token's text, which ordinary text may spell too; no UTF-8 has it.
_CONTROL = b"\xff"


@dataclass(frozen=True, slots=True)
class _State:
    """State of a `ThoughtLimit` after the tokens so far.

    Attributes:
        count: Tokens of all thoughts.
        text: In a thought its last bytes; before one the bytes that may begin its marker.
        end: The marker that ends the open thought; empty where none is open.
        close: The tokens that close it, so that the answer follows; see `Opening.close`.
        due: The forced tokens that come next: at the limit what is left of `close`, perhaps behind a line end.
        over: Whether no thought can begin any more, so that later tokens change nothing.
    """

    count: int = 0
    text: bytes = b""
    end: bytes = b""
    close: tuple[int, ...] = ()
    due: tuple[int, ...] = ()
    over: bool = False


class ThoughtLimit:
    """Rules that close a reply's thought at a limit; other rules may be inside of them. See `Rules`.

    A thought begins in the prompt, or at the reply's start. One that the model ends may be followed by another, and the
    limit is that of all together. After a closed one no other is looked for.

    Args:
        model: The target.
        limit: The most tokens of thoughts; those of an end marker count where the model writes it itself.
        closing: The marker that ends the thought which the prompt opens; empty if it opens none.
        begun: Tokens of the reply's beginning that are part of the prompt.
        within: Other rules, for what is not forced; they are after `begun` already.
    """

    def __init__(
        self, model: LoadedModel, limit: int, closing: str = "", begun: Iterable[int] = (), within: Rules | None = None
    ) -> None:
        self._model = model
        self._limit = limit
        self._within = within
        # Length of `TokenBits`.
        self._integers = (model.info.vocabulary_size + 31) // 32
        self._control = {text: token for token, text in model.prompts.control.items()}
        self._openings = [(self._bytes_of(each.marker), each) for each in openings()]
        state = self._opened(_State(), Opening("", closing, closing)) if closing else _State()
        # One state for each token, and the first.
        self._states = [state]
        for token in begun:
            self._states = [self._after(self._states[-1], token)]

    def is_free(self, count: int) -> bool:
        state = self._states[-1]
        ours = not state.due and (state.over or state.count + count < self._limit)
        return ours and (self._within is None or self._within.is_free(count))

    def allowed(self) -> TokenBits | None:
        if not (due := self._states[-1].due):
            return None if self._within is None else self._within.allowed()
        bits = np.zeros(self._integers, np.uint32)
        bits[due[0] >> 5] = 1 << (due[0] & 31)
        return bits

    def forced(self) -> list[int]:
        return [*self._states[-1].due] or ([] if self._within is None else self._within.forced())

    def take(self, token: int) -> None:
        self._states.append(self._after(self._states[-1], token))
        if self._within is not None:
            self._within.take(token)

    def back(self, count: int) -> None:
        if self._within is not None:
            self._within.back(count)
        del self._states[len(self._states) - count :]

    def _after(self, state: _State, token: int) -> _State:
        """Return the state after one more token. The first case that applies counts:

        - No thought can begin any more: nothing changes.
        - The token is a forced one: after the last of them, no thought can begin any more.
        - No thought is open: the text so far may be a marker that begins one, or the beginning of a marker. Otherwise
          it is the answer.
        - A thought is open: it ends here if its marker is complete. Otherwise the token counts towards the limit.
        """
        if state.over:
            return state
        if state.due:
            return replace(state, due=state.due[1:], over=len(state.due) == 1)
        text = state.text + self._data(token)
        if not (end := state.end):
            # No thought is open; the text may begin one.
            written = text.lstrip()
            for marker, opening in self._openings:
                if written.startswith(marker):
                    return self._opened(replace(state, text=written[len(marker) :]), opening)
            return replace(state, text=written, over=not any(each.startswith(written) for each, _ in self._openings))
        # As in `split_thoughts`, a marker after a backtick is quoted.
        if (at := text.find(end)) >= 0 and text[at - 1 : at] != b"`":
            return _State(state.count + 1)
        return self._limited(replace(state, count=state.count + 1, text=text[-len(end) :]))

    def _opened(self, state: _State, opening: Opening) -> _State:
        """Return the state in a thought that begins here."""
        tokens = list[int]()
        for part in marker_parts(opening.close, self._control):
            tokens += [part] if isinstance(part, int) else self._model.prompts.encode_text(part)
        if any(token >= self._model.info.vocabulary_size for token in tokens):
            # The model cannot write its marker.
            return replace(state, over=True)
        return self._limited(replace(state, end=self._bytes_of(opening.end), close=tuple(tokens)))

    def _limited(self, state: _State) -> _State:
        """Return a state in a thought, with the tokens that close it where it is at its limit."""
        if state.count < self._limit:
            return state
        # The model may have begun the marker itself: so many of its tokens are there.
        starts = range(len(state.close) - 1, 0, -1)
        begun = next((n for n in starts if state.text.endswith(b"".join(map(self._data, state.close[:n])))), 0)
        # A marker after a backtick would be quoted.
        line_end = self._model.prompts.encode_text("\n") if state.text.endswith(b"`") else ()
        return replace(state, due=(*line_end, *state.close[begun:]))

    def _data(self, token: int) -> bytes:
        """Return a token's bytes; those of a control token begin with `_CONTROL`."""
        control = self._model.prompts.control.get(token)
        return self._model.token_data(token) if control is None else _CONTROL + control.encode()

    def _bytes_of(self, marker: str) -> bytes:
        parts = marker_parts(marker, self._control)
        return b"".join(self._data(part) if isinstance(part, int) else part.encode() for part in parts)
