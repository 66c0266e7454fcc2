"""What clients see of a growing reply."""

from itertools import accumulate

import pytest

from rdchat.inference.api.events import FinishReason, ReplyEnd
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.server.visible_text import VisibleText


def shown(text: str, content: str | None = None, *, begun: bool = False, finish: FinishReason = FinishReason.EOS,
          **options: bool | str) -> tuple[str, str]:  # fmt: skip
    """Return thought and answer after a reply came letter by letter; what a client has never shrinks."""
    visible = VisibleText(**options)  # type: ignore[arg-type]
    visible.begun = begun
    pieces = [visible.add(letter) for letter in text]
    pieces.append(
        visible.finish(ReplyEnd(0, text, (), "", finish, Statistics(), content=text if content is None else content))
    )
    for which, whole in enumerate((visible.thought, visible.answer)):
        assert list(accumulate(piece[which] for piece in pieces))[-1] == whole
    return visible.thought, visible.answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Hello, you.", ("", "Hello, you.")),
        ("  \n Hello  \n", ("", "  \n Hello  \n")),
        ("<think>Hm.</think>Yes.", ("Hm.", "Yes.")),
        ("a < b, and <b>", ("", "a < b, and <b>")),
        ("<think>All of it", ("All of it", "All of it")),
    ],
)
def test_thought_and_answer(text: str, expected: tuple[str, str]) -> None:
    assert shown(text) == expected


def test_a_thought_that_the_prompt_began() -> None:
    assert shown("Hm.</think>\n\nYes.", begun=True) == ("Hm.", "Yes.")


def test_a_thought_that_was_cut_off() -> None:
    assert shown("Hm, let me", begun=True, finish=FinishReason.LENGTH) == ("Hm, let me", "")


def test_raw_text_stays_as_it_is() -> None:
    assert shown("<think>x</think> y ", raw=True) == ("", "<think>x</think> y ")


def test_a_call_is_held_back() -> None:
    assert shown("So: <call>{}</call>", "So: ", call_marker="<call>") == ("", "So: ")
    assert shown("<call>{}</call>", "", call_marker="<call>") == ("", "")


def test_what_was_no_call_comes_at_the_end() -> None:
    for text in ("A <cal", "A <call> that is none", "A  "):
        assert shown(text, call_marker="<call>") == ("", text)


def test_all_is_held_back() -> None:
    visible = VisibleText(hold=True)
    assert visible.add("{}") == ("", "")
    assert visible.finish(ReplyEnd(0, "{}", (), "", FinishReason.EOS, Statistics(), content="{}")) == ("", "{}")


@pytest.mark.parametrize(
    "text",
    [
        '{"a": "<think>x</think> y"}',
        '{"a": "</think>"}',
        "<think>x</think>",
        '"\n<answer>"',
        "<|channel|>final<|message|>x",
    ],
)
def test_markers_in_an_answer_with_a_shape_are_data(text: str) -> None:
    """The server once cut such an answer in two."""
    assert shown(text, shaped=True) == ("", text)
    assert shown(f"Hm <think> <b>.</think>\n\n{text}", shaped=True, begun=True) == ("Hm <think> <b>.", text)


def test_a_call_in_an_answer_with_a_shape_is_data() -> None:
    text = '{"a": "<call>{}</call>"}'
    assert shown(text, call_marker="<call>", shaped=True) == ("", text)


def test_a_thought_before_a_shape_that_was_cut_off() -> None:
    assert shown("Hm</thi", shaped=True, begun=True, finish=FinishReason.LENGTH) == ("Hm</thi", "")
