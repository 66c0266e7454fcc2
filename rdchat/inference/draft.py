"""What a drafter is to the decoding loop."""

from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from rdchat.inference.prefix_tree import PrefixTree
from rdchat.inference.verifier import Verified


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens offered to the target.

    Attributes:
        tree: Its root is the token the target chose last. Where `tokens` is given, the tree's own tokens but the root's
            mean nothing yet.
        tokens: (nodes,) the tree's tokens, lazy; None where the tree has them.
    """

    tree: PrefixTree
    tokens: mx.array | None = None


class Drafter(Protocol):
    """Proposes tokens. It decides what is verified, never what is said."""

    name: str

    def propose(self, root: int, limit: int) -> Draft:
        """Offer a tree that is at most `limit` tokens deep below `root`, the last token; perhaps the root alone."""

    def observe(self, tokens: list[int], verified: Verified, path: list[int]) -> None:
        """Take what a round brought.

        Args:
            tokens: The tokens that the round added to the reply.
            verified: What the target said of the whole tree; evaluated.
            path: The accepted nodes, root first.
        """
