import pytest

from rdchat.ui.alternatives.differences import differences


@pytest.mark.parametrize(
    ("one", "other", "in_one", "in_other"),
    [
        ("The cat sat.", "The dog sat.", ["cat"], ["dog"]),
        ("The cat sat.", "The cat  sat.", [], []),
        ("same", "same", [], []),
        ("", "All of it", [], ["All of it"]),
        ("a b c", "a c", ["b"], []),
        ("🎂 good cake", "🎂 bad cake", ["good"], ["bad"]),
        ("你好世界", "你们世界", ["好"], ["们"]),
        ("don't", "do not", ["don't"], ["do not"]),
    ],
)
def test_words_that_differ_are_found(one: str, other: str, in_one: list[str], in_other: list[str]) -> None:
    def cut(text: str, spans: tuple[tuple[int, int], ...]) -> list[str]:
        units = text.encode("utf-16-le")
        return [units[2 * begin : 2 * end].decode("utf-16-le") for begin, end in spans]

    found = differences(one, other)
    assert (cut(one, found.in_one), cut(other, found.in_other)) == (in_one, in_other)


def test_long_texts_are_compared_too() -> None:
    one = " ".join(f"word{number % 50}" for number in range(8000))
    found = differences(one, one.replace("word7 ", "other ", 1))
    assert found.in_one
    assert len(found.in_one) < 4000
