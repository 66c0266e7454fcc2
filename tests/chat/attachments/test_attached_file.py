"""Choosing a part of a file that is too long, and naming it."""

import pytest

from rdchat.chat.attachments.attached_file import (
    PASSAGE,
    FileKind,
    Passage,
    ReadFile,
    beginning,
    joined,
    numbers_text,
    pages,
    parsed_pages,
    passages_of,
    ranked,
)

BOOK = ReadFile("book.pdf", FileKind.PDF, tuple(f"This is page {number}." for number in range(1, 91)))
FRUIT = ("Apples are red.", "Pears are green.", "Bananas are yellow, and bananas bend.", "Nothing here.", "A banana.")


def test_pages_are_taken_in_their_order_with_their_numbers() -> None:
    part = pages(BOOK, [4, 1, 2, 3, 7, 200])
    assert part.label == "pages 1 to 4 and 7 of 90"
    assert part.text.startswith("[page 1]\nThis is page 1.\n\n[page 2]")
    assert part.text.endswith("[page 7]\nThis is page 7.")
    assert pages(BOOK, range(1, 91)).label == ""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1-4, 7", [1, 2, 3, 4, 7]),
        ("7", [7]),
        (" 3 \u2013 4,3", [3, 4]),
        ("", None),
        ("4-1", None),
        ("0", None),
        ("91", None),
        ("1,,2", None),
        ("all", None),
        ("1-99999999999", None),
    ],
)
def test_pages_are_typed_as_in_a_print_dialog(text: str, found: list[int] | None) -> None:
    assert parsed_pages(text, 90) == found


def test_the_beginning_ends_with_a_line() -> None:
    file = ReadFile("a.txt", FileKind.TEXT, ("0123456789\n" * 100,))
    part = beginning(file, 112)
    assert (part.text, part.label) == ("\n".join(["0123456789"] * 10), "the first 10% of it")
    assert beginning(file, 5000).label == ""
    assert len(beginning(ReadFile("a.txt", FileKind.TEXT, ("x" * 1000,)), 100).text) == 100


def test_passages_hold_all_of_the_text_and_know_their_page() -> None:
    file = ReadFile("a.pdf", FileKind.PDF, ("word " * 1000, "", "One.\n\n" * 300 + "x" * 3000))
    passages = passages_of(file)
    assert {passage.page for passage in passages} == {1, 3}
    assert all(0 < len(passage.text) <= PASSAGE for passage in passages)
    assert "".join("".join(passage.text.split()) for passage in passages) == "".join("".join(file.parts).split())


def test_each_passage_of_a_table_has_the_names_of_its_columns() -> None:
    rows = "".join(f"{number},lamp {number}\n" for number in range(500))
    passages = passages_of(ReadFile("a.csv", FileKind.CSV, (f"price,name\n{rows}",)))
    assert len(passages) > 3
    assert all(passage.text.startswith("price,name\n") for passage in passages)
    assert "".join(passage.text.removeprefix("price,name\n") + "\n" for passage in passages) == rows


def test_passages_are_ranked_by_the_words_of_the_question() -> None:
    passages = [Passage(text) for text in FRUIT]
    order = ranked(passages, 'What colour are "bananas" (NOT zebras)?')
    assert set(order) == {2, 4}, "by the stem; that three of five have `are` says nothing"
    assert set(ranked(passages, "Are they?")) == {0, 1, 2}, "there is no other word"
    assert ranked(passages, "Zebra*") == []
    assert ranked(passages, "?!") == []


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("Straße", {0}),
        ("STRASSE?", set()),
        ("東京の天気は\uff1f", {1, 2}),
        ("天気", {1, 2}),
        ("気天", set()),
        ("雨", {1}),
        ("Köln雨", {0, 1}),
    ],
)
def test_passages_are_found_in_german_and_in_scripts_without_spaces(question: str, found: set[int]) -> None:
    texts = (
        "Die Straße nach Köln ist lang.",
        "東京の天気です。明日は雨です。",
        "大阪の天気です。",
        "Nothing here.",
        "空",
    )
    order = ranked([Passage(text) for text in texts], question)
    assert set(order) == found
    assert "東京" not in question or order[0] == 1, "it has more of the question"


def test_neighbours_are_joined_in_the_order_of_the_file() -> None:
    passages = [Passage(text, page) for page, text in enumerate(FRUIT, start=1)]
    part = joined(passages, [4, 1, 0])
    assert part.label == "passages 1 to 2 and 5 of 5"
    assert part.text == (
        "[passages 1 to 2, pages 1 to 2]\nApples are red.\nPears are green.\n\n[passage 5, page 5]\nA banana."
    )


def test_many_numbers_are_counted() -> None:
    assert numbers_text("passage", [3, 7, 12]) == "passages 3, 7 and 12"
    assert numbers_text("page", [3]) == "page 3"
    assert numbers_text("passage", list(range(1, 80, 2))) == "40 passages"


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("inter\u00adnational", "international"),
        ("inter\u00ad\nnational", "international"),
        ("international", "inter\u00adnational"),
        ("the \ufb01nal o\ufb00er", "final offer"),
        ("\uff26\uff55\uff4c\uff4c width", "full"),
        ("full", "\uff46\uff55\uff4c\uff4c"),
    ],
)
def test_passages_and_questions_are_compared_in_one_form(text: str, question: str) -> None:
    passages = [Passage("Apples."), Passage("Pears."), Passage(text)]
    assert ranked(passages, question) == [2]
