"""Edits, alternatives and the active path, compared with a plain model that works in another way."""

import random
from dataclasses import dataclass, field

import pytest

from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role
from tests.chat.conftest import OpenStore
from tests.chat.storage.messages import texts
from tests.grids import share


class Chat:
    """A conversation built by text: every text is used once."""

    def __init__(self, store: ConversationStore) -> None:
        self.store = store
        self.id = store.create_conversation().id
        self.ids: dict[str, int] = {}

    def add(self, text: str, parent: str | None = None, role: Role = Role.USER) -> None:
        self.ids[text] = self.store.add_message(self.id, self.ids[parent] if parent else None, role, text).id

    def step(self, text: str, step: int) -> list[str]:
        shown = self.store.select_sibling(self.ids[text], step)
        assert shown == self.store.messages(self.id)
        return texts(shown)


@pytest.fixture
def chat(store: ConversationStore) -> Chat:
    """A question with an answer, and a second turn."""
    chat = Chat(store)
    chat.add("q1")
    chat.add("a1", "q1", Role.ASSISTANT)
    chat.add("q2", "a1")
    chat.add("a2", "q2", Role.ASSISTANT)
    return chat


def test_an_empty_conversation_has_no_messages(store: ConversationStore) -> None:
    assert store.messages(store.create_conversation().id) == []


def test_the_path_runs_from_the_first_message_to_the_last(chat: Chat) -> None:
    assert texts(chat.store.messages(chat.id)) == ["q1", "a1", "q2", "a2"]
    assert texts(chat.store.path_to(chat.ids["q2"])) == ["q1", "a1", "q2"]


def test_regenerating_keeps_the_old_reply_as_an_alternative(chat: Chat) -> None:
    chat.add("a2 again", "q2", Role.ASSISTANT)
    last = chat.store.messages(chat.id)[-1]
    assert (last.text, last.sibling, last.siblings) == ("a2 again", 1, 2)
    assert chat.step("a2 again", -1) == ["q1", "a1", "q2", "a2"]
    first = chat.store.messages(chat.id)[-1]
    assert (first.sibling, first.siblings) == (0, 2)


def test_editing_a_prompt_begins_a_branch_and_stepping_back_shows_all_of_the_old_one(chat: Chat) -> None:
    chat.add("q1 edited")
    chat.add("a1 edited", "q1 edited", Role.ASSISTANT)
    assert texts(chat.store.messages(chat.id)) == ["q1 edited", "a1 edited"]
    assert chat.step("q1 edited", -1) == ["q1", "a1", "q2", "a2"]
    assert chat.step("q1", 1) == ["q1 edited", "a1 edited"]


def test_stepping_shows_the_branch_that_was_shown_last_not_the_newest(chat: Chat) -> None:
    chat.add("a2 again", "q2", Role.ASSISTANT)
    chat.step("a2 again", -1)
    chat.add("q1 edited")
    assert chat.step("q1 edited", -1) == ["q1", "a1", "q2", "a2"]


def test_stepping_stays_at_the_ends(chat: Chat) -> None:
    chat.add("q1 edited")
    assert chat.step("q1 edited", 1) == ["q1 edited"]
    assert chat.step("q1 edited", -5) == ["q1", "a1", "q2", "a2"]
    assert chat.step("q1", -1) == ["q1", "a1", "q2", "a2"]


def test_the_alternative_shown_is_remembered_after_a_restart(open_store: OpenStore) -> None:
    chat = Chat(open_store())
    chat.add("q1")
    chat.add("q1 edited")
    chat.step("q1 edited", -1)
    chat.store.close()
    assert texts(open_store().messages(chat.id)) == ["q1"]


def test_conversations_do_not_share_alternatives(chat: Chat) -> None:
    other = Chat(chat.store)
    other.add("other q1")
    assert [message.siblings for message in chat.store.messages(chat.id)] == [1, 1, 1, 1]
    assert [message.siblings for message in other.store.messages(other.id)] == [1]


@dataclass
class Node:
    id: int
    parent: "Node | None"
    role: Role
    children: list["Node"] = field(default_factory=list)
    shown: "Node | None" = None  # the child on the path that was shown last


class Oracle:
    """The same tree with a pointer from every message to the child that is shown."""

    def __init__(self) -> None:
        self.top = Node(0, None, Role.SYSTEM)
        self.nodes: dict[int, Node] = {}

    def add(self, message_id: int, parent_id: int | None, role: Role) -> None:
        parent = self.top if parent_id is None else self.nodes[parent_id]
        node = Node(message_id, parent, role)
        parent.children.append(node)
        self.nodes[message_id] = node
        self.show(node)

    def show(self, node: Node) -> None:
        while node.parent is not None:
            node.parent.shown = node
            node = node.parent

    def siblings(self, node: Node) -> list[Node]:
        assert node.parent is not None
        return [other for other in node.parent.children if other.role is node.role]

    def step(self, message_id: int, step: int) -> None:
        node = self.nodes[message_id]
        siblings = self.siblings(node)
        self.show(siblings[max(0, min(len(siblings) - 1, siblings.index(node) + step))])

    def path(self) -> list[tuple[int, int, int]]:
        """Id, place and number of alternatives of every message shown."""
        path = []
        node = self.top
        while node.shown is not None:
            node = node.shown
            siblings = self.siblings(node)
            path.append((node.id, siblings.index(node), len(siblings)))
        return path


@pytest.mark.parametrize("seed", share(range(8), 8))
def test_random_edits_and_steps_agree_with_a_tree_of_pointers(store: ConversationStore, seed: int) -> None:
    choose = random.Random(seed)
    chats = [(store.create_conversation().id, Oracle()) for _ in range(2)]
    for _ in range(150):
        chat_id, oracle = choose.choice(chats)
        ids = list(oracle.nodes)
        if ids and choose.random() < 0.4:
            message_id = choose.choice(ids)
            step = choose.choice([-2, -1, 0, 1, 2])
            store.select_sibling(message_id, step)
            oracle.step(message_id, step)
        else:
            path = [place[0] for place in oracle.path()]
            parent_id = choose.choice([None, *ids, *path, *path[-1:] * 10])
            role = choose.choice([Role.USER, Role.ASSISTANT])
            oracle.add(store.add_message(chat_id, parent_id, role, "text").id, parent_id, role)
        for chat_id, oracle in chats:
            assert [(m.id, m.sibling, m.siblings) for m in store.messages(chat_id)] == oracle.path()
