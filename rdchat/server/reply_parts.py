"""Turns the engine's events into what a client gets of a reply."""

from collections.abc import Sequence

from rdchat.inference.api.events import GenerationEvent, ModelInfo, PrefillProgress, ReplyEnd, TokenEvent
from rdchat.server.interfaces.reply_request import Choice, Delta, ReplyRequest
from rdchat.server.interfaces.shapes import call_of
from rdchat.server.visible_text import VisibleText

Part = PrefillProgress | Delta | tuple[Choice, Delta]
"""How far a prompt is read; more text of a reply; or a reply that has ended, with the rest of its text."""


class ReplyParts:
    """Makes the parts of one reply.

    Args:
        index: Index of the reply among those to the request.
        request: The request.
        info: The model.
        seed: Seed of the reply.
    """

    def __init__(self, index: int, request: ReplyRequest, info: ModelInfo, seed: int) -> None:
        marker = info.tool_markers[0] if info.tool_markers and request.tools else ""
        self._request = request
        self._choice = Choice(index, seed)
        # A call comes as JSON, so nothing is shown before its end.
        self._may_be_call = request.shape is not None and bool(request.tools)
        self._text = VisibleText(
            raw=request.raw, shaped=request.shape is not None, call_marker=marker, hold=self._may_be_call
        )
        self._text.tokens.markers = info.token_markers
        # Tokens whose log-probabilities were sent.
        self._sent = 0

    def take(self, batch: Sequence[GenerationEvent]) -> list[Part]:
        """Return what a client gets for some events; a reply begins with a `PrefillProgress`."""
        read = [event for event in batch if isinstance(event, PrefillProgress)]
        if read:
            self._text.begun = read[0].in_thought
        tokens = [event for event in batch if isinstance(event, TokenEvent)]
        if self._request.top_log_probs is not None:
            self._choice.tokens += tokens
        self._text.tokens.offsets.update(offset for token in tokens for offset in token.control_offsets)
        thought, answer = self._text.add("".join(token.text for token in tokens))
        if isinstance(end := batch[-1], ReplyEnd):
            return [*read, self._finish(end, thought, answer)]
        listed = self._choice.tokens[self._sent :] if thought or answer else []
        self._sent += len(listed)
        return [*read, self._delta(thought, answer, listed)]

    def _finish(self, end: ReplyEnd, thought: str, answer: str) -> Part:
        choice = self._choice
        more_thought, more_answer = self._text.finish(end)
        choice.end, choice.thought, choice.answer = end, self._text.thought, self._text.answer
        choice.calls = end.tool_calls[:1] if self._request.one_call else end.tool_calls
        if self._may_be_call and (call := call_of(choice.answer, self._request.tools)):
            choice.calls, choice.answer = call, ""
            answer = more_answer = ""
        if not self._request.show_thoughts:
            choice.thought = ""
        tail = self._delta(thought + more_thought, answer + more_answer, choice.listed()[self._sent :])
        return choice, tail

    def _delta(self, thought: str, answer: str, tokens: Sequence[TokenEvent]) -> Delta:
        return Delta(self._choice.index, thought if self._request.show_thoughts else "", answer, tuple(tokens))
