"""The part of a file that "fits" fits, whatever its text and the room."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings, strategies as st

from rdchat.chat.attachments.attached_file import FileKind, ReadFile, beginning
from rdchat.errors import PromptTooLongError
from rdchat.inference.api import ChatMessage
from rdchat.services.files.part_choice import PartChoice, Room, TokenCount

_KINDS = ("The cat sat on the mat. ", "31415926535 ", "我喜欢在图书馆里看书。", "for i in range(9):\n    x += 1\n")
_ROOMS = st.integers(1, 3000)


def count_words(messages: Sequence[ChatMessage]) -> int:
    """Count as a tokenizer does: a digit and a Chinese letter are a token, and four other letters are."""
    text = "".join(message.content for message in messages)
    tokens = sum(1 if each.isdigit() or ord(each) > 0x2000 else 0.25 for each in text)
    if tokens > 12_000:
        raise PromptTooLongError("This chat is too long for the model.")
    return int(tokens) + 5


def choice(text: str, room: int, tokens: TokenCount | None = None) -> PartChoice:
    return PartChoice(ReadFile("log.txt", FileKind.TEXT, (text,)), tokens, Room(room, 0, room, 0), count_words)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Return a text whose beginning may be far denser or thinner than the rest."""
    pieces = draw(st.lists(st.tuples(st.sampled_from(_KINDS), st.integers(1, 400)), min_size=1, max_size=4))
    return "".join(piece * times for piece, times in pieces)


@settings(max_examples=40)
@given(texts(), _ROOMS, st.sampled_from([None, 100, 30_000]))
def test_chosen_beginning_of_a_file_fits_and_a_longer_one_does_not(text: str, room: int, guessed: int | None) -> None:
    """A log of 5 MB gave 29,169 tokens where some 5,000 fitted."""
    tokens = None if guessed is None else TokenCount(guessed, exact=False)
    chosen = choice(text, room, tokens)
    outcome = chosen.choose_beginning(0)
    assert outcome.part is not None
    assert outcome.count is not None
    if len(outcome.part.text) <= 1:
        return  # The file's name alone fills the room.
    assert outcome.count.tokens <= room
    if outcome.part.label:
        # A tenth may go for the end of a line, and some tokens for the name of the share.
        more = beginning(chosen.file, int(len(outcome.part.text) * 1.15) + 8)
        assert chosen._counted(more).tokens > room * 0.75 - 10


@settings(max_examples=40)
@given(texts(), _ROOMS, st.sampled_from([None, 100, 30_000]))
def test_chosen_passages_of_a_file_fit(text: str, room: int, guessed: int | None) -> None:
    chosen = choice(text, room, None if guessed is None else TokenCount(guessed, exact=False))
    outcome = chosen.choose_passages("cat 31415926535 图书 range")
    if outcome.part is not None and outcome.part.label.startswith("passages"):
        assert outcome.count is not None
        assert outcome.count.tokens <= room


@pytest.mark.parametrize(
    ("characters", "label"),
    [(1, "the first 0.01% of it"), (1700, "the first 0.2% of it"), (999_990, "the first 99% of it")],
)
def test_label_names_the_share_of_the_file(characters: int, label: str) -> None:
    file = ReadFile("log.txt", FileKind.TEXT, ("x" * 1_000_000,))
    assert beginning(file, characters).label == label
