import pytest

from rdchat.chat.titles import tidy_title, title_from_model, title_from_prompt


@pytest.mark.parametrize(
    ("prompt", "title"),
    [
        ("Why is the sky blue?", "Why is the sky blue?"),
        ("  Why\tis  the sky\nblue?", "Why is the sky"),
        ("\n\n# Notes\ntext", "Notes"),
        ("> **Note** well", "Note well"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("---\n***\nHello", "Hello"),
        (
            "What do `print(*args)` and **all** of [the docs](https://a.b/c) say?",
            "What do print(*args) and all of the docs say?",
        ),
        ("Is 2**3 or 2*3*4 more, __init__?", "Is 2**3 or 2*3*4 more, __init__?"),
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


def test_a_models_title_has_no_marks_of_markdown() -> None:
    for written in ("The secret word is: **marmalade", "The *secret* word is: `marmalade`"):
        assert title_from_model(written) == "The secret word is: marmalade"
