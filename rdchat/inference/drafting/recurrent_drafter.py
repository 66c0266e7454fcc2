"""The recurrent drafter in the decoding loop: one lazy tree a round, with a branch from prompt lookup."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import override

import mlx.core as mx

from rdchat.inference.api.requests import BeamShape, DraftSettings, GenerationRequest
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.drafting.bound_head import BoundHead
from rdchat.inference.drafting.drafter_folder import StoredDrafter
from rdchat.inference.drafting.lookup_index import LookupIndex
from rdchat.inference.drafting.node_pool import NodePool
from rdchat.inference.drafting.node_selection import best_nodes
from rdchat.inference.drafting.recurrent_beam import PathScorer, Root, search
from rdchat.inference.drafting.repetition import RepetitionTracker
from rdchat.inference.target.capability import DraftKind
from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.target.verifier import Verified

DEFAULT_SHAPE = DraftSettings().shape
_LEAVES = 2  # nodes kept of each level, in beam widths: those that do not live on may still be among the best


@dataclass(frozen=True, slots=True)
class RecurrentSettings:
    """How a reply is drafted.

    Attributes:
        shape: Beams.
        lookup_branch: Whether a path from prompt lookup, as long as a beam, is offered as well.
    """

    shape: BeamShape = field(default=DEFAULT_SHAPE)
    lookup_branch: bool = True

    @classmethod
    def of(cls, settings: DraftSettings) -> "RecurrentSettings":
        """Take what concerns a recurrent drafter."""
        return cls(settings.shape, settings.lookup_branch)

    @property
    def nodes(self) -> int:
        """Nodes that are verified in a round, the root included: those of a chain, or about as many as the beams'."""
        width, length = self.shape.width, self.shape.length
        return max(length * (1 + self.lookup_branch) - self.lookup_branch, width * (length - 1))


class RecurrentModel:
    """A recurrent drafter that is ready for one loaded target; serves any number of replies, one after another.

    Args:
        model: The target.
        stored: What `load_drafter` gave.

    Raises:
        ModelError: If the drafter needs what the target does not give.
    """

    def __init__(self, model: LoadedModel, stored: StoredDrafter) -> None:
        config = stored.head.config
        self._model = model
        self._inverse_temperature = config.inverse_temperature
        self._layers = config.target_layers
        self._head = BoundHead(
            stored.head, stored.vocabulary, TargetEmbeddings(model.network, model.info.vocabulary_size)
        )
        model.hooks.read_layers(self._layers)

    def drafter(
        self,
        prompt: list[int],
        request: GenerationRequest,
        settings: RecurrentSettings,
        ledger: Ledger | None = None,
    ) -> "RecurrentDrafter":
        """Return the drafter of one reply; `ledger` takes the time of its stages."""
        self._model.hooks.read_layers(self._layers)  # another drafter may have asked for others
        scorer = PathScorer(request.sampling, request.seed, self._head.vocabulary, self._inverse_temperature)
        return RecurrentDrafter(self._model, self._head, scorer, prompt, settings, ledger=ledger or Ledger())


class RecurrentDrafter(Drafter):
    """Drafts for one reply; see `Drafter`.

    Where the target verifies chains only, the draft is a chain: the lookup branch, if there is one, or else the one
    most likely beam.

    Args:
        model: The target.
        head: The drafter's network.
        scorer: Scores candidates by the reply's own rule.
        prompt: The prompt's tokens.
        settings: Shape of the draft.
        ledger: Takes the time of its stages.
    """

    name = "recurrent"

    def __init__(
        self,
        model: LoadedModel,
        head: BoundHead,
        scorer: PathScorer,
        prompt: list[int],
        settings: RecurrentSettings,
        *,
        ledger: Ledger,
    ) -> None:
        self._model = model
        self._head = head
        self._scorer = scorer
        self._settings = settings
        self._ledger = ledger
        self._trees = model.capability.kind is DraftKind.TREE
        self._position = len(prompt)  # of the last token, once there is one
        self._hidden: mx.array | None = None
        self._index = LookupIndex(prompt)
        self._repetition = RepetitionTracker(head.vocabulary, prompt) if scorer.penalizes else None

    @override
    def update(self, settings: DraftSettings) -> None:
        """See `Drafter`."""
        self._settings = RecurrentSettings.of(settings)

    @override
    def propose(self, root: int, limit: int) -> Draft:
        """See `Drafter`."""
        length = min(self._settings.shape.length, 1 + limit)
        if length == 1:
            return Draft(PackedTree.chain(mx.array([root])))
        self._begin(root)
        branch = self._look_up(length - 1) if self._settings.lookup_branch else []
        return self.draft(root, BeamShape(self._settings.shape.width, length), self._settings.nodes, branch)

    def draft(self, root: int, shape: BeamShape, nodes: int, branch: Sequence[int] = ()) -> Draft:
        """Draft in a given shape.

        Args:
            root: The last token.
            shape: Beams.
            nodes: Nodes of the tree, the root included; a chain has as many as it is long.
            branch: Tokens that are offered as well, at most as many as are drafted.
        """
        if branch and not self._trees:
            return Draft(PackedTree.chain(mx.array([root, *branch])), mx.arange(1 + len(branch)) > 0)
        pool = self.search(root, shape if self._trees else BeamShape(1, shape.length))
        return self.offer(pool, nodes, branch)

    def offer(self, pool: NodePool[mx.array], nodes: int, branch: Sequence[int] = ()) -> Draft:
        """Offer the best nodes that a search found, perhaps the root alone; of a wide one only to a target of trees."""
        if not branch and 1 in (nodes, pool.level_size):
            return Draft(PackedTree.chain(pool.tokens[:nodes]))
        with self._ledger.stage("select nodes"):
            tree, looked_up = best_nodes(pool, nodes, branch)
            self._ledger.synchronize(*tree.arrays, looked_up)
        return Draft(tree, looked_up)

    @override
    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int]) -> None:
        """See `Drafter`."""
        assert verified.hidden is not None
        if self._hidden is None:
            self._take([root])
        self._hidden = verified.hidden[path[-1]]
        self._position += len(tokens)
        self._take(tokens, verified.logits[path[-1]])

    def _begin(self, root: int) -> None:
        """Take the first token; the call that it was chosen from, the prompt's last, was the last one."""
        if self._hidden is None:
            assert self._model.hooks.hidden is not None
            self._hidden = self._model.hooks.hidden[0, -1]
            self._take([root])

    def _take(self, tokens: list[int], logits: mx.array | None = None) -> None:
        """Take new tokens of the reply, and the target's logits that the last of them was chosen from."""
        self._index.extend(tokens)
        if self._repetition is not None:
            self._repetition.add(tokens, logits)

    def _look_up(self, length: int) -> list[int]:
        with self._ledger.stage("lookup"):
            return self._index.continuation(length)

    def search(self, root: int, shape: BeamShape) -> NodePool[mx.array]:
        """Return the nodes of a draft, still lazy, and offer none."""
        self._begin(root)
        assert self._hidden is not None
        kept = _LEAVES * shape.width if shape.width > 1 else 1
        with self._ledger.stage("beam search"):
            repetition = self._repetition.current() if self._repetition else None
            start = Root(root, self._position, self._hidden, repetition)
            pool = search(self._head, self._scorer, start, shape, kept)
            self._ledger.synchronize(pool.tokens, pool.parents, pool.scores)
            return pool
