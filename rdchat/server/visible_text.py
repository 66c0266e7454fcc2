"""Splits a growing reply into thought, answer and tool calls, for clients that get it piece by piece."""

from rdchat.inference.api.events import FinishReason, ReplyEnd
from rdchat.thoughts import MarkerTokens, Thoughts, split_thoughts


class VisibleText:
    """The text of one reply as a client sees it.

    What may yet turn out as something else is held back: the beginning of a marker, and a tool call until the end.

    Args:
        raw: Whether the client gets the text as it is, with thoughts.
        shaped: Whether the answer has a shape, so that markers in it are data.
        call_marker: The text that begins a tool call; empty where the request has no tools.
        hold: Whether all text is held back until the end.

    Attributes:
        thought: What the client has of the thought.
        answer: What it has of the answer.
        begun: Whether the prompt opened a thought.
        tokens: Control tokens of the reply, those in the next text included.
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

    def _with_blanks(self, parts: Thoughts, text: str) -> str:
        """Return an answer with the blanks that it begins with; they are dropped behind a thought only."""
        if self.begun or parts.thought or not parts.answer or parts.answer[0].isspace():
            return parts.answer
        return text[: len(text) - len(text.lstrip())] + parts.answer

    def _before_calls(self, answer: str) -> str:
        """Cut an answer where a tool call begins, or may begin; blanks at the end may be dropped with it."""
        marker = self._call_marker
        if not marker:
            return answer
        index = answer.find(marker)
        if index < 0:
            held = (length for length in range(len(marker) - 1, 0, -1) if answer.endswith(marker[:length]))
            index = len(answer) - next(held, 0)
        return answer[:index].rstrip()

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
