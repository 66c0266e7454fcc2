"""Laws: no word of a reply is lost, what a client has never changes, and a stream says what the whole reply says."""

import itertools
import re

from hypothesis import example, given
from hypothesis import strategies as some

from rdchat.inference.api.events import FinishReason, ReplyEnd
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.server.reply_parts import VisibleText

_MARKS = (
    "<think>", "</think>", "[THINK]", "[/THINK]", "<|channel>thought", "<channel|>", "<|START_THINKING|>",
    "<|END_THINKING|>", "<seed:think>", "</seed:think>", "<answer>", "</answer>", "<response>", "</response>",
    "<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant<|channel|>final<|message|>", "<|return|>",
    "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<thinking>", "</thinking>", "<|channel|>", "<|message|>", "<|start|>",
)  # fmt: skip
_PIECES = some.lists(
    some.sampled_from(("@", "@", "@", " ", "\n", "\n\n", "```\n", "`", "\n```\n", "\n```py\n", *_MARKS)), max_size=9
)


def _said(text: str, begun: bool, finish: FinishReason, step: int) -> tuple[str, str]:
    """Return the thought and the answer that a client gets of a text in pieces of so many letters."""
    visible = VisibleText()
    visible.begun = begun
    given = [visible.add(text[at : at + step]) for at in range(0, len(text), step)]
    given.append(visible.finish(ReplyEnd(0, text, (), "", finish, Statistics(), content=text)))
    thought, answer = ("".join(each) for each in zip(*given, strict=True))
    return thought, answer


@given(pieces=_PIECES, begun=some.booleans(), ended=some.booleans())
@example(pieces=["@", "</think>", "@"], begun=False, ended=True)
@example(pieces=["@", "<think>", "@", "</think>", "@"], begun=False, ended=True)
def test_a_stream_says_each_word_of_a_reply_and_what_the_whole_says(
    pieces: list[str], begun: bool, ended: bool
) -> None:
    numbers = itertools.count()
    text = "".join(f"w{next(numbers)}." if piece == "@" else piece for piece in pieces)
    finish = FinishReason.EOS if ended else FinishReason.LENGTH
    streamed, whole = (_said(text, begun, finish, step) for step in (1, max(len(text), 1)))
    for said in (streamed, whole):
        assert all(word in said[0] + said[1] for word in re.findall(r"w\d+\.", text)), said
    # A thought that the model ended without its mark is the answer too, so that no client gets an empty reply.
    if not (ended and streamed[0].strip() and streamed[0].strip() in "".join(whole)):
        assert [each.strip() for each in streamed] == [each.strip() for each in whole]
