"""Turns the engine's events into the parts of a reply that a client gets."""

from collections.abc import Sequence

from rdchat.inference.api.events import FinishReason, GenerationEvent, ModelInfo, PrefillProgress, ReplyEnd, TokenEvent
from rdchat.server.interfaces.reply_request import Choice, Delta, ReplyRequest
from rdchat.server.interfaces.shapes import call_of
from rdchat.thoughts import MarkerTokens, Thoughts, call_start, split_thoughts

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
        # Where each token's text begins, and where the text ends.
        self._starts = [0]

    def take(self, batch: Sequence[GenerationEvent]) -> list[Part]:
        """Return what a client gets for some events; a reply begins with a `PrefillProgress`."""
        read = [event for event in batch if isinstance(event, PrefillProgress)]
        if read:
            self._text.begun = read[0].in_thought
        tokens = [event for event in batch if isinstance(event, TokenEvent)]
        if self._request.top_log_probs is not None:
            self._choice.tokens += tokens
        for token in tokens:
            self._starts.append(self._starts[-1] + len(token.text))
        self._text.tokens.offsets.update(offset for token in tokens for offset in token.control_offsets)
        thought, answer = self._text.add("".join(token.text for token in tokens))
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
        more_thought, more_answer = self._text.finish(end)
        choice.end, choice.thought, choice.answer = end, self._text.thought, self._text.answer
        if choice.thought:
            answers, starts = self._text.answers(end), self._starts[: len(end.token_ids)]
            choice.thought_tokens = sum(not any(first <= at <= last for first, last in answers) for at in starts)
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


class VisibleText:
    """The text of one reply as a client sees it.

    Text that may not be a part of the answer is held back: the beginning of a marker, and a tool call until the end.

    Args:
        raw: Whether the client gets the text as it is, with thoughts.
        shaped: Whether the answer has a shape, so that markers in it are data.
        call_marker: The text that begins a tool call; empty where the request has no tools.
        hold: Whether all text is held back until the end.

    Attributes:
        thought: The part of the thought that the client has.
        answer: The part of the answer that the client has.
        begun: Whether the prompt began a thought.
        tokens: Control tokens of the reply, including those in the next text.
    """

    def __init__(self, *, raw: bool = False, shaped: bool = False, call_marker: str = "", hold: bool = False) -> None:
        self._raw, self._shaped, self._hold = raw, shaped, hold
        self._call_marker = "" if shaped else call_marker
        self.begun = False
        self.tokens = MarkerTokens()
        self._text = self.thought = self.answer = ""

    def add(self, text: str) -> tuple[str, str]:
        """Take more text; return what is new of the thought and of the answer."""
        self._text += text
        if self._hold or not text:
            return "", ""
        if self._raw:
            return self._grow("", self._text)
        parts = split_thoughts(self._text, final=False, begun=self.begun, shaped=self._shaped, tokens=self.tokens)
        return self._grow(parts.thought, self._before_calls(self._with_blanks(parts, self._text)))

    def finish(self, end: ReplyEnd) -> tuple[str, str]:
        """Return what is still new at the end of the reply."""
        if self._raw:
            return self._grow("", end.text)
        ended = end.finish_reason is FinishReason.EOS
        tokens = MarkerTokens(self.tokens.markers, set(end.content_control_offsets))
        parts = split_thoughts(end.content, begun=self.begun, ended=ended, shaped=self._shaped, tokens=tokens)
        return self._grow(parts.thought, self._with_blanks(parts, end.content))

    def answers(self, end: ReplyEnd) -> Sequence[tuple[int, int]]:
        """Return the ranges of the complete text that are no thought."""
        tokens = MarkerTokens(self.tokens.markers, set(end.control_offsets))
        ended = end.finish_reason is FinishReason.EOS
        return split_thoughts(end.text, begun=self.begun, ended=ended, shaped=self._shaped, tokens=tokens).spans

    def _with_blanks(self, parts: Thoughts, text: str) -> str:
        """Return an answer with the blanks that it begins with; they are dropped behind a thought only."""
        if self.begun or parts.thought or not parts.answer or parts.answer[0].isspace():
            return parts.answer
        return text[: len(text) - len(text.lstrip())] + parts.answer

    def _before_calls(self, answer: str) -> str:
        """Cut an answer where a tool call begins, or may begin; blanks at the end may be dropped with it."""
        return answer[: call_start(answer, self._call_marker)].rstrip() if self._call_marker else answer

    def _grow(self, thought: str, answer: str) -> tuple[str, str]:
        new_thought = _new(self.thought, thought)
        new_answer = _new(self.answer, answer)
        self.thought += new_thought
        self.answer += new_answer
        return new_thought, new_answer


def _new(before: str, now: str) -> str:
    """Return what a text gained. Blanks at its beginning may have gone since."""
    if now.startswith(before):
        return now[len(before) :]
    now, before = now.lstrip(), before.lstrip()
    return now[len(before) :] if now.startswith(before) else ""
