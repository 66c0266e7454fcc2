"""A target with a draft model, small ones, and their caches: what the tests of draft models share."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map

from rdchat.inference.api import DraftKind, GenerationRequest, ReplyEnd
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.draft_model import DraftModel, DraftModelDrafter
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import ALPHABET, positions, reply_end, shared_llama, tiny_llama

SIZE = len(ALPHABET)
CHAIN = DraftShape(4)
TREE = DraftShape(4, (2, 1, 0, 2))
FILTERS = [{}, {"top_p": 0.8}, {"top_k": 4}, {"min_p": 0.1}, {"repetition_penalty": 1.4}, {"frequency_penalty": 0.5}]


def near(model: LoadedModel, distance: float = 0.03) -> LoadedModel:
    """Return a model that often, but not always, agrees with another one."""
    copy = tiny_llama()
    mx.random.seed(11)
    noise = tree_map(lambda array: distance * mx.random.normal(array.shape), model.network.parameters())
    copy.network.update(tree_map(lambda array, error: array + error, model.network.parameters(), noise))
    mx.eval(copy.network.parameters())
    return copy


@cache
def shared_near(distance: float = 0.03) -> LoadedModel:
    """Return a model `near` the shared one; made once for all tests of a process, so none may change it."""
    return near(shared_llama(), distance)


@dataclass
class Pair:
    """A target and its draft model, each with a cache that outlives replies."""

    target: LoadedModel
    draft: DraftModel
    cache: KVCache

    @classmethod
    def of(cls, target: LoadedModel, draft: LoadedModel, shared: int = SIZE) -> "Pair":
        return cls(target, DraftModel(target, draft, shared), KVCache(target.network))

    def start(self, request: GenerationRequest, shape: DraftShape = TREE) -> ReplyIterator:
        prompt = self.target.encode_chat(request.messages)
        self.cache.keep_prefix_of(prompt)
        job = ReplyJob.fresh(self.target, prompt, request, self.cache)
        return ReplyIterator(
            job, DraftModelDrafter(self.draft, prompt, request, job.ledger, self._shape_of(shape, request))
        )

    def _shape_of(self, shape: DraftShape, request: GenerationRequest) -> Callable[[int], DraftShape]:
        """Return a shape for the request's settings, and chains for others and where the target takes no trees."""
        if self.target.capability.kind is not DraftKind.TREE:
            return DraftShape
        return lambda tokens: shape if tokens == request.draft.draft_tokens else DraftShape(tokens)

    def reply(self, request: GenerationRequest, shape: DraftShape = TREE) -> ReplyEnd:
        return reply_end(self.start(request, shape))

    def assert_in_step(self) -> None:
        """The draft model's cache holds the target's tokens but a last round's, as many positions, and their rows."""
        held = len(self.draft.cache.tokens)
        assert self.draft.cache.tokens == self.cache.tokens[:held]
        assert len(self.cache.tokens) - held <= 9, "the next prompt is read from there"
        assert positions(self.draft.cache) in (held, 0)  # recurrent state counts no positions
        token = mx.array([[5]])
        model, fresh = self.draft.model.network, KVCache(self.draft.model.network)
        if self.draft.cache.tokens:
            model(mx.array([self.draft.cache.tokens]), cache=fresh.layers)
        expected = model(token, cache=fresh.layers)
        found = model(token, cache=self.draft.cache.layers)
        self.draft.cache.tokens.append(5)
        self.draft.cache.trim_to(held)
        np.testing.assert_allclose(np.array(found), np.array(expected), atol=2e-4)
