"""What the decoding loop and a drafter exchange: `Drafter`, its `Draft`, and the rule by which a draft is accepted.

The acceptance rule: a drafted node is accepted when it equals the token that the target chooses there.

`TokenChooser` makes that choice from logits, position and seed alone. So a reply's text does not depend on its drafts,
at any temperature, except that the number of rows in a call changes the last digits of logits.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.api import DraftSettings, NodeSource
from rdchat.inference.decoding.loop import AlwaysDraft, Policy, RoundPlan
from rdchat.inference.device import fetch
from rdchat.inference.verification import KVCache, PackedTree, PrefixTree, Verified


def accepted_path(tree: PrefixTree, chosen: npt.NDArray[np.integer]) -> list[int]:
    """Walk from the root along the tokens that the target chose.

    Args:
        tree: The packed tree.
        chosen: (nodes,) the token that the target chooses after each node.

    Returns:
        Node indices of the accepted path, the root first. Where two children of a node have the same token, the first
        is taken.
    """
    path = [0]
    for node in range(1, len(tree)):
        if tree.parents[node] == path[-1] and tree.tokens[node] == chosen[path[-1]]:
            path.append(node)
    return path


@dataclass(frozen=True, slots=True)
class LazyPath:
    """The accepted path of a round that the device is still computing; the next draft begins with it.

    Attributes:
        tree: The round's draft.
        nodes: (nodes,) bool: whether each node lies on the path.
        last: () int32: index of the path's last node.
        token: () int32: the token that the target chooses after the path, the next round's root.
        depth: () int32: depth of the last node.
        start: Absolute position of the token after the root. The token after the path comes `depth` positions later.
    """

    tree: PackedTree
    nodes: mx.array
    last: mx.array
    token: mx.array
    depth: mx.array
    start: int

    @classmethod
    def accepted(cls, tree: PackedTree, chosen: mx.array, start: int) -> "LazyPath":
        """Do what `accepted_path` does, on the device. They differ only where two children have the same token.

        Args:
            tree: The packed tree.
            chosen: (nodes,) the token that the target chooses after each node.
            start: Absolute position of the token that follows the root.
        """
        chosen = chosen.astype(mx.int32)
        # A node lies on the path if neither it nor an ancestor is wrong.
        wrong = (tree.tokens != chosen[mx.maximum(tree.parents, 0)]) & (tree.parents >= 0)
        if tree.ancestors is None:
            nodes = mx.cumsum(wrong.astype(mx.int32)) == 0
            last = mx.sum(nodes.astype(mx.int32)) - 1
        else:
            nodes = ~mx.any(tree.ancestors & wrong, axis=1)
            last = mx.argmax(mx.where(nodes, tree.depths, -1)).astype(mx.int32)
        return cls(tree, nodes, last, chosen[last], tree.depths[last], start)

    def by_depth(self) -> mx.array:
        """Return the index of the path's node at each depth, (deepest + 1,); behind the last node's without meaning."""
        tree = self.tree
        depths = mx.array(np.arange(self.tree.deepest + 1, dtype=np.int32))
        if tree.ancestors is None:
            return depths
        return mx.argmax(tree.ancestors[self.last] & (tree.depths == depths[:, None]), axis=1)

    def leads_to(self, last: int, token: int) -> bool:
        """Return whether this, once evaluated, is the path that ends at node `last` and is followed by `token`."""
        return int(self.last) == last and int(self.token) == token


@dataclass(frozen=True, slots=True)
class BegunDraft:
    """A draft that was begun before the host knew its root; a drafter's subclass has the draft itself.

    Attributes:
        path: The path at whose end it begins.
    """

    path: LazyPath


def seen_on_paths(seen: mx.array, tree: PackedTree) -> mx.array:
    """Return, for each node, which tokens occurred before the token that follows it: what penalties look at.

    As in `TokenChooser.seen`, each occurrence in the reply adds 2.

    Args:
        seen: (vocabulary,) int32 before the root, see `TokenChooser.seen`.
        tree: The packed tree, perhaps lazy.

    Returns:
        (nodes, vocabulary) int32.
    """
    nodes = mx.arange(len(tree))
    on_path = nodes[:, None] >= nodes if tree.ancestors is None else tree.ancestors
    counts = mx.zeros((len(tree), seen.shape[0]), mx.int32)
    return seen + 2 * counts.at[nodes[:, None], tree.tokens[None]].add(on_path)


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens offered to the target.

    Attributes:
        tree: The tree; its root is the token that the target chose last. Its tokens and parents may be lazy.
        sources: (nodes,) the `NodeSource` of each node, perhaps lazy; None where the drafter made them all.
        rows: Rows of the target call, padding included; 0 has `rounds` choose them by the measured costs.
        drafter: Who drafted it, if the reply's drafter combines several; empty for the drafter's own name.
        finite: () bool, perhaps lazy: whether the draft's scores are finite. Otherwise the draft is dropped.
        usual: Whether its time is typical of its kind.
    """

    tree: PackedTree
    sources: mx.array | Sequence[int] | None = None
    rows: int = 0
    drafter: str = ""
    finite: mx.array | bool = True
    usual: bool = True

    @property
    def lazy_sources(self) -> mx.array | None:
        """`sources` where they may be lazy."""
        return self.sources if isinstance(self.sources, mx.array) else None

    def fetch_sources(self) -> Sequence[int]:
        """Return the `NodeSource` of each node, on the host."""
        if self.sources is None:
            return [NodeSource.DRAFTER] * len(self.tree)
        return fetch(self.sources).tolist() if isinstance(self.sources, mx.array) else self.sources


class Drafter:
    """Proposes tokens for one reply. Its drafts change how many target calls a reply takes, never its text.

    Attributes:
        name: Tells it from others in events and counts.
        policy: Decides when it drafts.
    """

    name: str
    policy: Policy = AlwaysDraft()

    @property
    def parts(self) -> Sequence["Drafter"]:
        """The drafters in it; each reads the prompt and observes every token, also those of plain steps."""
        return (self,)

    def take_cache(self, cache: KVCache) -> None:
        """Take the target's cache of the reply before anything else; it must not be written to."""

    def prefill(self, cancelled: Callable[[], bool]) -> Iterator[int]:
        """Read the prompt, if the drafter has a cache of its own; part of the reply's prefill.

        Args:
            cancelled: Looked at before each chunk; True ends the work between two chunks.

        Yields:
            Prompt tokens read so far.
        """
        del cancelled
        yield from ()

    def read_prompt(self, tokens: Sequence[int], hidden: mx.array | None, start: int) -> None:
        """Take prompt tokens that the target has read.

        Args:
            tokens: (n,) ids.
            hidden: (n, width): the target's hidden states at these tokens; None where the trunk has no hook.
            start: Absolute position of the first.
        """

    def take_settings(self, settings: DraftSettings) -> None:
        """Take other settings from the next round on, as far as they concern this drafter."""

    def planned(self, plan: RoundPlan) -> "Drafter":
        """Return what drafts in a round with a plan of `policy`."""
        del plan
        return self

    def propose(self, root: int, limit: int) -> Draft:
        """Return a tree at most `limit` deep below `root`, the last token; it may be the root alone."""
        raise NotImplementedError

    def drafts_ahead(self, limit: int) -> bool:
        """Return whether the next draft should begin before the host has read the round's result.

        Args:
            limit: Maximum number of tokens below the next root.
        """
        del limit
        return False

    def draft_ahead(self, path: LazyPath, verified: Verified) -> BegunDraft | None:
        """Queue the next round's draft on the device, behind the target call, and return it for `observe`.

        Args:
            path: The path that the call accepts, lazy.
            verified: Its output.
        """
        del path, verified
        return None

    def stop_source(self, source: str) -> None:
        """Stop drafting with `source` for the rest of the reply: its scores are not finite.

        Where `source` is this drafter's own name, `propose` is not called any more.
        """

    def observe(
        self, root: int, tokens: list[int], verified: Verified, path: list[int], begun: BegunDraft | None = None
    ) -> None:
        """Take the result of a round or of a plain step, whoever drafted for it.

        Args:
            root: The token that the call began with: the last one before it.
            tokens: Ids of the tokens that it added to the reply.
            verified: The target's output for the whole tree; evaluated.
            path: Indices of the accepted nodes, the root first.
            begun: What `draft_ahead` returned in the round, perhaps that of another part; None without any.
        """

    def end_reply(self, length: int) -> None:
        """Trim what outlives the reply, such as a KV cache, to the length of the target's cache.

        Args:
            length: Tokens of the conversation that the target's cache holds; 0 after an error, when nothing can be
                trusted.
        """
