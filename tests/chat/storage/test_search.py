import random
import sqlite3
from itertools import pairwise
from pathlib import Path

import pytest

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.storage import SearchQuery, SearchReader, WordMatcher, index_messages, rebuild_search
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from rdchat.inference.api import Role
from tests.grids import share
from tests.stores import finish_message, written_by_hand


@pytest.fixture
def library(store: ConversationStore) -> ConversationStore:
    """Conversations whose title tells what one finds in them."""
    for number, (title, text) in enumerate(
        (
            ("Cooking", "How do I cook a soufflé? It's for a friend's birthday."),
            ("C++ templates", "Explain template<typename T> and std::vector in C++"),
            ("Travel", "去北京的火车 and a hotel in Zu\u0308rich"),
            ("Party", "Bring a cake 🎂 and 100% juice"),
            ("Streets", "Große Straße, STRASSENKREUZUNG am Mississippi, İstanbul, naïve_café, ﬁne ÄPFEL"),
        )
    ):
        chat = store.create_conversation(title)
        prompt = store.add_message(chat.id, None, Role.USER, text)
        store.add_message(chat.id, prompt.id, Role.ASSISTANT, "Certainly.", model=f"model {number % 2}")
    return store


@pytest.fixture
def reader(library: ConversationStore) -> SearchReader:
    return SearchReader(library.path)


def found(store: ConversationStore, search: str) -> set[str]:
    return {chat.title for chat in store.conversations(search)}


@pytest.mark.parametrize(
    ("search", "titles"),
    share(
        [
            ("cook", {"Cooking"}),
            ("COOK", {"Cooking"}),
            ("souffle", {"Cooking"}),
            ("zurich", {"Travel"}),
            ("trav", {"Travel"}),
            ("friend's", {"Cooking"}),
            ("hotel zür", {"Travel"}),
            ("zür hotel", set()),  # only the last word may be unfinished
            ("hotel soufflé", set()),  # every word in one message
            ("std::vec", {"C++ templates"}),
            ("template<typename", {"C++ templates"}),
            ("北京", {"Travel"}),
            ("火车 hot", {"Travel"}),
            ("hot 火车", set()),
            ("hotel 火车", {"Travel"}),
            ("🎂", {"Party"}),
            ("🎂 juice", {"Party"}),
            ("🎁", set()),
            ("%", {"Party"}),
            ("100%", {"Party"}),
            ("c", {"Cooking", "C++ templates", "Travel", "Party", "Streets"}),
            ("certainly", {"Cooking", "C++ templates", "Travel", "Party", "Streets"}),
            ("nothing", set()),
            ("gross", {"Streets"}),
            ("GROẞE strasse", {"Streets"}),
            ("strassenkreuzung", {"Streets"}),
            ("mississippi", {"Streets"}),
            ("apfel", {"Streets"}),
            ("cafe", {"Streets"}),
            ("fine", {"Streets"}),
            ("s" * 40, set()),
            ("", {"Cooking", "C++ templates", "Travel", "Party", "Streets"}),
            (" \t\n\0 ", {"Cooking", "C++ templates", "Travel", "Party", "Streets"}),
        ],
        4,
    ),
)
def test_a_search_finds_titles_and_messages_and_marks_them(
    library: ConversationStore, reader: SearchReader, search: str, titles: set[str]
) -> None:
    assert found(library, search) == titles
    answer = reader.search_chats(SearchQuery(search))
    assert [hit.conversation for hit in answer.hits] == library.conversations(search)
    assert answer.total == len(answer.hits)
    matcher = WordMatcher(search)
    for hit in answer.hits if matcher else ():
        assert bool(hit.messages) == bool(hit.snippet)
        assert matcher.spans(hit.snippet or hit.conversation.title)


ODD = ['"', "'", '"a', "a AND", "OR", "NOT a", "NEAR(a b)", "a*", "*", "^a", "(", ")", "a:b", "title:a", "-a", "{a}"]
ODD += ["+", "a\0b", ";", "--", "?", "\\", "\ud800", "²", "a" * 5000, "a " * 5000, '" OR "', "\ufe0f"]


def test_anything_may_be_typed_and_no_mark_leaves_the_text(library: ConversationStore) -> None:
    choose = random.Random(0)
    signs = "abz \"'*()^:-+{}[]\\\0%_?;ANDORNOT世🙂é²\u0301İßﬁ\ud800"
    searches = [*ODD, *("".join(choose.choices(signs, k=choose.randint(1, 12))) for _ in range(150))]
    for search, text in pairwise(searches):
        assert found(library, search) <= found(library, "")
        assert all(0 <= begin < end <= len(text) for begin, end in WordMatcher(search).spans(text))


def test_a_reply_is_found_when_it_is_finished_and_when_it_is_continued(store: ConversationStore) -> None:
    chat = store.create_conversation("chat")
    message = store.add_message(chat.id, None, Role.ASSISTANT, "", status=MessageStatus.STREAMING)
    store.save_text(message.id, "alpha")
    finish_message(store, message.id, "alpha", MessageStatus.COMPLETE)
    assert found(store, "alpha") == {"chat"}
    store.reopen_message(message.id)
    store.save_text(message.id, "alpha beta")
    finish_message(store, message.id, "alpha beta", MessageStatus.COMPLETE)
    finish_message(store, message.id, "alpha gamma", MessageStatus.COMPLETE)
    assert found(store, "alpha gamma") == {"chat"}
    assert found(store, "beta") == set()


def test_a_renamed_conversation_is_found_by_its_new_title(store: ConversationStore) -> None:
    chat = store.create_conversation("alpha")
    store.rename_conversation(chat.id, "beta")
    assert found(store, "beta") == {"beta"}
    assert found(store, "alpha") == set()


def test_the_index_agrees_with_the_text_it_indexes(library: ConversationStore) -> None:
    chat = library.conversations("cook")[0]
    library.delete_conversation(chat.id)
    with written_by_hand(library) as connection:
        connection.execute("DELETE FROM conversations WHERE deleted_at IS NOT NULL")
        # raises where index and text differ
        connection.execute("INSERT INTO messages_index (messages_index, rank) VALUES ('integrity-check', 1)")
        connection.execute("INSERT INTO titles_index (titles_index, rank) VALUES ('integrity-check', 1)")


def test_all_of_a_very_long_text_is_searched(store: ConversationStore) -> None:
    chat = store.create_conversation("chat")
    message = store.add_message(chat.id, None, Role.USER, "first " + "word " * 60_000 + "last")
    assert found(store, "first") == found(store, "first last") == {"chat"}
    reader = SearchReader(store.path)
    assert reader.messages_with(chat.id, "last").ids == (message.id,)
    assert [reader.search_chats(SearchQuery(words)).hits[0].snippet for words in ("LAST", "first")] == [
        "…word word last",
        " ".join(["first", *["word"] * 31]),
    ]


def test_the_index_made_anew_leaves_out_replies_that_are_being_written(store: ConversationStore) -> None:
    chat = store.create_conversation("chat")
    message = store.add_message(chat.id, None, Role.ASSISTANT, "", status=MessageStatus.STREAMING)
    store.save_text(message.id, "alpha")
    store.write(rebuild_search)
    store.run_bulk(index_messages(store)).result()
    finish_message(store, message.id, "beta", MessageStatus.COMPLETE)
    assert found(store, "alpha") == set()
    assert found(store, "beta") == {"chat"}
    with written_by_hand(store) as connection:
        connection.execute("INSERT INTO messages_index (messages_index, rank) VALUES ('integrity-check', 1)")


def test_a_summary_is_found_as_long_as_it_stands_there(store: ConversationStore) -> None:
    chat = store.create_conversation("chat")
    message = store.add_message(chat.id, None, Role.USER, "Hello")
    store.set_context_cut(message.id, ContextCut("They met in Orléans 🚆, hello.", "tiny"))
    for words in ("orleans", "met orl", "🚆", "🚆 met"):
        assert found(store, words) == {"chat"}
        hit = SearchReader(store.path).search_chats(SearchQuery(words)).hits[0]
        assert (hit.messages, hit.snippet.endswith("Orléans 🚆, hello.")) == (1, True)
        assert SearchReader(store.path).messages_with(chat.id, words).ids == (message.id,)
    assert found(store, "tiny") == set()
    assert SearchReader(store.path).search_chats(SearchQuery("hello")).hits[0].messages == 1
    store.set_context_cut(message.id, ContextCut("Rain fell."))
    assert (found(store, "orleans"), found(store, "rain")) == (set(), {"chat"})
    store.message_trash.delete(message.id)
    assert found(store, "rain") == set()


def test_the_index_of_summaries_agrees_with_them_in_copies_and_where_they_are_damaged(store: ConversationStore) -> None:
    chat = store.create_conversation("chat")
    message = store.add_message(chat.id, None, Role.USER, "Hello")
    store.set_context_cut(message.id, ContextCut("Rain fell."))
    store.organiser.copy(chat.id, "copy").result()
    assert found(store, "rain") == {"chat", "copy"}
    with written_by_hand(store) as connection:
        for wrong in ("no JSON", "[1]", '{"summary": 7}', '{"summary": null}'):
            connection.execute("UPDATE messages SET context_cut = ? WHERE id = ?", (wrong, message.id))
            connection.execute("INSERT INTO summaries_index (summaries_index, rank) VALUES ('integrity-check', 1)")
    assert found(store, "rain") == {"copy"}
    store.delete_conversation(chat.id)
    with written_by_hand(store) as connection:
        connection.execute("DELETE FROM conversations WHERE deleted_at IS NOT NULL")
        connection.execute("INSERT INTO summaries_index (summaries_index, rank) VALUES ('integrity-check', 1)")
    store.write(rebuild_search)
    assert found(store, "rain") == {"copy"}


@pytest.mark.parametrize(
    ("search", "text", "marked"),
    [
        ("zurich", "in Zu\u0308rich.", ["Zu\u0308rich"]),
        ("souf", "Soufflé! soufflés", ["Souf", "souf"]),
        ("friend's day", "friends, FRIEND'S days", ["FRIEND'S", "day"]),
        ("c++", "c c++ cc", ["c++"]),
        ("火车", "去火车火车", ["火车", "火车"]),
        ("a b", "", []),
        (" ", " ", []),
        *((each, "Die Straße, STRASSEN: STRAẞE, Strase", ["Straße", "STRASSE", "STRAẞE"])
          for each in ("STRASSE", "straße", "Strasse")),
    ],
)  # fmt: skip
def test_the_marks_are_the_words_as_they_are_written(search: str, text: str, marked: list[str]) -> None:
    matcher = WordMatcher(search)
    assert [text[begin:end] for begin, end in matcher.spans(text)] == marked
    assert bool(matcher) == bool(search.strip())


def test_filters_by_model_and_folder(reader: SearchReader, library: ConversationStore) -> None:
    outer = library.organiser.create_folder("outer")
    inner = library.organiser.create_folder("inner", outer.id)
    library.organiser.move(2, inner.id)
    library.organiser.move(3, outer.id)
    assert reader.models() == ("model 0", "model 1")

    def titles(query: SearchQuery) -> list[str]:
        return sorted(hit.conversation.title for hit in reader.search_chats(query).hits)

    assert titles(SearchQuery(folder_id=outer.id)) == ["C++ templates", "Travel"]
    assert titles(SearchQuery(folder_id=inner.id)) == ["C++ templates"]
    assert titles(SearchQuery(model="model 1")) == ["C++ templates", "Party"]
    assert titles(SearchQuery("hotel", model="model 0", folder_id=outer.id)) == ["Travel"]
    assert titles(SearchQuery("hotel", model="model 1")) == []


def test_the_bin_and_what_is_being_copied_are_not_found_and_the_archive_is(
    reader: SearchReader, library: ConversationStore
) -> None:
    library.delete_conversation(1)
    library.organiser.set_archived(2, archived=True)
    copying = library.organiser._copying(3, "copy", None)
    library.write(lambda _connection: next(copying))
    found = reader.search_chats(SearchQuery("certainly")).hits
    assert sorted(hit.conversation.title for hit in found) == ["C++ templates", "Party", "Streets", "Travel"]


def test_of_a_word_that_is_everywhere_the_newest_messages_are_looked_at(
    reader: SearchReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.chat.storage.search._MAX_MESSAGES", 3)
    answer = reader.search_chats(SearchQuery("certainly"))
    assert answer.is_part
    assert [hit.conversation.title for hit in answer.hits] == ["Streets", "Party", "Travel"]


def test_deleted_messages_are_not_among_the_newest_that_are_looked_at(
    reader: SearchReader, library: ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.message_trash.delete(library.messages(5)[1].id)
    monkeypatch.setattr("rdchat.chat.storage.search._MAX_MESSAGES", 3)
    answer = reader.search_chats(SearchQuery("certainly"))
    assert answer.is_part
    assert [hit.conversation.title for hit in answer.hits] == ["Party", "Travel", "C++ templates"]


def test_the_messages_of_one_chat(reader: SearchReader, library: ConversationStore) -> None:
    messages = library.messages(1)
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
