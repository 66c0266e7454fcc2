"""Searching on a connection of its own."""

import random
import sqlite3
from pathlib import Path

import pytest

from rdchat.chat.storage.search import SearchQuery, SearchReader
from rdchat.chat.storage.search_text import WordMatcher
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role

TEXTS = {
    "Cooking": "How do I cook a soufflé? It's for a friend's birthday.",
    "C++ templates": "Explain template<typename T> and std::vector in C++",
    "Travel": "去北京的火车 and a hotel in Zu\u0308rich",
    "Party": "Bring a cake 🎂 and 100% juice",
    "Straße": "ÄPFEL und ﬁne Birnen, İstanbul, naïve_café, STRASSEN, Schloss",
}
SEARCHES = [
    "cook",
    "souffle",
    "friend's",
    "hotel zür",
    "std::vec",
    "北京",
    "🎂 juice",
    "100%",
    "apfel",
    "c",
    "cafe",
    "STRASSE",
    "strassen schloß",
    "",
]


@pytest.fixture
def reader(store: ConversationStore, database: Path) -> SearchReader:
    for number, (title, text) in enumerate(TEXTS.items()):
        chat = store.create_conversation(title)
        prompt = store.add_message(chat.id, None, Role.USER, text)
        store.add_message(chat.id, prompt.id, Role.ASSISTANT, "Certainly.", model=f"model {number % 2}")
    return SearchReader(database)


@pytest.mark.parametrize("search", SEARCHES)
def test_it_finds_what_the_store_finds_and_marks_it(
    reader: SearchReader, store: ConversationStore, search: str
) -> None:
    answer = reader.search_chats(SearchQuery(search))
    assert [hit.conversation for hit in answer.hits] == store.conversations(search)
    assert answer.total == len(answer.hits)
    matcher = WordMatcher(search)
    for hit in answer.hits if search else ():
        assert bool(hit.messages) == bool(hit.snippet)
        assert matcher.spans(hit.snippet or hit.conversation.title)


def test_the_marks_are_the_words_as_they_are_written(reader: SearchReader) -> None:
    for search, text, words in (
        ("zurich", "in Zu\u0308rich.", ["Zu\u0308rich"]),
        ("souf", "Soufflé! soufflés", ["Soufflé", "soufflés"]),
        ("friend's day", "friends, FRIEND'S days", ["FRIEND'S", "days"]),
        ("c++", "c c++ cc", ["c++"]),
        ("火车", "去火车火车", ["火车", "火车"]),
    ):
        found = [text[begin:end] for begin, end in WordMatcher(search).spans(text)]
        assert all(part.startswith(word[: len(part)]) for part, word in zip(found, words, strict=False)), (
            search,
            found,
        )
        assert found
    assert WordMatcher("a b").spans("") == []
    assert not WordMatcher(" ")


@pytest.mark.parametrize("search", ["STRASSE", "straße", "Strasse"])
def test_a_sharp_s_is_marked_as_it_is_written(search: str) -> None:
    text = "Die Straße, STRASSEN: STRAẞE, Strase"
    assert [text[begin:end] for begin, end in WordMatcher(search).spans(text)] == ["Straße", "STRASSE", "STRAẞE"]


def test_marks_never_leave_the_text(reader: SearchReader) -> None:
    choose = random.Random(0)
    signs = "abz \"'*()^:-+{}[]\\\0%_?;世🙂é²\u0301İßﬁ\ud800"
    for _ in range(500):
        search, text = ("".join(choose.choices(signs, k=choose.randint(1, 9))) for _ in range(2))
        assert all(0 <= begin < end <= len(text) for begin, end in WordMatcher(search).spans(text))


def test_filters_by_model_and_folder(reader: SearchReader, store: ConversationStore) -> None:
    outer = store.organiser.create_folder("outer")
    inner = store.organiser.create_folder("inner", outer.id)
    store.organiser.move(2, inner.id)
    store.organiser.move(3, outer.id)
    assert reader.models() == ("model 0", "model 1")

    def titles(query: SearchQuery) -> list[str]:
        return sorted(hit.conversation.title for hit in reader.search_chats(query).hits)

    assert titles(SearchQuery(folder_id=outer.id)) == ["C++ templates", "Travel"]
    assert titles(SearchQuery(folder_id=inner.id)) == ["C++ templates"]
    assert titles(SearchQuery(model="model 1")) == ["C++ templates", "Party"]
    assert titles(SearchQuery("hotel", model="model 0", folder_id=outer.id)) == ["Travel"]
    assert titles(SearchQuery("hotel", model="model 1")) == []


def test_the_bin_and_what_is_being_copied_are_not_found_and_the_archive_is(
    reader: SearchReader, store: ConversationStore
) -> None:
    store.delete_conversation(1)
    store.organiser.set_archived(2, archived=True)
    copying = store.organiser._copying(3, "copy", None)
    store.write(lambda _connection: next(copying))
    found = reader.search_chats(SearchQuery("certainly")).hits
    assert sorted(hit.conversation.title for hit in found) == ["C++ templates", "Party", "Straße", "Travel"]


def test_of_a_word_that_is_everywhere_the_newest_messages_are_looked_at(
    reader: SearchReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.chat.storage.search._MAX_MESSAGES", 3)
    answer = reader.search_chats(SearchQuery("certainly"))
    assert answer.is_part
    assert [hit.conversation.title for hit in answer.hits] == ["Straße", "Party", "Travel"]


def test_the_messages_of_one_chat(reader: SearchReader, store: ConversationStore) -> None:
    messages = store.messages(1)
    assert reader.messages_with(1, "certainly").ids == (messages[1].id,)
    assert reader.messages_with(1, "nothing").ids == reader.messages_with(1, " ").ids == ()


def test_it_writes_nothing_and_says_what_is_wrong(reader: SearchReader, database: Path) -> None:
    with reader._opened() as connection, pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("DELETE FROM messages")
    reader.interrupt()
    with pytest.raises(sqlite3.Error):
        SearchReader(database.with_name("nothing.db")).search_chats(SearchQuery("a"))


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("The **bread** is *good*, __warm__ and `in_code`", "The bread is good, warm and in_code"),
        ("## All about bread\n\n- one\n* two\n\n---\n> said", "All about bread one two said"),
        ("$5 for bread, $10 for a_b_c and 2 * 3", "$5 for bread, $10 for a_b_c and 2 * 3"),
        ("With $x^2$, \\(y\\) and $$bread$$", "…x^2, y and bread"),
        ("[this bread](http://example.org/1) is", "this bread is"),
        ("[this](http://example.org/bread) is", "…example.org/bread) is"),  # the word is only in the address
        ("| a | bread |\n|---|:--:|\n| 1 | 2 |", "a bread 1 2"),
        ("```python\nbread()\n```\nend", "bread() end"),
        ("<think>\nbread?\n</think>\nCrust", "bread? Crust"),
        ("bread " + "-" * 1000 + "`" * 1000 + "[" * 1000, "bread " + "-" * 154),
    ],
)
def test_a_snippet_has_no_markdown_marks(store: ConversationStore, written: str, shown: str) -> None:
    chat = store.create_conversation("chat")
    store.add_message(chat.id, None, Role.ASSISTANT, written)
    assert SearchReader(store.path).search_chats(SearchQuery("bread")).hits[0].snippet == shown
