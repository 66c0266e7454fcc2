import pytest

from rdchat.chat.titles import tidy_title, title_from_prompt


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Why is the sky blue?", "Why is the sky blue?"),
        ("  Why\tis  the sky\nblue?", "Why is the sky"),
        ("\n\n# Notes\ntext", "Notes"),
        ("> **Note** well", "Note** well"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("---\n***\nHello", "Hello"),
        ("Explain how the moon pulls the water of the oceans around", "Explain how the moon pulls the water of the…"),
        ("x" * 100, "x" * 48 + "…"),
        ("天" * 48, "天" * 48),
        ("one, " * 20, "one, one, one, one, one, one, one, one, one…"),
        ("***", "***"),
        ("", "New chat"),
        (" \n ", "New chat"),
    ],
)
def test_a_title_is_the_first_line_that_says_something(prompt: str, title: str) -> None:
    assert title_from_prompt(prompt) == title


def test_a_persons_title_is_one_line_of_a_bearable_length() -> None:
    assert tidy_title("  a\n b\tc ") == "a b c"
    assert len(tidy_title("word " * 1000)) <= 200
