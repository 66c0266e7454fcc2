"""Ranks give the tokens of one, as processes or as copies in this one, and their caches hold what fresh ones would."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import mlx.core as mx
import pytest

from rdchat.errors import ModelError, RanksError
from rdchat.inference.api import DraftKind, Mode, ReplyEnd
from rdchat.inference.sharding import rank_messages
from rdchat.inference.sharding.rank_messages import Follower, Kind, Leader
from rdchat.inference.verification.hooks import HiddenReads, ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.round_cache import leaves
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.fakes import ALPHABET, ScriptedDrafter, ask, loaded
from tests.inference.families import CHAINS, FED_AGAIN, HYBRIDS, TREES, network_of
from tests.inference.plain_replies import drafted, plain
from tests.inference.sharding.programs import MODES, StandIn, conversation, difference, engine, results

# Processes that are ranks wait for each other's turn, which takes long on a busy machine.
pytestmark = pytest.mark.timeout(1800)
# Rounding of float32, as a share of a cache's largest value.
ROUNDING = 1e-4
FAMILIES = ["qwen3", "qwen3_moe", "qwen3_5"]


def check(count: int, split: str, names: list[str], modes: Sequence[Mode] = MODES) -> None:
    leader, *followers = results("families", count, split, names, modes)
    for number, name in enumerate(names):
        replies: dict[str, Any] = leader[number]
        assert replies["actual"] == replies["expected"], name
        assert replies["kinds"][0] == replies["kinds"][1], name
        # The message before each call, and the sums of its layers.
        assert all(calls > 1 for _, calls in replies["exchanges"])
        assert "prefill" in dict(replies["exchanges"])
        for rank in (leader, *followers):
            caches = rank[number]["caches"]
            assert len(caches) == len(leader[number]["caches"]) > 0
            assert max(caches) < ROUNDING, name


def test_two_ranks_give_the_tokens_of_one() -> None:
    """Around stops, edits, further turns and pauses."""
    check(2, "tensor", ["llama"], [Mode.AUTO])


@pytest.mark.slow
def test_families_over_two_ranks() -> None:
    """In every mode, at temperature 0 and 0.9. The last one has recurrent state."""
    check(2, "tensor", FAMILIES)


@pytest.mark.slow
@pytest.mark.parametrize(("split", "family"), [("tensor", "llama"), ("pipeline", "qwen2")])
def test_three_ranks(split: str, family: str) -> None:
    check(3, split, [family], [Mode.AUTO])


@pytest.mark.slow
def test_rank_0_queues_nothing_of_its_network_before_the_others_have_loaded(small_model: Path, tmp_path: Path) -> None:
    """A GPU that waits for another Mac is ended by macOS. A load that fails on rank 0 leaves the others in step."""
    queued, loads = results("late", 2, str(small_model), str(tmp_path / "loaded"))
    assert queued > loads


def alone(*arguments: Any) -> dict[str, list[int]]:
    """Return what `engine` does without ranks, in a thread of its own: it ends the thread's streams."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(engine, 0, [""], *arguments).result()


@pytest.mark.slow
def test_an_engine_sleeps_and_loads_another_precision(small_model: Path) -> None:
    arguments = str(small_model), 12, [("off", 0), ("lookup", 0.9)], ""
    assert results("engine", 2, *arguments)[0] == alone(*arguments)


@pytest.mark.slow
def test_the_default_model_over_three_ranks(default_model: Path) -> None:
    """The small models above have the other modes."""
    arguments = str(default_model), 6, [("drafter", 0.9)], str(default_model)
    assert results("engine", 3, *arguments)[0] == alone(*arguments)


def test_a_resting_rank_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """It rests once rank 0 says so. Only a model that was just loaded may be wired."""
    kinds = iter([Kind.REST, Kind.LOAD, Kind.REST, Kind.END])
    monkeypatch.setattr(rank_messages, "receive", lambda _group: (next(kinds), [0, 7]))
    monkeypatch.setattr(rank_messages, "resolve_model", lambda *_: Path("model"))
    monkeypatch.setattr(rank_messages, "check_sum", lambda _: 7)
    steps = Mock()
    for name in ("Follower", "ModelHooks", "part_of"):
        monkeypatch.setattr(rank_messages, name, Mock())
    for name in ("unwire_weights", "wire_weights", "free_memory", "load_part", "meet"):
        monkeypatch.setattr(rank_messages, name, getattr(steps, name))
    group: Any = object()
    rank_messages.run(group, "model", steps.rest)
    named = [name for name, *_ in steps.method_calls]
    rests = ["unwire_weights", "rest"]
    assert named == [*rests, "free_memory", "load_part", "wire_weights", "meet", *rests, "free_memory", "meet"]


MIRRORED = TREES | CHAINS | HYBRIDS | FED_AGAIN


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
        name, options = MIRRORED[family]
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
    alone = loaded(network_of(*MIRRORED[family][:1], {**MIRRORED[family][1], "vocab_size": len(ALPHABET)}))
    assert conversation(copies.model, copies.compare) == conversation(alone, lambda _: None)
    assert len(copies.worker._caches) < 8, "Caches that are gone on rank 0 are dropped."


@pytest.mark.parametrize("family", share([*MIRRORED], 16))
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
