import pytest

from rdchat.ui.drafts.token_lines import LINE_BREAK, NO_CHARACTER, TokenLines


def laid(texts: list[str], width: int) -> TokenLines:
    lines = TokenLines(lambda text: float(len(text)), width)
    lines.append(texts)
    return lines


def shown(lines: TokenLines) -> list[str]:
    return ["".join(run.text for run in line) for line in lines.lines]


def test_words_stay_whole_and_lose_the_space_they_break_at() -> None:
    assert shown(laid(["The", " quick", " bro", "wn", " fox"], 12)) == ["The quick", "brown fox"]


def test_a_word_longer_than_a_line_is_broken_between_tokens() -> None:
    assert shown(laid([" ab", "cde", "fgh", "ijk"], 7)) == [" abcde", "fghijk"]
    assert shown(laid(["x", " ab", "cde", "fgh"], 7)) == ["x", "abcde", "fgh"]


def test_a_token_longer_than_a_line_is_broken() -> None:
    lines = laid(["=" * 20], 8)
    assert shown(lines) == ["=====", "=====", "=====", "====="]
    assert {run.token for line in lines.lines for run in line} == {0}


def test_line_breaks_are_shown_and_break() -> None:
    assert shown(laid(["a.\n\n", "b", "\n", "c"], 20)) == ["a.⏎", "⏎", "b⏎", "c"]


def test_tokens_without_a_character_have_a_place() -> None:
    lines = laid(["a", "", "é"], 20)
    assert shown(lines) == ["a·é"]
    assert lines.token_at(0, 1.5) == 1


@pytest.mark.parametrize("width", [3, 5, 8, 13, 40])
def test_appending_gives_what_laying_anew_gives(width: int) -> None:
    texts = ["Some", " wo", "rds", ",", " and", "\n", " mo", "re", " long", "ish", "ly", " words", ".\n\n", "End"]
    grown = TokenLines(lambda text: float(len(text)), width)
    for text in texts:
        grown.append([text])
    assert grown.lines == laid(texts, width).lines
    assert all(run.x + run.width <= width for line in grown.lines for run in line)
    assert sorted({run.token for line in grown.lines for run in line}) == list(range(len(texts)))
    assert all(run in grown.lines[run.line] for runs in grown.runs for run in runs)


def test_places_lead_to_tokens() -> None:
    lines = laid(["abc", " def", "\n", "gh"], 20)
    assert [lines.token_at(0, x) for x in (-3, 0, 2.9, 3, 6.9, 7.1, 99)] == [0, 0, 0, 1, 1, 2, 2]
    assert [lines.token_at(line, 0) for line in (-1, 1, 2)] == [None, 3, None]


def test_spans_run_along_lines() -> None:
    assert laid(["abc", " def", " ghi", " jkl"], 7).spans(range(1, 4)) == [(0, 3.0, 7.0), (1, 0.0, 7.0)]


def test_every_token_can_be_pointed_at() -> None:
    """The window looked for the place of a token that was a carriage return alone, and there was none."""
    lines = laid(["a", "\r", "", "\r\n", "b"], 20)
    assert all(lines.runs)
    assert "".join(run.text for run in lines.lines[0]) == f"a{NO_CHARACTER}{NO_CHARACTER}{LINE_BREAK}"
