import pytest

from rdchat.chat.thoughts import Thoughts, split_thoughts


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("Hello.", "", "Hello."),
        ("<think>\nhm\n</think>\n\nHello.", "hm", "Hello."),
        ("<think>hm</think>Hello.", "hm", "Hello."),
        ("\n  <think>hm</think>Hello.", "hm", "Hello."),
        ("the template began it\n</think>\nHello.", "the template began it", "Hello."),
        ("<think></think>Hello.", "", "Hello."),
        ("<think>a</think>\nOne.\n<think>b</think>\nTwo.", "a\n\nb", "One.\nTwo."),
        ("Use the `<think>` tag, closed by `</think>`.", "", "Use the `<think>` tag, closed by `</think>`."),
        ("```\n<think>\nx\n</think>\n```", "", "```\n<think>\nx\n</think>\n```"),
        ("<think>never closed", "never closed", ""),
    ],
)
def test_thoughts_are_parted_from_the_answer(text: str, thought: str, answer: str) -> None:
    parts = split_thoughts(text)
    assert (parts.thought, parts.answer) == (thought, answer)


def test_no_half_tag_shows_while_a_reply_grows() -> None:
    whole = "<think>\nI wonder.\n</think>\nYes, 1 < 2."
    for end in range(len(whole)):
        parts = split_thoughts(whole[:end], final=False)
        assert "think" not in parts.thought + parts.answer
        assert "</" not in parts.thought + parts.answer
        assert parts.open == (len("<think>") <= end < whole.index("</think>") + len("</think>"))
    assert split_thoughts(whole) == Thoughts("I wonder.", "Yes, 1 < 2.", False)


def test_a_lone_bracket_at_the_end_of_a_finished_reply_stays() -> None:
    assert split_thoughts("1 <").answer == "1 <"
    assert split_thoughts("1 <", final=False).answer == "1 "
