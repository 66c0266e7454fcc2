"""Replies told apart as the engine does it, and what a client of the server gets of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from rdchat.inference.api import (
    ChatMessage,
    FinishReason,
    PartsReader,
    Piece,
    ReplyEnd,
    Role,
    Statistics,
    Thoughts,
    TokenEvent,
    ToolCall,
)
from rdchat.server.interfaces.reply_request import Choice, Delta, Prompt, ReplyParts, ReplyRequest

_PROMPT = Prompt((ChatMessage(Role.USER, "Hi"),))


def told(text: str, *, begun: bool = False, ended: bool = True, control: Sequence[int] = (),
         markers: frozenset[str] = frozenset()) -> Thoughts:  # fmt: skip
    """Return a whole reply, told apart."""
    reader = PartsReader(begun, markers=markers)
    reader.add_text(text, control)
    return reader.finish_reply(ended)


@dataclass
class Client:
    """What a client of the server got.

    Attributes:
        thoughts: More of the thought, each time that something came.
        answers: More of the answer.
        pieces: What the engine told apart.
        whole: The reply as a client gets it that does not stream.
    """

    whole: Choice
    thoughts: list[str] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    @property
    def streamed(self) -> tuple[str, str]:
        return "".join(self.thoughts), "".join(self.answers)

    @property
    def at_once(self) -> tuple[str, str]:
        return self.whole.thought, self.whole.answer


def client_of(texts: Sequence[str], reader: PartsReader, *, finish: FinishReason = FinishReason.EOS,
              control: Iterable[int] = (), cut: tuple[int, int] | None = None) -> Client:  # fmt: skip
    """Return what a client gets of a reply.

    Args:
        texts: The texts of its tokens.
        reader: Tells it apart.
        finish: Why it ended.
        control: Indexes of control tokens.
        cut: Range of the text that a call of a tool took.
    """
    begins = [0, *accumulate(map(len, texts))]
    marks = set(control)
    parts = ReplyParts(0, ReplyRequest("", (_PROMPT,), {}, 0), 0)
    client = Client(Choice(0, 0))
    for at, text in enumerate(texts):
        offsets = (begins[at],) if at in marks else ()
        event = TokenEvent(0, at, at, text, pieces=reader.add_text(text, offsets))
        client.pieces += event.pieces
        for part in parts.take_events([event]):
            assert isinstance(part, Delta)
            client.thoughts.append(part.thought)
            client.answers.append(part.answer)
    told = reader.finish_reply(finish is FinishReason.EOS)
    calls = (ToolCall("f", "{}"),) if cut else ()
    told = told.within([(0, cut[0]), (cut[1], len(told.text))]) if cut else told
    ids = tuple(range(len(texts)))
    (last,) = parts.take_events(
        [ReplyEnd(0, "".join(texts), ids, "", finish, Statistics(), tool_calls=calls, told=told)]
    )
    assert isinstance(last, tuple)
    choice, rest = last
    client.whole = choice
    client.thoughts = [*client.thoughts, rest.thought]
    client.answers = [*client.answers, rest.answer]
    return client
