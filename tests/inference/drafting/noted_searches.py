"""Notes the searches of a head's drafter in a reply."""

from typing import Any

from rdchat.inference.api import BeamShape
from rdchat.inference.drafting.beam_search import NodePool
from rdchat.inference.drafting.head_drafter import HeadDrafter


def note_searches(drafter: HeadDrafter) -> list[tuple[NodePool, bool]]:
    """Return a list that takes each draft's nodes, and whether its search had been begun in the round before."""
    noted = list[tuple[NodePool, bool]]()
    begun = list[object]()
    search = drafter.search_draft
    begin = drafter._search

    def noting(root: int, shape: BeamShape) -> NodePool:
        before = len(begun)
        pool = search(root, shape)
        noted.append((pool, len(begun) == before))
        return pool

    monkey: Any = drafter
    monkey._search = lambda *arguments: (begun.append(arguments), begin(*arguments))[1]
    monkey.search_draft = noting
    return noted
