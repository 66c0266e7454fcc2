"""Laws: no word of a reply is lost, what a client has never changes, and a stream says what the whole reply says."""

import itertools
import re

from hypothesis import example, given
from hypothesis import strategies as some

from rdchat.inference.api import FinishReason, PartsReader, ReplyPart, Thoughts, grown
from tests.split_replies import client_of

_MARKS = (
    "<think>", "</think>", "[THINK]", "[/THINK]", "<|channel>thought", "<channel|>", "<|START_THINKING|>",
    "<|END_THINKING|>", "<seed:think>", "</seed:think>", "<answer>", "</answer>", "<response>", "</response>",
    "<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant<|channel|>final<|message|>", "<|return|>",
    "<|START_RESPONSE|>", "<|END_RESPONSE|>", "<thinking>", "</thinking>", "<|channel|>", "<|message|>", "<|start|>",
)  # fmt: skip
_PIECES = some.lists(
    some.sampled_from(("@", "@", "@", " ", "\n", "\n\n", "```\n", "`", "\n```\n", "\n```py\n", *_MARKS)), max_size=9
)


@given(pieces=_PIECES, begun=some.booleans(), ended=some.booleans())
@example(pieces=["@", "</think>", "@"], begun=False, ended=True)
@example(pieces=["@", "<think>", "@", "</think>", "@"], begun=False, ended=True)
def test_a_stream_says_each_word_of_a_reply_and_what_the_whole_says(
    pieces: list[str], begun: bool, ended: bool
) -> None:
    numbers = itertools.count()
    text = "".join(f"w{next(numbers)}." if piece == "@" else piece for piece in pieces)
    finish = FinishReason.EOS if ended else FinishReason.LENGTH
    steps = [text[at : at + step] for step in (1, max(len(text), 1)) for at in range(0, len(text), step)]
    one = client_of(steps[: len(text)], PartsReader(begun), finish=finish)
    whole = None
    for client in (one, client_of(steps[len(text) :], PartsReader(begun), finish=finish)):
        # The pieces are the reply, in order; blanks, marks that may go on and calls are held back.
        assert text.startswith("".join(piece.text for piece in client.pieces))
        assert whole in (None, client.at_once)
        whole = client.at_once
        for said in (client.streamed, whole):
            assert all(word in said[0] + said[1] for word in re.findall(r"w\d+\.", text)), said
        # A thought that the model ended without its mark is the answer too, so that no client gets an empty reply.
        if ended and client.streamed != whole:
            assert client.streamed[1] == whole[1]
            assert client.streamed[0].rpartition("\n\n")[2].strip() in whole[1]
        else:
            assert [each.rstrip() for each in client.streamed] == [each.rstrip() for each in whole]


@given(pieces=_PIECES, begun=some.booleans(), cut=some.integers(0, 60))
def test_a_reply_that_is_continued_reads_as_one(pieces: list[str], begun: bool, cut: int) -> None:
    text = "".join(f"w{at}." if piece == "@" else piece for at, piece in enumerate(pieces))
    before = text[:cut]
    more = text[cut:]
    reader = PartsReader(begun, before=before)
    whole = PartsReader(begun)
    given = [piece for letter in more for piece in reader.add_text(letter)]
    whole.add_text(text)
    assert more.startswith("".join(piece.text for piece in given))
    assert reader.finish_reply(ended=False) == whole.finish_reply(ended=False)


@given(pieces=_PIECES, begun=some.booleans())
def test_what_is_stored_while_a_reply_is_written_is_what_was_told(pieces: list[str], begun: bool) -> None:
    text = "".join(f"w{at}." if piece == "@" else piece for at, piece in enumerate(pieces))
    reader = PartsReader(begun)
    shown = ""
    parts: tuple[ReplyPart, ...] = (ReplyPart(0, 0, is_thought=True),) if begun else ()
    for letter in text:
        more = reader.add_text(letter)
        parts = grown(parts, more)
        shown = shown + "".join(piece.text for piece in more)
    stored = Thoughts(shown, parts)
    whole = reader.finish_reply(ended=False)
    assert (whole.thought + "\n").startswith(stored.thought)
    assert whole.answer.startswith(stored.answer)
