import pytest

from rdchat.ui.conversation.alternatives_window import differences


@pytest.mark.parametrize(
    ("one", "other", "in_one", "in_other"),
    [
        ("The cat sat.", "The dog sat.", ["cat"], ["dog"]),
        ("The cat sat.", "The cat  sat.", [], []),
        ("same", "same", [], []),
        ("Well", "Well, all of it", [], [", all of it"]),
        ("a b c", "a c", ["b"], []),
        ("🎂 good cake", "🎂 bad cake", ["good"], ["bad"]),
        ("你好世界", "你们世界", ["好"], ["们"]),
        ("We don't know", "We do not know", ["don't"], ["do not"]),
    ],
)
def test_words_that_differ_are_found(one: str, other: str, in_one: list[str], in_other: list[str]) -> None:
    def cut(text: str, spans: list[tuple[int, int]]) -> list[str]:
        units = text.encode("utf-16-le")
        return [units[2 * begin : 2 * end].decode("utf-16-le") for begin, end in spans]

    found = differences(one, other)
    assert found is not None
    spans, spans_of_other = found
    assert (cut(one, spans), cut(other, spans_of_other)) == (in_one, in_other)


def test_long_texts_are_compared_too() -> None:
    one = " ".join(f"word{number % 4000}" for number in range(8000))
    found = differences(one, one.replace("word7 ", "other ", 1))
    assert 0 < len(found[0]) < 4000


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("", "All of it"),
        ("Apples, pears and plums are fruits.", "1. Mango\n2. Kiwi"),
        ("It is a table of keys and values.", "Think of a row of drawers, each with a name on it."),
    ],
)
def test_texts_with_little_in_common_are_not_marked(one: str, other: str) -> None:
    assert differences(one, other) is None


def test_words_that_repeat_without_end_are_not_compared() -> None:
    assert differences("a " * 3000, "a b " * 1500) is None
