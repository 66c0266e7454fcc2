from dataclasses import replace

import pytest

from rdchat.chat.attachments.attached_file import FileKind, ReadFile, attached, image_file
from rdchat.chat.conversation import Drafting, MessageStatus, ReadingPosition
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.api import FinishReason, Role, SamplingParams, Statistics
from tests.chat.conftest import OpenStore
from tests.chat.traces import STATISTICS
from tests.stores import finish_message, written_by_hand


def reply(store: ConversationStore, seed: int | None = None) -> int:
    """Begin a reply in a new conversation and return its id."""
    chat = store.create_conversation()
    prompt = store.add_message(chat.id, None, Role.USER, "Why is the sky blue?")
    return store.add_message(
        chat.id, prompt.id, Role.ASSISTANT, "", status=MessageStatus.STREAMING, model="smollm2", seed=seed
    ).id


def test_everything_said_is_there_after_a_restart(open_store: OpenStore) -> None:
    store = open_store()
    sampling = SamplingParams(temperature=0.25, top_k=40, stop=("END", "\n\n"))
    chat = store.create_conversation("Sky")
    chat = store.set_chat_options(replace(chat, system_prompt="Be brief.", sampling=sampling))
    prompt = store.add_message(chat.id, None, Role.USER, "Why is the sky blue?")
    answer = store.add_message(
        chat.id, prompt.id, Role.ASSISTANT, "", status=MessageStatus.STREAMING, model="smollm2", seed=7
    )
    answer = finish_message(
        store,
        answer.id,
        "Rayleigh.",
        MessageStatus.COMPLETE,
        finish_reason=FinishReason.EOS,
        statistics=STATISTICS,
    )
    assert (answer.text, answer.model, answer.seed) == ("Rayleigh.", "smollm2", 7)
    assert (answer.finish_reason, answer.statistics) == (FinishReason.EOS, STATISTICS)
    chats = store.conversations()
    assert (chats[0].system_prompt, chats[0].sampling) == ("Be brief.", sampling)
    store.close()

    store = open_store()
    assert store.notice is None
    assert store.conversations() == chats
    assert store.messages(chat.id) == [prompt, answer]


def test_counters_of_a_remote_reply_are_read_again(store: ConversationStore) -> None:
    """Its server says how many rounds there were, but no lengths: after a restart the reply had no figures."""
    told = Statistics(generated_tokens=60, rounds=20, drafted=40, accepted=30, target_calls=20)
    how = Drafting(None, server="studio")
    remote = finish_message(store, reply(store), "Hi", MessageStatus.COMPLETE, statistics=told, drafting=how)
    read = store.message(remote.id)
    assert (read.statistics, read.drafting) == (told, how)


@pytest.mark.parametrize("seed", [None, 0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_every_64_bit_seed_survives(store: ConversationStore, seed: int | None) -> None:
    assert store.message(reply(store, seed)).seed == seed


@pytest.mark.parametrize(
    "text",
    ["", "\0", "a\0b", "\r\n\t ", "🙂👨‍👩‍👧", "世界", "'; DROP TABLE messages; --", "x" * 1_000_000],
    ids=["empty", "nul", "nul inside", "white", "emoji", "chinese", "sql", "long"],
)
def test_any_text_survives(store: ConversationStore, text: str) -> None:
    message = store.message(reply(store))
    assert finish_message(store, message.id, text, MessageStatus.COMPLETE).text == text
    assert store.message(message.id).text == text


def test_half_a_surrogate_pair_is_replaced_and_does_not_stop_the_message(store: ConversationStore) -> None:
    chat = store.create_conversation("half \ud83d")
    assert store.rename_conversation(chat.id, "\udc00 half").title == "? half"
    assert store.rename_conversation(chat.id, " \n").title == "? half"
    assert store.add_message(chat.id, None, Role.USER, "half \ud83d").text == "half ?"
    assert store.conversations("\ud83d") == [store.conversation(chat.id)]


def test_a_text_with_a_flipped_bit_does_not_hide_the_chat(store: ConversationStore) -> None:
    message = store.message(reply(store))
    with written_by_hand(store) as connection:
        connection.execute("UPDATE messages SET text = CAST(x'41ff42' AS TEXT) WHERE id = ?", (message.id,))
    assert store.messages(message.conversation_id)[-1].text == "A�B"


def test_conversations_come_newest_first_and_move_up_when_written_to(store: ConversationStore) -> None:
    first, second, third = (store.create_conversation(title).id for title in ("1", "2", "3"))
    assert [chat.id for chat in store.conversations()] == [third, second, first]
    store.add_message(first, None, Role.USER, "hello")
    assert [chat.id for chat in store.conversations()] == [first, third, second]


def test_a_conversation_is_renamed_where_it_is_but_not_to_nothing(store: ConversationStore) -> None:
    first, second = (store.create_conversation(title).id for title in ("1", ""))
    assert store.conversation(second).title == "New chat"
    for title in ("  Two\n words ", " \n"):
        assert store.rename_conversation(first, title).title == "Two words"
    assert [chat.id for chat in store.conversations()] == [second, first]


def test_chat_options_can_go_back_to_the_settings(store: ConversationStore) -> None:
    chat = store.create_conversation()
    assert (chat.system_prompt, chat.sampling) == (None, None)
    chat = store.set_chat_options(replace(chat, system_prompt="", sampling=SamplingParams()))
    assert (chat.system_prompt, chat.sampling) == ("", SamplingParams())
    chat = store.set_chat_options(replace(chat, system_prompt=None, sampling=None))
    assert (chat.system_prompt, chat.sampling) == (None, None)


def test_a_deleted_conversation_can_be_restored(store: ConversationStore) -> None:
    message = store.message(reply(store))
    chat_id = message.conversation_id
    store.delete_conversation(chat_id)
    assert store.conversations() == []
    assert store.conversations("sky") == []
    with pytest.raises(StorageError, match="This chat no longer exists"):
        store.conversation(chat_id)
    assert store.restore_conversation(chat_id).id == chat_id
    assert len(store.messages(chat_id)) == 2
    assert len(store.conversations("sky")) == 1


def test_a_reply_can_end_in_a_chat_that_was_deleted_meanwhile(store: ConversationStore) -> None:
    message = store.message(reply(store))
    store.delete_conversation(message.conversation_id)
    store.save_text(message.id, "Ray")
    finish_message(store, message.id, "Rayleigh", MessageStatus.COMPLETE)
    store.restore_conversation(message.conversation_id)
    assert store.messages(message.conversation_id)[-1].text == "Rayleigh"


@pytest.mark.slow
def test_a_conversation_deleted_for_good_is_erased_after_a_restart(open_store: OpenStore) -> None:
    """A chat of 3,000 messages: a cascade along `parent_id` would exceed SQLite's limit of nested triggers."""
    store = open_store()
    chat = store.create_conversation("long")
    parent = store.add_message(chat.id, None, Role.USER, "first").id
    for number in range(3000):
        parent = store.add_message(chat.id, parent, Role.USER, f"word{number}").id
    store.delete_conversation(chat.id)
    store.organiser.schedule_erase([chat.id])
    store.close()
    store = open_store()
    assert store.notice is None
    store.organiser.erase().result()
    for table in ("conversations", "messages", "messages_index", "titles_index"):
        assert store.rows(f"SELECT count(*) FROM {table}") == [(0,)]
    assert store.rows("SELECT rowid FROM messages_index WHERE messages_index MATCH 'word1*'") == []
    with pytest.raises(StorageError, match="This chat no longer exists"):
        store.restore_conversation(chat.id)
    with pytest.raises(StorageError, match="This message no longer exists"):
        store.message(parent)


def test_streamed_text_is_kept_and_a_late_save_does_not_undo_the_end(store: ConversationStore) -> None:
    message_id = reply(store)
    store.save_text(message_id, "Ray")
    assert store.message(message_id).text == "Ray"
    assert store.message(message_id).status is MessageStatus.STREAMING
    finish_message(store, message_id, "Rayleigh.", MessageStatus.COMPLETE)
    store.save_text(message_id, "Rayl")
    assert store.message(message_id).text == "Rayleigh."


def test_a_parent_of_another_conversation_is_refused(store: ConversationStore) -> None:
    message_id = reply(store)
    other = store.create_conversation()
    with pytest.raises(ValueError, match="is not of conversation"):
        store.add_message(other.id, message_id, Role.USER, "hello")
    assert store.messages(other.id) == []


def test_a_message_for_a_conversation_that_never_was_is_refused(store: ConversationStore) -> None:
    with pytest.raises(StorageError, match="This chat no longer exists"):
        store.add_message(99, None, Role.USER, "hello")
    with pytest.raises(StorageError, match="This message no longer exists"):
        finish_message(store, 99, "hello", MessageStatus.COMPLETE)


def test_a_chat_whose_first_question_a_kill_kept_out_is_not_listed(open_store: OpenStore) -> None:
    """It has the question's title, and once stood empty in the list, open at the next start."""
    store = open_store()
    killed, waits, seen, asked = (store.create_conversation(text, from_prompt=True).id for text in "ABCD")
    store.save_unsent_text(waits, None, "B?")
    store.save_unsent_files(seen, (image_file(b"\x89PNG...", "Image", "", 30, 20),))
    store.add_message(asked, None, Role.USER, "D?")
    store.create_conversation("Named by the person")
    store.close()
    store = open_store()
    assert {chat.title for chat in store.conversations()} == {*"BCD", "Named by the person"}
    store.organiser.erase().result()
    assert not store.rows("SELECT 1 FROM conversations WHERE id = ?", killed)


def test_where_the_person_was_and_typed_is_kept_over_a_restart_and_goes_with_its_chat(open_store: OpenStore) -> None:
    store = open_store()
    chat, other = (store.create_conversation(title).id for title in ("One", "Two"))
    none = other + 1
    message = store.add_message(chat, None, Role.USER, "Hello").id
    places = [(None, None), (chat, None), (chat, message), (other, None), (none, None), (chat, message + 1)]
    for place in places:
        store.save_unsent_text(*place, "before")
        store.save_unsent_text(*place, f"{place}\0\ud800")
    text = "A note\0\ud800"
    note = attached(ReadFile("note.pdf", FileKind.PDF, (text,), "Scanned."), text, "page 1 of 3")
    files = (image_file(b"\x89PNG...", "Image", "", 30, 20), (note, text))
    for each in (None, chat, other, none):
        store.save_unsent_files(each, files)
    store.save_unsent_files(other, files[1:])
    assert store.reading_position(chat) is None
    for each in (chat, other):  # the other one has no such message
        store.save_reading_position(each, ReadingPosition(message, 40))
    store.close()
    store = open_store()
    stored = (files[0], (note, "A note\0?"))
    texts = [f"{place}\0?" for place in places[:4]]
    assert [store.unsent_text(*place) for place in places] == [*texts, "", ""]
    assert [store.unsent_files(each) for each in (None, chat, other, none)] == [stored, stored, stored[1:], ()]
    assert [store.reading_position(each) for each in (chat, other)] == [ReadingPosition(message, 40), None]
    store.save_reading_position(chat, None)
    assert store.reading_position(chat) is None
    store.delete_conversation(chat)
    store.organiser.schedule_erase([chat])
    store.organiser.erase().result()
    assert [store.unsent_text(*place) for place in places[:4]] == [texts[0], "", "", texts[3]]
    assert [store.unsent_files(each) for each in (chat, other)] == [(), stored[1:]]
    assert store.rows("SELECT count(*) FROM message_files, file_texts") == [(0,)]
    store.save_unsent_text(None, None, "")
    store.save_unsent_files(None, ())
    store.write(lambda _connection: None)
    assert (store.unsent_text(None, None), store.unsent_files(None)) == ("", ())
