"""Makes the replies to a request, piece by piece."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from rdchat.errors import InvalidSettingError
from rdchat.inference.api.events import GenerationEvent, ModelInfo, PrefillProgress, ReplyEnd, TokenEvent
from rdchat.server.desk import Desk, Ticket
from rdchat.server.interfaces.api_error import wrong
from rdchat.server.interfaces.order import Choice, Delta, ReplyOrder
from rdchat.server.interfaces.shapes import call_of
from rdchat.server.visible_text import VisibleText

Piece = PrefillProgress | Delta | tuple[Choice, Delta]
"""How far a prompt is read; more text of a reply; or a reply that has ended, with the rest of its text."""


async def make_replies(
    desk: Desk, ticket: Ticket, order: ReplyOrder, info: ModelInfo, partition: str
) -> AsyncGenerator[Piece]:
    """Make all replies to a request, one after another. Each begins with a `PrefillProgress`.

    Raises:
        ApiError: If the engine cannot, or the person stops it.
    """
    for index in range(len(order.prompts) * order.choices):
        try:
            request = order.request(index, info, desk.gate.draft, partition)
        except InvalidSettingError as error:
            raise wrong("prompt" if order.raw else "messages", str(error)) from error
        writer = _ReplyWriter(index, order, info, request.seed)
        async with aclosing(desk.reply(ticket, request)) as batches:
            async for batch in batches:
                for piece in writer.take(batch):
                    yield piece


class _ReplyWriter:
    """Turns the events of one reply into pieces."""

    def __init__(self, index: int, order: ReplyOrder, info: ModelInfo, seed: int) -> None:
        marker = info.tool_markers[0] if info.tool_markers and order.tools else ""
        self._order = order
        self._choice = Choice(index, seed)
        # A call comes as JSON, so nothing is shown before its end.
        self._may_be_call = order.shape is not None and bool(order.tools)
        self._text = VisibleText(
            raw=order.raw, shaped=order.shape is not None, call_marker=marker, hold=self._may_be_call
        )
        self._text.tokens.markers = info.token_markers
        # Tokens whose log-probabilities were sent.
        self._sent = 0

    def take(self, batch: Sequence[GenerationEvent]) -> list[Piece]:
        """Return what a client gets for some events."""
        read = [event for event in batch if isinstance(event, PrefillProgress)]
        if read:
            self._text.begun = read[0].in_thought
        tokens = [event for event in batch if isinstance(event, TokenEvent)]
        if self._order.top_log_probs is not None:
            self._choice.tokens += tokens
        self._text.tokens.offsets.update(offset for token in tokens for offset in token.control_offsets)
        thought, answer = self._text.add("".join(token.text for token in tokens))
        if isinstance(end := batch[-1], ReplyEnd):
            return [*read, self._finish(end, thought, answer)]
        listed = self._choice.tokens[self._sent :] if thought or answer else []
        self._sent += len(listed)
        return [*read, self._delta(thought, answer, listed)]

    def _finish(self, end: ReplyEnd, thought: str, answer: str) -> Piece:
        choice = self._choice
        more_thought, more_answer = self._text.finish(end)
        choice.end, choice.thought, choice.answer = end, self._text.thought, self._text.answer
        choice.calls = end.tool_calls[:1] if self._order.one_call else end.tool_calls
        if self._may_be_call and (call := call_of(choice.answer, self._order.tools)):
            choice.calls, choice.answer = call, ""
            answer = more_answer = ""
        if not self._order.show_thoughts:
            choice.thought = ""
        tail = self._delta(thought + more_thought, answer + more_answer, choice.listed()[self._sent :])
        return choice, tail

    def _delta(self, thought: str, answer: str, tokens: Sequence[TokenEvent]) -> Delta:
        return Delta(self._choice.index, thought if self._order.show_thoughts else "", answer, tuple(tokens))
