"""Turns the engine's events into the parts of a reply that a client gets."""

from bisect import bisect_left
from collections.abc import Sequence

from rdchat.inference.api.events import GenerationEvent, PrefillProgress, ReplyEnd, TokenEvent
from rdchat.server.interfaces.reply_request import Choice, Delta, ReplyRequest
from rdchat.server.interfaces.shapes import call_of

Part = PrefillProgress | Delta | tuple[Choice, Delta]
"""How far a prompt is read; more text of a reply; or a reply that has ended, with the rest of its text."""


class ReplyParts:
    """Makes the parts of one reply.

    Args:
        index: Index of the reply among those to the request.
        request: The request.
        seed: Seed of the reply.
    """

    def __init__(self, index: int, request: ReplyRequest, seed: int) -> None:
        self._request = request
        self._choice = Choice(index, seed)
        # A call comes as JSON, so nothing is sent before its end.
        self._may_be_call = request.shape is not None and bool(request.tools)
        # Thought and answer that the client has, and whether another thought has begun since.
        self._thought = ""
        self._answer = ""
        self._is_next = False
        # Tokens whose log-probabilities were sent.
        self._sent = 0
        # Where the text of each token begins, and where the text ends; ranges of thoughts and marks; where pieces end.
        self._starts = [0]
        self._thinking = list[tuple[int, int]]()
        self._told = 0

    def take_events(self, batch: Sequence[GenerationEvent]) -> list[Part]:
        """Return what a client gets for some events."""
        read = [event for event in batch if isinstance(event, PrefillProgress)]
        tokens = [event for event in batch if isinstance(event, TokenEvent)]
        if self._request.top_log_probs is not None:
            self._choice.tokens += tokens
        thought = ""
        answer = ""
        for token in tokens:
            self._starts.append(self._starts[-1] + len(token.text))
            for piece in token.pieces:
                if piece.is_thought or piece.is_mark:
                    self._thinking.append((self._told, self._told + len(piece.text)))
                self._told += len(piece.text)
                if piece.is_mark:
                    self._is_next = bool(self._thought + thought)
                elif piece.is_thought:
                    thought += "\n\n" * self._is_next + piece.text
                    self._is_next = False
                else:
                    answer += piece.text
        if self._may_be_call:
            thought = ""
            answer = ""
        self._thought += thought
        self._answer += answer
        if isinstance(end := batch[-1], ReplyEnd):
            return [*read, self._finish(end, thought, answer)]
        listed = self._tokens_with_text() if thought or answer else ()
        self._sent += len(listed)
        return [*read, self._delta(thought, answer, listed)]

    def _tokens_with_text(self) -> Sequence[TokenEvent]:
        """Return the tokens to send, without the last ones that have no text yet: one may be the end of the reply."""
        count = len(self._choice.tokens)
        while count > self._sent and not self._choice.tokens[count - 1].text:
            count -= 1
        return self._choice.tokens[self._sent : count]

    def _finish(self, end: ReplyEnd, thought: str, answer: str) -> Part:
        choice = self._choice
        parts = end.told
        choice.end = end
        choice.thought = parts.thought
        choice.answer = parts.answer
        if choice.thought:
            starts = self._starts[: len(end.token_ids)]
            counts = (bisect_left(starts, last) - bisect_left(starts, first) for first, last in self._thinking)
            choice.thought_tokens = sum(counts)
        choice.calls = end.tool_calls[:1] if self._request.one_call else end.tool_calls
        if self._may_be_call and (call := call_of(choice.answer, self._request.tools)):
            choice.calls = call
            choice.answer = ""
        tail = self._delta(
            thought + _rest(choice.thought, self._thought),
            answer + _rest(choice.answer, self._answer),
            choice.listed()[self._sent :],
        )
        if not self._request.show_thoughts:
            choice.thought = ""
        return choice, tail

    def _delta(self, thought: str, answer: str, tokens: Sequence[TokenEvent]) -> Delta:
        return Delta(self._choice.index, thought if self._request.show_thoughts else "", answer, tuple(tokens))


def _rest(text: str, sent: str) -> str:
    """Return what of a whole text was not sent; a thought that became the answer stays as it was sent."""
    return text.removeprefix(sent) if text.startswith(sent) else ""
