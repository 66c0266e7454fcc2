import random

import pytest

from rdchat.chat.conversation import ContextCut, MessageStatus
from rdchat.chat.storage.search import SearchQuery, SearchReader, index_messages, rebuild_search
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role
from tests.grids import share
from tests.stores import finish_message, written_by_hand


@pytest.fixture
def library(store: ConversationStore) -> ConversationStore:
    """Conversations whose title tells what one finds in them."""
    for title, text in (
        ("Cooking", "How do I cook a soufflé? It's for a friend's birthday."),
        ("C++ templates", "Explain template<typename T> and std::vector in C++"),
        ("Travel", "去北京的火车 and a hotel in Zürich"),
        ("Party", "Bring a cake 🎂 and 100% juice"),
        ("Streets", "Große Straße, STRASSENKREUZUNG am Mississippi"),
    ):
        chat = store.create_conversation(title)
        prompt = store.add_message(chat.id, None, Role.USER, text)
        store.add_message(chat.id, prompt.id, Role.ASSISTANT, "Certainly.")
    return store


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
            ("s" * 40, set()),
            ("", {"Cooking", "C++ templates", "Travel", "Party", "Streets"}),
            (" \t\n\0 ", {"Cooking", "C++ templates", "Travel", "Party", "Streets"}),
        ],
        4,
    ),
)
def test_a_search_finds_titles_and_messages(library: ConversationStore, search: str, titles: set[str]) -> None:
    assert found(library, search) == titles


ODD = ['"', "'", '"a', "a AND", "OR", "NOT a", "NEAR(a b)", "a*", "*", "^a", "(", ")", "a:b", "title:a", "-a", "{a}"]
ODD += ["+", "a\0b", ";", "--", "?", "\\", "\ud800", "²", "a" * 5000, "a " * 5000, '" OR "', "\ufe0f"]


@pytest.mark.parametrize("search", share(ODD, 4))
def test_anything_may_be_typed(library: ConversationStore, search: str) -> None:
    assert found(library, search) <= found(library, "")


def test_random_signs_never_make_a_wrong_query(library: ConversationStore) -> None:
    choose = random.Random(0)
    signs = "abz \"'*()^:-+{}[]\\\0%_?;ANDORNOT世🙂é²"
    for _ in range(500):
        assert found(library, "".join(choose.choices(signs, k=choose.randint(1, 12)))) <= found(library, "")


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
