"""Edits, alternatives and the active path, compared with a plain model that works in another way."""

import random
from dataclasses import dataclass, field

import pytest

from rdchat.inference.api import Role
from tests.chat.conftest import OpenStore
from tests.grids import share


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

    def above(self, message_id: int) -> list[int]:
        """Return the ids from the first message to this one."""
        node = self.nodes[message_id]
        above = self.above(node.parent.id) if node.parent is not None and node.parent is not self.top else []
        return [*above, message_id]

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
def test_random_edits_and_steps_agree_with_a_tree_of_pointers(open_store: OpenStore, seed: int) -> None:
    store = open_store()
    choose = random.Random(seed)
    chats = [(store.create_conversation().id, Oracle()) for _ in range(2)]

    def check() -> None:
        for chat_id, oracle in chats:
            assert [(m.id, m.sibling, m.siblings) for m in store.messages(chat_id)] == oracle.path()

    check()
    for _ in range(80):
        chat_id, oracle = choose.choice(chats)
        ids = list(oracle.nodes)
        if ids and choose.random() < 0.4:
            message_id = choose.choice(ids)
            step = choose.choice([-5, -2, -1, 0, 1, 2])
            shown = store.select_sibling(message_id, step)
            oracle.step(message_id, step)
            assert shown == store.messages(chat_id)
            assert list(store.path_to(message_id).ids) == oracle.above(message_id)
        else:
            path = [place[0] for place in oracle.path()]
            parent_id = choose.choice([None, *ids, *path, *path[-1:] * 10])
            role = choose.choice([Role.USER, Role.ASSISTANT])
            oracle.add(store.add_message(chat_id, parent_id, role, "text").id, parent_id, role)
        check()
    store.close()
    store = open_store()
    check()
