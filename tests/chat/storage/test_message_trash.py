from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.chat.conversation import MadeWith, MessageStatus
from rdchat.chat.reply_tokens import first_questions
from rdchat.chat.storage import SearchQuery, SearchReader, erasing_messages
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from rdchat.errors import StorageError
from rdchat.inference.api import Role, SamplingParams
from tests.chat.conftest import OpenStore
from tests.clocks import ManualClock

PERSON = Role.USER
MODEL = Role.ASSISTANT


class Tree:
    """A chat of one question with three replies; the second was gone on with, and is shown."""

    def __init__(self, store: ConversationStore) -> None:
        self.store = store
        self.trash = store.message_trash
        self.chat = store.create_conversation("Soup")
        self.question = store.add_message(self.chat.id, None, PERSON, "How do I cook soup?")
        self.replies = [
            store.add_message(self.chat.id, self.question.id, MODEL, f"Boil {what}.") for what in ("it", "onions", "no")
        ]
        store.select_sibling(self.replies[0].id, 1)
        self.more = store.add_message(self.chat.id, self.replies[1].id, PERSON, "How long?")
        self.end = store.add_message(self.chat.id, self.more.id, MODEL, "An hour of simmering.")

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.store.messages(self.chat.id)]


@pytest.fixture
def tree(store: ConversationStore) -> Tree:
    return Tree(store)


def test_a_message_goes_with_all_below_it_and_what_was_shown_last_beside_it_is_shown(tree: Tree) -> None:
    deleted = tree.trash.delete(tree.replies[1].id)
    assert deleted.count == 3
    assert tree.texts == ["How do I cook soup?", "Boil no."]
    shown = tree.store.messages(tree.chat.id)[-1]
    assert (shown.sibling, shown.siblings) == (1, 2)
    assert [each.text for each in tree.store.select_sibling(shown.id, -1)][-1] == "Boil it."


def test_a_message_is_deleted_once_and_undoing_shows_what_was_shown(tree: Tree) -> None:
    before = tree.texts
    deleted = tree.trash.delete(tree.replies[1].id)
    with pytest.raises(StorageError):
        tree.trash.delete(tree.replies[1].id)
    tree.trash.restore(deleted)
    assert tree.texts == before
    with pytest.raises(StorageError):
        tree.trash.restore(deleted)


def test_what_was_deleted_before_stays_deleted_when_more_is_undone(tree: Tree) -> None:
    inner = tree.trash.delete(tree.end.id)
    outer = tree.trash.delete(tree.replies[1].id)
    tree.trash.restore(outer)
    assert tree.texts[-1] == "How long?"
    tree.trash.restore(inner)
    assert tree.texts[-1] == "An hour of simmering."


def test_without_an_alternative_what_stands_before_is_shown(tree: Tree) -> None:
    tree.trash.delete(tree.end.id)
    assert tree.texts[-1] == "How long?"
    tree.trash.delete(tree.question.id)
    assert tree.texts == []
    tree.store.add_message(tree.chat.id, None, PERSON, "Another question")
    assert tree.texts == ["Another question"]


def test_without_an_alternative_no_other_branch_is_shown_though_it_was_shown_later(tree: Tree) -> None:
    store = tree.store
    first = store.create_conversation("Two beginnings")
    beginning = store.add_message(first.id, None, PERSON, "First")
    reply = store.add_message(first.id, beginning.id, MODEL, "Its reply")
    other = store.add_message(first.id, None, PERSON, "Second")
    store.add_message(first.id, other.id, MODEL, "The other's reply")
    store.select_sibling(other.id, -1)
    store.message_trash.delete(reply.id)
    assert [message.text for message in store.messages(first.id)] == ["First"]


def test_the_last_deleted_one_is_brought_back_also_later(tree: Tree, open_store: OpenStore) -> None:
    tree.trash.delete(tree.replies[0].id)
    tree.trash.delete(tree.more.id)
    tree.store.close()
    store = open_store()
    assert store.message_trash.restore_last(tree.chat.id) == tree.more.id
    assert store.messages(tree.chat.id)[-1].text == "An hour of simmering."
    assert store.message_trash.restore_last(tree.chat.id) == tree.replies[0].id
    assert store.messages(tree.chat.id)[-1].text == "Boil it."
    assert store.message_trash.restore_last(tree.chat.id) is None


def test_deleted_messages_are_not_found_copied_or_asked_again(tree: Tree) -> None:
    reader = SearchReader(tree.store.path)
    tree.trash.delete(tree.replies[1].id)
    assert tree.store.conversations("simmering") == []
    assert reader.search_chats(SearchQuery("simmering")).hits == ()
    assert reader.messages_with(tree.chat.id, "simmering").ids == ()
    copy_id = tree.store.organiser.copy(tree.chat.id, "Copy").result()
    assert tree.trash.last(copy_id) is None
    assert [each.siblings for each in tree.store.messages(copy_id)] == [1, 2]
    tree.trash.delete(tree.question.id)
    tree.store.delete_conversation(copy_id)
    with pytest.raises(StorageError):
        first_questions(tree.store.path)


def test_after_30_days_they_are_erased_step_by_step(database: Path) -> None:
    clock = ManualClock()
    timed = ConversationStore(database, clock)
    tree = Tree(timed)
    timed.message_trash.delete(tree.replies[1].id)
    clock.now += 29 * 86_400
    timed.organiser.erase().result()
    assert timed.message_trash.last(tree.chat.id) is not None
    clock.now += 2 * 86_400
    steps = erasing_messages(timed, clock.now)
    timed.write(lambda _connection: next(steps))  # the youngest is gone; a crash here leaves the others hidden
    assert tree.texts == ["How do I cook soup?", "Boil no."]
    assert timed.write(lambda _connection: len(list(steps))) == 2
    assert timed.message_trash.last(tree.chat.id) is None
    with pytest.raises(StorageError):
        timed.message(tree.replies[1].id)
    timed.close()


def test_messages_that_a_wrong_clock_deleted_are_kept_another_day(database: Path) -> None:
    clock = ManualClock()
    timed = ConversationStore(database, clock)
    tree = Tree(timed)
    timed.message_trash.delete(tree.replies[1].id)
    clock.now += 20 * 365 * 86_400
    timed.organiser.erase().result()
    assert timed.message_trash.restore_last(tree.chat.id) == tree.replies[1].id
    timed.close()


def test_a_branch_has_the_path_and_the_cuts_that_leave_something_to_be_told(tree: Tree) -> None:
    store = tree.store
    folder = store.organiser.create_folder("Recipes")
    store.organiser.move(tree.chat.id, folder.id)
    store.set_chat_options(replace(tree.chat, system_prompt="Be brief.", sampling=SamplingParams(temperature=0.1)))
    store.set_context_cut(tree.question.id, ContextCut("soup", "tiny"))
    store.set_context_cut(tree.more.id, ContextCut())
    branch = store.organiser.copy(tree.chat.id, "Branch", tree.more.id).result()
    path = store.messages(branch)
    assert [message.text for message in path] == ["How do I cook soup?", "Boil onions.", "How long?"]
    assert [message.context_cut for message in path] == [ContextCut("soup", "tiny"), None, None]
    assert [message.siblings for message in path] == [1, 1, 1]
    chat = store.conversation(branch)
    assert (chat.folder_id, chat.system_prompt, chat.sampling) == (folder.id, "Be brief.", SamplingParams(0.1))
    assert tree.texts[-1] == "An hour of simmering."


def test_a_branch_ends_with_its_message_whatever_was_shown_last(tree: Tree) -> None:
    deleted = tree.trash.delete(tree.end.id)  # the prompt before it is shown last by that
    tree.trash.restore(deleted)
    branch = tree.store.organiser.copy(tree.chat.id, "Branch", tree.more.id).result()
    assert tree.store.messages(branch)[-1].text == "How long?"
    tree.trash.delete(tree.more.id)
    branch = tree.store.organiser.copy(tree.chat.id, "Branch 2", tree.replies[0].id).result()
    assert tree.store.messages(branch)[-1].text == "Boil it."


def test_what_a_reply_was_made_with_is_kept(store: ConversationStore) -> None:
    chat = store.create_conversation("A")
    made_with = MadeWith(SamplingParams(temperature=1.5), "Rhyme.", once=True)
    failed = {"status": MessageStatus.FAILED, "error": "Not enough memory."}
    reply = store.add_message(chat.id, None, MODEL, "Hi", made_with=made_with, edited=True, **failed)
    assert (store.message(reply.id).made_with, store.message(reply.id).edited) == (made_with, True)
    opened = store.reopen_message(reply.id)
    assert (opened.made_with, opened.status, opened.error) == (made_with, MessageStatus.STREAMING, "")
    assert store.reopen_message(reply.id, MadeWith()).made_with == MadeWith()


def test_all_of_a_long_path_is_deleted(tree: Tree) -> None:
    parent = tree.end.id
    for number in range(100):
        parent = tree.store.add_message(tree.chat.id, parent, (PERSON, MODEL)[number % 2], str(number)).id
    assert tree.trash.delete(tree.more.id).count == 102
