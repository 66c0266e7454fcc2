"""Another rank's caches follow rank 0's; both run here, each with a copy of the network and no ring between them."""

from typing import Any

import mlx.core as mx
import pytest

from rdchat.errors import ModelError, RanksError
from rdchat.inference.api import DraftKind, ReplyEnd
from rdchat.inference.sharding import rank_messages
from rdchat.inference.sharding.rank_messages import Follower, Leader
from rdchat.inference.verification.hooks import HiddenReads, ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.round_cache import leaves
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.fakes import ALPHABET, ScriptedDrafter, ask, loaded
from tests.inference.families import CHAINS, FED_AGAIN, HYBRIDS, TREES, network_of
from tests.inference.plain_replies import drafted, plain
from tests.inference.sharding.programs import StandIn, conversation, difference

FAMILIES = TREES | CHAINS | HYBRIDS | FED_AGAIN


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> "Copies":
    return Copies(monkeypatch)


class Copies:
    """Rank 0 and another one; messages arrive at once.

    Attributes:
        model: Rank 0's.
        worker: The other rank.
        words: Length of each message.
        waited: Whether each was waited for.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words: list[int] = []
        self.waited: list[bool] = []
        monkeypatch.setattr(rank_messages, "send", self._send)

    def open(self, family: str) -> None:
        name, options = FAMILIES[family]
        mine, theirs = (network_of(name, {**options, "vocab_size": len(ALPHABET)}) for _ in range(2))
        self.model: LoadedModel = loaded(mine)
        self.worker = Follower(theirs, ModelHooks(theirs), StandIn(2))  # type: ignore[arg-type]
        Leader(mine, self.model.hooks, StandIn(2))  # type: ignore[arg-type]

    def _send(self, _group: object, _kind: object, words: list[int], *arrays: mx.array, waits: bool) -> None:
        everything = [*words, *(int(number) for array in arrays for number in array.tolist())]  # type: ignore[union-attr,arg-type]
        self.words.append(len(everything))
        self.waited.append(waits)
        self.worker.repeat_call(everything)

    def compare(self, cache: KVCache) -> None:
        """Assert that the other rank has the same rows as a cache of rank 0, also behind what is only queued."""
        network = self.model.network
        network(mx.array([[1]]))
        copies = self.worker._caches.values()
        assert min(difference(cache, each) for each in copies) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gemma3", "qwen3_next", "llama4", "mamba2"])
def test_a_conversation_in_every_mode(copies: Copies, family: str) -> None:
    copies.open(family)
    alone = loaded(network_of(*FAMILIES[family][:1], {**FAMILIES[family][1], "vocab_size": len(ALPHABET)}))
    assert conversation(copies.model, copies.compare) == conversation(alone, lambda _: None)
    assert len(copies.worker._caches) < 8, "Caches that are gone on rank 0 are dropped."


@pytest.mark.parametrize("family", share([*FAMILIES], 16))
def test_every_family(copies: Copies, family: str) -> None:
    """Trees, chains, and accepted parts that are fed again."""
    copies.open(family)
    model = copies.model
    request = ask(temperature=0.7, max_tokens=16)
    reply = [*plain(model, request).token_ids]
    width = 3 if model.capability.kind is DraftKind.TREE else 1
    (*_, end), cache = drafted(model, request, ScriptedDrafter(reply, width, 5))
    assert isinstance(end, ReplyEnd)
    assert [*end.token_ids] == reply
    copies.compare(cache)


def test_only_a_prompts_messages_are_waited_for(copies: Copies) -> None:
    """A GPU would wait for a rank that still reads the part before; a round's call is queued behind the last one's."""
    copies.open("llama")
    cache = KVCache(copies.model.network)
    for tokens in (200, 1, 30):
        copies.model.network(mx.ones((1, tokens), mx.int32), cache=cache.layers)
    assert copies.waited == [True, False, False]


def test_most_messages_fit_into_one_sum(copies: Copies) -> None:
    copies.open("llama")
    request = ask(max_tokens=12)
    reply = [*plain(copies.model, request).token_ids]
    drafted(copies.model, request, ScriptedDrafter(reply, 6, 5))
    assert max(copies.words) < 250


def test_a_rank_that_lost_step_is_an_error(copies: Copies) -> None:
    copies.open("llama")
    network, cache = copies.model.network, KVCache(copies.model.network)
    network(mx.array([[1, 2, 3]]), cache=cache.layers)
    for leaf in leaves(cache.layers):
        leaf.trim(1)
    with pytest.raises(RanksError, match="its cache has 3 tokens instead of 2"):
        network(mx.array([[4]]), cache=cache.layers)


def test_a_call_that_fails_on_all_ranks_ends_none(copies: Copies) -> None:
    """The check of what a model can verify may try what its code cannot do."""
    copies.open("llama")

    def fail(*_arguments: object, **_options: object) -> Any:
        raise ValueError("No.")

    copies.worker._network = fail  # type: ignore[assignment]
    copies.model.network(mx.array([[4]]))


def test_rows_of_other_ranks_are_not_put_aside(copies: Copies) -> None:
    copies.open("llama")
    cache = KVCache(copies.model.network)
    copies.model.network(mx.array([[1, 2, 3]]), cache=cache.layers)
    assert cache.copy_from(0) is None
    assert KVCache(copies.worker._network).copy_from(0) == [[]] * 3


def test_heads_that_read_layers_are_refused_in_a_pipeline() -> None:
    network = network_of("qwen2", {"vocab_size": len(ALPHABET)})
    model = loaded(network)
    model.hooks.record_states(HiddenReads((0,)))
    network.model.pipeline(StandIn(2))
    with pytest.raises(ModelError, match="reads layers that are spread over several Macs"):
        model.hooks.record_states(HiddenReads((0,)))
    model.hooks.record_states(HiddenReads())
