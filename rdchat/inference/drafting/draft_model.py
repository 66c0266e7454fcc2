"""A second, smaller language model as a drafter (Leviathan et al. 2023, arXiv 2211.17192).

It keeps a KV cache of its own and decodes a few tokens ahead of the target. Its tokens are chosen by the reply's rule,
with the same noise at each position. So where both models agree on the distribution they agree on the token, at every
temperature.

The best token of each step is fed to the next one. The runner-ups cost no draft call, so they become leaves beside it
where verifying a few more rows is cheap. The tree's shape is known in advance; only its tokens are lazy.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import override

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from rdchat.errors import ModelError
from rdchat.inference.api import (
    DraftKind,
    DraftSettings,
    Dtype,
    GenerationRequest,
    OnProgress,
    SamplingParams,
    Stage,
)
from rdchat.inference.decoding.draft import BegunDraft, Draft, Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply_iterator import prefill
from rdchat.inference.decoding.sampling import TokenChooser, noise_keys, penalize
from rdchat.inference.device import fetch
from rdchat.inference.drafting.beam_search import PathScorer
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.loading import load_model
from rdchat.inference.models.vocabularies import PairVerdict, compare_vocabularies, tokenizer_of
from rdchat.inference.verification import KVCache, LoadedModel, PackedTree, PrefixTree, Verified

_OTHER_PAIR = "Choose a smaller model of the same family; `rdchat models check-pair` compares two models."
# A filter's border is searched among this many most likely tokens; a draft need not be exact.
_FILTERED = 256


class DraftModel:
    """A draft model with its target; it keeps its KV cache between replies.

    Args:
        target: The model it drafts for.
        model: The draft model itself.
        shared_tokens: Token ids below this one are the same in both models, but for some.
        other_tokens: Those that are not; they are never offered.

    Attributes:
        offered: (n,) uint32: tokens that are the same in both models, ascending; None where all below `shared_tokens`
            are.
        shared_tokens: The same, at most the vocabulary of either model.
        end_tokens: The target's.
        cache: The KV cache that is kept.
        image_token: The id that stands for each token of an image, so that both models count the same positions.

    Raises:
        ModelError: If drafted tokens cannot be removed from the draft model's cache, or its weights are damaged.
    """

    def __init__(
        self, target: LoadedModel, model: LoadedModel, shared_tokens: int, other_tokens: Collection[int] = ()
    ) -> None:
        if model.capability.kind is DraftKind.NONE:
            if damaged := first_damaged_layer(model.network):
                raise ModelError(
                    f"The draft model {model.info.name} computed numbers that are not finite. "
                    f"Layer {damaged} is damaged.",
                    "Download it again, choose another draft model, or try another precision.",
                )
            raise ModelError(
                f"{model.info.name} cannot draft: {model.capability.reason}.", "Choose another draft model."
            )
        self.model = model
        self.cache = KVCache(model.network)
        self.shared_tokens = min(shared_tokens, model.info.vocabulary_size, target.info.vocabulary_size)
        offered = sorted({*range(self.shared_tokens)}.difference(other_tokens)) if other_tokens else ()
        self.offered = mx.array(offered, mx.uint32) if offered else None
        self.end_tokens = target.end_tokens
        self.image_token = target.image_input.token if target.image_input else 0

    def known(self, tokens: list[int]) -> list[int]:
        """Return tokens of the target as the draft model is fed them.

        Tokens of images become `image_token`, and a token that the draft model has no row for becomes token 0.
        """
        rows = self.model.info.vocabulary_size
        image = self.image_token
        ids = (token if token >= 0 else image for token in tokens)
        return [token if token < rows else 0 for token in ids]

    def clear_memory(self) -> None:
        """Begin with an empty KV cache; a paused reply keeps the one that it has."""
        self.cache = KVCache(self.model.network)


def load_draft_model(
    model: str | Path,
    target: LoadedModel,
    on_progress: OnProgress = lambda _: None,
    *,
    anyway: bool = False,
) -> DraftModel:
    """Load a draft model for a target.

    Args:
        model: A model folder, or a hub id that is in the hub's cache.
        target: The model to draft for.
        on_progress: Called with the progress.
        anyway: Load it even if it seems too large for the memory.

    Raises:
        ModelError: If it is missing, damaged, or its tokens differ from the target's; the message names it.
        OutOfMemoryError: If it does not fit into memory with the target.
    """
    verdict = check_draft_model(model, target, on_progress)
    loaded = load_model(model, Dtype.AUTO, on_progress, target.prompts.process, anyway=anyway)
    return DraftModel(target, loaded, verdict.shared_tokens, verdict.other_tokens)


def check_draft_model(model: str | Path, target: LoadedModel, on_progress: OnProgress = lambda _: None) -> PairVerdict:
    """Check whether a model can draft for a target, from its tokenizer and the headers of its files alone.

    Raises:
        ModelError: If it is missing, damaged, or its tokens differ from the target's; the message names it.
    """
    tokenizer, name = tokenizer_of(model, target.prompts.process, on_progress)
    verdict = compare_vocabularies(target.tokenizer, tokenizer, target.info.name, name)
    if not verdict.compatible:
        raise ModelError(str(verdict), _OTHER_PAIR)
    return verdict


class DraftModelDrafter(Drafter):
    """Drafts for one reply; see `Drafter`.

    All certain tokens, the root included, are fed in one call. The drafted tokens follow one by one within a round of
    the cache, so that rejected ones can be removed. The last one is not fed: if it is accepted, it is fed with the next
    round's root.

    Args:
        draft: The draft model; it serves one reply at a time.
        prompt: The prompt's tokens.
        request: Its sampling, reply seed and draft settings are used.
        ledger: Records the time of its stages; None records nothing.
        shape_of: Returns the draft's shape for a number of draft tokens; by default a chain.
    """

    name = "speculative"

    def __init__(
        self,
        draft: DraftModel,
        prompt: list[int],
        request: GenerationRequest,
        ledger: Ledger | None = None,
        shape_of: Callable[[int], DraftShape] = DraftShape,
    ) -> None:
        # The rule by which both choose and rank.
        rule = request.sampling, request.seed, draft.shared_tokens
        chooser = TokenChooser(*rule)
        self._draft = draft
        self._model = draft.model
        self._cache = draft.cache
        self._shape = shape_of(request.draft.draft_tokens)
        self._shape_of = shape_of
        self._ledger = ledger or Ledger()
        # Tokens of the text before the root, as the draft model is fed them.
        self._committed = draft.known(prompt)
        # Drafted tokens that the open round was fed, (1,) each.
        self._fed: list[mx.array] = []
        # Whether the answer has a format, whose matcher may replace drafted tokens.
        self._shaped = request.shape is not None
        # Whether a round of the cache is open: from a draft on until `observe`.
        self._open = False
        # Whether the draft's logits and scores are finite, () bool each.
        self._finite: list[mx.array] = []
        self._ranker = CandidateRanker(*rule, draft.offered)
        self._chooser = chooser
        # What the penalties look at; see `TokenChooser.seen`.
        self._seen = chooser.seen(prompt, draft.end_tokens)

    @override
    def prefill(self, cancelled: Callable[[], bool]) -> Iterator[int]:
        """See `Drafter`. The common prefix of cache and prompt is kept."""
        self._cache.keep_prefix_of(self._committed)
        if self._room > 0:
            yield from prefill(self._model, self._cache, self._committed, cancelled, self._ledger)
            # The waits of the prompt are no waits of rounds.
            self._cache.take_waits()

    @override
    def take_settings(self, settings: DraftSettings) -> None:
        self._shape = self._shape_of(settings.draft_tokens)

    @override
    def propose(self, root: int, limit: int) -> Draft:
        return self.draft_in_shape(root, limit, self._shape)

    def draft_in_shape(self, root: int, limit: int, shape: DraftShape) -> Draft:
        """Do `propose` in a given shape. All is lazy: the device works while the host builds the steps."""
        self._fed = []
        self._open = False
        self._finite = []
        count = max(min(shape.draft_tokens, limit, self._room), 0)
        if count == 0:
            return Draft(pack(root, []))
        seen = self._with_tokens(self._seen, mx.array([root]))
        ranked = [self._rank(self._feed_certain(root), 0, shape.candidates(0), seen)]
        self._cache.open_round()
        self._open = True
        for step in range(1, count):
            token = ranked[-1][:1]
            seen = self._with_tokens(seen, token)
            ranked.append(self._rank(self._feed(token), step, shape.candidates(step), seen))
            self._fed.append(token)
            self._cache.mark_state()
        return Draft(pack(root, ranked), finite=mx.all(mx.stack(self._finite)))

    @override
    def observe(
        self, root: int, tokens: list[int], verified: Verified, path: list[int], begun: BegunDraft | None = None
    ) -> None:
        if self._open:
            accepted = tokens[: self._accepted(tokens, path)]
            self._cache.close_round(list(range(len(accepted))))
            self._cache.tokens += accepted
            self._open = False
        self._ledger.add_waits(self._cache.take_waits())
        committed = self._draft.known([root, *tokens[:-1]])
        self._committed += committed
        self._seen = self._with_tokens(self._seen, mx.array(committed))

    @override
    def end_reply(self, length: int) -> None:
        """See `Drafter`; the part of the reply that is not in the cache is read with the next prompt.

        The target's cache may hold fewer tokens than this one, where the target feeds accepted tokens again.
        Then this cache is trimmed to `length`. One that cannot be trimmed keeps them: they are the reply's too.
        """
        if not length:
            self._cache.drop_tokens()
        elif self._cache.can_trim_to(length):
            self._cache.trim_to(length)

    @property
    def unread(self) -> int:
        """Number of tokens before the root that its cache does not hold yet."""
        return len(self._committed) - len(self._cache.tokens)

    @property
    def _room(self) -> int:
        """Tokens that can be drafted before the draft model's context is full."""
        return self._model.info.context_length - len(self._committed)

    def _feed_certain(self, root: int) -> mx.array:
        """Feed the certain tokens that are not in the cache, the root last; return the logits after it."""
        certain = [*self._committed[len(self._cache.tokens) :], *self._draft.known([root])]
        logits = self._feed(mx.array(certain))
        self._cache.tokens += certain
        self._finite.append(mx.all(mx.isfinite(logits)))
        return logits

    def _feed(self, tokens: mx.array) -> mx.array:
        """Feed (n,) tokens, perhaps lazy; return the logits after the last one, (1, vocabulary), lazy."""
        with self._ledger.stage(Stage.FEED):
            logits: mx.array = self._model.network(tokens[None], cache=self._cache.layers)
            self._ledger.synchronize(logits)
        return logits[:, -1]

    def _rank(self, logits: mx.array, step: int, candidates: int, seen: mx.array | None) -> mx.array:
        """Return the best tokens of a step, (candidates,), best first, lazy."""
        position = len(self._committed) + 1 + step
        with self._ledger.stage(Stage.RANK):
            ranked, finite = self._ranker.rank(logits, position, candidates, seen)
            self._finite.append(finite)
            # The device computes it while the host builds the next step's graph.
            self._ledger.queue(ranked)
        return ranked

    def _with_tokens(self, seen: mx.array | None, tokens: mx.array) -> mx.array | None:
        """Return `seen` with further tokens."""
        return None if seen is None else self._chooser.with_tokens(seen, tokens)

    def _accepted(self, tokens: list[int], path: list[int]) -> int:
        """Return how many of the fed tokens were accepted; arguments as for `observe`.

        In the tree of `pack` they are the nodes from 1 on. Where the answer has a format, its matcher drops nodes and
        adds others, so the tokens themselves are compared.
        """
        if not (self._shaped and self._fed):
            return sum(0 < node <= len(self._fed) for node in path)
        pairs = zip(fetch(mx.concatenate(self._fed)).tolist(), tokens[:-1], strict=False)
        return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


def first_damaged_layer(network: nn.Module) -> str | None:
    """Return the path of the first layer with weights that are not finite, such as `model.layers.3.mlp.up_proj`."""
    for name, array in tree_flatten(network.parameters()):
        if mx.issubdtype(array.dtype, mx.floating) and not mx.all(mx.isfinite(array)).item():
            return str(name.rpartition(".")[0])
    return None


def pack(root: int, ranked: Sequence[mx.array]) -> PackedTree:
    """Build the tree of all steps' candidates.

    The chain comes first, so node i of it has depth i, and accepting it leaves the cache's rows in order.
    Two steps with the candidates [a, b] and [c] give the tokens root a c b, with the parents -1 0 1 0.

    Args:
        root: The token the target chose last.
        ranked: For each step, its candidates, (candidates,), best first; perhaps lazy.
    """
    depth = len(ranked)
    runner_ups = [step for step, tokens in enumerate(ranked) for _ in range(tokens.shape[0] - 1)]
    tokens = mx.concatenate([mx.array([root]), *(t[:1] for t in ranked), *(t[1:] for t in ranked)])
    if not runner_ups:
        return PackedTree.chain(tokens)
    parents = np.array([*range(-1, depth), *runner_ups], dtype=np.int32)
    depths = np.array([*range(depth + 1), *(step + 1 for step in runner_ups)], dtype=np.int32)
    unknown = np.zeros(len(parents), dtype=np.int32)
    return PackedTree.pack(PrefixTree(unknown, parents, depths), tokens)


class CandidateRanker:
    """Ranks tokens by the score of `TokenChooser`, with the draft model's logits instead of the target's.

    Args:
        params: Sampling parameters of the reply.
        seed: 64-bit reply seed.
        vocabulary_size: Ids below this one may be offered.
        offered: (n,) uint32: those of them that target and draft model share; None for all.
    """

    def __init__(
        self, params: SamplingParams, seed: int, vocabulary_size: int, offered: mx.array | None = None
    ) -> None:
        self._seed = seed
        self._params = params
        self._offered = offered
        self._columns = slice(vocabulary_size) if offered is None else offered
        ids = mx.arange(vocabulary_size, dtype=mx.uint32) if offered is None else offered
        self._scorer = PathScorer(params, seed, ids, candidates=_FILTERED)

    def rank(
        self, logits: mx.array, position: int, count: int, seen: mx.array | None = None
    ) -> tuple[mx.array, mx.array]:
        """Return the best tokens of one step.

        Args:
            logits: (1, vocabulary), any floating dtype: the draft model's; columns beyond the shared ones are ignored.
            position: Absolute position of the token to be chosen.
            count: Number of tokens to return.
            seen: (vocabulary,) int32, see `TokenChooser.seen`; None without a penalty.

        Returns:
            (count,) int32, best first; and () bool: whether the first one's score is finite.
        """
        logits = logits[:, self._columns].astype(mx.float32)
        if seen is not None:
            logits = penalize(logits, seen[self._columns], self._params)
        scores = self._scorer.scored(logits, noise_keys(self._seed, (position,)))[0]
        best = _best(scores, min(count, scores.shape[0]))
        tokens = best if self._offered is None else self._offered[best]
        return tokens.astype(mx.int32), mx.isfinite(scores[best[0]])


def _best(scores: mx.array, count: int) -> mx.array:
    """Return the indices, (count,), of the largest of (m,) scores, best first."""
    best = [mx.argmax(scores, keepdims=True)]
    # One pass per candidate is cheaper than partitioning the vocabulary.
    for _ in range(count - 1):
        scores = mx.where(mx.arange(scores.shape[0]) == best[-1], -mx.inf, scores)
        best.append(mx.argmax(scores, keepdims=True))
    return mx.concatenate(best)
