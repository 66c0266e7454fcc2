"""Block drafters in the loop: the text of plain decoding, and a memory of committed tokens alone."""

from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from rdchat.errors import ModelError
from rdchat.inference.api import BeamShape, DraftKind
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.heads.block_head import BoundBlockHead
from rdchat.inference.drafting.heads.block_network import BlockNetwork, Markov
from rdchat.inference.drafting.heads.head import Root
from rdchat.inference.verification.target import LoadedModel
from tests.grids import grid, share
from tests.inference.drafting.heads.block_drafters import (
    JETSPEC,
    KINDS,
    XPRESS,
    HeadPair,
    all_knowing,
    block_config,
    memoryless_llama,
    stored_block,
)
from tests.inference.fakes import ask, chains_only, loaded, reply_end, shared_family, shared_llama
from tests.inference.families import network_of

pytestmark = pytest.mark.across_rows

FAMILIES = ["qwen3", "gemma3", "gpt_oss", "phi3", "llama with llama3 rope", "lfm2"]
TEMPERATURES = [0, 0.9, 1.3]


@pytest.mark.parametrize(("family", "temperature"), grid(FAMILIES, TEMPERATURES, one_in=6))
def test_the_text_is_that_of_plain_decoding_with_every_family(family: str, temperature: float) -> None:
    model = shared_family(family)
    number = FAMILIES.index(family) + TEMPERATURES.index(temperature)
    request = ask(temperature=temperature, max_tokens=8)
    pair = HeadPair.of(model, **KINDS[number % len(KINDS)])
    end = pair.reply(request, BeamShape(3, 4) if number % 2 else BeamShape(1, 5), branch=number % 3 == 0)
    assert end.statistics.host_syncs == end.statistics.rounds, "one a round"
    if model.capability.kind is DraftKind.CHAIN:
        assert end.statistics.verified_nodes == end.statistics.rounds + end.statistics.drafted
    pair.assert_in_step([*model.encode_chat(request.messages), *end.token_ids[:-1]])


@pytest.mark.parametrize(("kind", "temperature"), grid(KINDS, TEMPERATURES, one_in=6), ids=str)
def test_trees_and_chains_of_every_kind(kind: dict, temperature: float) -> None:
    model = shared_llama()
    request = ask(temperature=temperature, max_tokens=8)
    for target, shape in ((model, BeamShape(4, 5)), (chains_only(model), BeamShape(1, 6))):
        end = HeadPair.of(target, **kind).reply(request, shape)
        most = block_config(model, **kind).max_drafted
        assert end.statistics.drafted <= end.statistics.rounds * min(most, shape.length - 1)


@pytest.mark.parametrize(
    ("kind", "width", "sampling"),
    grid(
        ["dspark", "domino", "dflash 2", "xpress"],
        [1, 4],
        [{"top_k": 6}, {"temperature": 1.3, "top_p": 1.0}, {"temperature": 0}],
        one_in=4,
    ),
    ids=str,
)
def test_a_drafter_that_knows_the_target_is_always_right(kind: str, sampling: dict, width: int) -> None:
    """With the target's own logits, a draft is wrong only if its noise, place or token before is not the text's."""
    model = memoryless_llama()
    request = ask(max_tokens=14, seed=3, **sampling)
    end = HeadPair(model, all_knowing(model, kind).bind(model, 0)).reply(request, BeamShape(width, 5))
    # the last round may offer more than the reply has room for
    assert end.statistics.drafted > 5
    assert end.statistics.accepted >= end.statistics.drafted - 4


@pytest.mark.parametrize("bits", share([4, 8], 2))
@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_quantised_drafters_and_targets(family: str, bits: int) -> None:
    model = shared_family(family)
    request = ask(temperature=0.7, max_tokens=8)
    pair = HeadPair.of(model, bits, markov=Markov.VANILLA, own_embeddings=True, markov_rank=64)
    assert {pair.head.network.fc.bits, pair.head.network.markov_head.markov_w1.bits} == {bits}
    pair.reply(request, BeamShape(3, 4))
    floats = HeadPair.of(model, markov=Markov.VANILLA, own_embeddings=True, markov_rank=64)
    hidden = mx.random.normal((6, 128), key=mx.random.key(1))
    rows = []
    for one in (pair, floats):
        one.memory.begin_reply([1] * 6)
        one.memory.take_committed([1] * 6, hidden, 0)
        rows.append(np.array(one.memory.root_state(Root(3, 6, hidden[5])).logits()).ravel())
    assert np.corrcoef(*rows)[0, 1] > (0.99 if bits == 8 else 0.8)


@pytest.mark.slow
@pytest.mark.parametrize("family", share(["qwen3", "gemma3"], 2))
def test_a_drafter_takes_the_precision_of_a_quantised_target(family: str) -> None:
    model = shared_family(family, "4bit")
    pair = HeadPair.of(model, markov=Markov.GATED)
    assert pair.head.network.fc.weight.dtype == mx.bfloat16
    end = reply_end(pair.start(ask(temperature=0.7, max_tokens=10), BeamShape(1, 4)))
    assert end.statistics.drafted > 0
    assert pair.head.embeddings(3, 5).dtype == mx.bfloat16


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_beam_is_corrected_by_its_own_path(kind: dict) -> None:
    """Beams that grow from one another, in any order, have the logits that their paths have alone."""
    pair = HeadPair.of(shared_llama(), **kind)
    hidden = mx.random.normal((5, 64), key=mx.random.key(0))
    pair.memory.take_committed([1] * 5, hidden, 0)
    state = pair.memory.root_state(Root(4, 5, hidden[4]))
    wide = state.after(mx.array([0, 0, 0]), mx.array([6, 7, 8])).after(mx.array([2, 0, 2]), mx.array([9, 10, 11]))
    found = np.array(wide.logits())
    for row, path in enumerate(((8, 9), (6, 10), (8, 11))):
        alone = state
        for token in path:
            alone = alone.after(mx.array([0]), mx.array([token]))
        np.testing.assert_allclose(found[row], np.array(alone.logits())[0], atol=1e-5)
    if kind not in ({}, JETSPEC):
        assert np.abs(found[0] - found[2]).max() > 1e-3


CAUSAL = [
    JETSPEC,
    {"markov": Markov.RNN, "windows": (None, 4), "causal": (True, True)},
    KINDS[5] | {"causal": (True, True)},
]


@pytest.mark.parametrize("kind", [*CAUSAL, {}, XPRESS], ids=str)
def test_what_a_causal_block_does_not_need_is_not_computed(kind: dict, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each drafted token has the logits that it has in a whole block."""
    pair = HeadPair.of(shared_llama(), **kind)
    hidden = mx.random.normal((5, 64), key=mx.random.key(0))
    pair.memory.take_committed([1] * 5, hidden, 0)
    most = pair.head.max_drafted
    block = pair.head.network.block
    rows = list[int]()
    monkeypatch.setattr(
        BlockNetwork, "block", lambda _self, x, *others: (rows.append(x.shape[0]), block(x, *others))[1]
    )
    following = (mx.array([0, 0]), mx.array([6, 7]))
    state = pair.memory.root_state(Root(4, 5, hidden[4]))
    whole = [np.array(state.logits())]
    for _ in range(1, most):
        state = state.after(*following)
        whole.append(np.array(state.logits()))
    for drafted in range(1, 1 + most):
        cut = pair.memory.root_state(Root(4, 5, hidden[4], drafted=drafted))
        for token in range(drafted):
            cut = cut.after(*following) if token else cut
            np.testing.assert_allclose(np.array(cut.logits()), whole[token], atol=1e-5)
    assert rows == [5, *(5 - most + drafted if kind in CAUSAL else 5 for drafted in range(1, 1 + most))]


def test_xpress_reads_the_token_before_the_root() -> None:
    """Where that is not known, or is part of an image, the root stands for it, as in the training of a text's start."""

    def logits(text: list[int], at: int = 5) -> np.ndarray:
        memory = HeadPair.of(shared_llama(), **XPRESS).memory
        memory.take_committed(text, mx.random.normal((5, 64), key=mx.random.key(0)), 0)
        return np.array(memory.root_state(Root(4, at, mx.zeros(64))).logits())

    assert np.abs(logits([1, 1, 1, 1, 6]) - logits([1, 1, 1, 1, 7])).max() > 1e-3
    np.testing.assert_array_equal(logits([1, 1, 1, 1, 6]), logits([3, 3, 3, 3, 6]))
    np.testing.assert_array_equal(logits([1, 1, 1, 1, -9]), logits([1, 1, 1, 1, 4]))
    np.testing.assert_array_equal(logits([1, 1, 1, 1, 6], at=9), logits([1, 1, 1, 1, 7], at=9))


def test_windows_move_along_a_block() -> None:
    """The last row of a block does not see what the first one just sees."""
    pair = HeadPair.of(shared_llama(), **KINDS[5])
    hidden = mx.random.normal((9, 64), key=mx.random.key(0))
    pair.memory.take_committed([1] * 9, hidden, 0)
    pair.memory.catch_up(Root(4, 9, hidden[8]))
    mask = pair.memory._mask(Root(4, 9, hidden[8]), 6, False)
    assert isinstance(mask, mx.array)
    text = np.array(mask)[:, :-5]
    np.testing.assert_array_equal(text, [[start <= row for row in range(6)] for start in range(5)])
    assert np.array(mask)[:, -5:].all()
    assert pair.memory._mask(Root(4, 9, hidden[8]), 40, False) is None
    assert pair.memory._mask(Root(4, 9, hidden[8]), None, True) == "causal"


def test_text_with_a_gap_keeps_its_positions() -> None:
    """A cache may hold tokens whose hidden states nobody read; rows behind them are not moved."""
    model = shared_llama()
    gapped, behind, moved = (HeadPair.of(model).memory for _ in range(3))
    hidden = mx.random.normal((12, 64), key=mx.random.key(0))
    gapped.take_committed([1] * 4, hidden[:4], 0)
    moved.take_committed([1] * 4, hidden[:4], 0)
    for memory, start in ((gapped, 8), (behind, 8), (moved, 4)):
        memory.take_committed([1] * 4, hidden[8:], start)
    drafts = [
        np.array(memory.root_state(Root(4, end, hidden[11])).logits())
        for memory, end in ((gapped, 12), (behind, 12), (moved, 8))
    ]
    assert gapped.positions == [0, 1, 2, 3, 8, 9, 10, 11]
    keys = gapped.buffers[0].view(0)[0]
    alone = behind.buffers[0].view(0)[0]
    np.testing.assert_allclose(np.array(keys[..., 4:, :]), np.array(alone), atol=1e-5)
    assert np.abs(drafts[0] - drafts[2]).max() > 1e-3


def test_a_target_whose_layers_give_something_else_is_refused() -> None:
    """Of another width; Gemma 3n's layers pass on several streams at once."""
    gemma = shared_family("gemma3n")
    for stored, model in ((stored_block(shared_llama()), shared_family("llama")), (stored_block(gemma), gemma)):
        with pytest.raises(ModelError, match="cannot read the hidden states of tiny"):
            stored.bind(model)


GOLDEN = Path(__file__).parents[2] / "golden"
FILES = sorted(path.stem for path in GOLDEN.glob("block_*.safetensors"))


def written(name: str, folder: Path) -> tuple[dict[str, mx.array], Path]:
    """Write a golden checkpoint as it would be published; return what else its file holds."""
    path = GOLDEN / f"{name}.safetensors"
    tensors, metadata = mx.load(str(path), return_metadata=True)
    folder.mkdir()
    (folder / "config.json").write_text(metadata["config"])
    weights = {name.removeprefix("weights."): value for name, value in tensors.items() if name.startswith("weights.")}
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    return tensors, folder


def target_of(tensors: dict[str, mx.array]) -> LoadedModel:
    """Return a target of the golden sizes, with the golden tables where there are some."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 4, "intermediate_size": 24, "head_dim": 4, "vocab_size": 40}
    network = network_of("llama", sizes)
    if "target.embeddings" in tensors:
        network.model.embed_tokens.weight = tensors["target.embeddings"].astype(mx.float32)
        network.lm_head.weight = tensors["target.output"].astype(mx.float32)
    model = loaded(network)
    return replace(model, info=replace(model.info, vocabulary_size=40))


@pytest.mark.parametrize("name", share(FILES, 3))
def test_a_block_is_drafted_as_the_reference_drafts_it(name: str, tmp_path: Path) -> None:
    tensors, folder = written(name, tmp_path / "drafter")
    model = target_of(tensors)
    head = load_drafter(folder, model)
    assert isinstance(head, BoundBlockHead)
    assert head.reads.layers == (0, 2)
    memory = head.memory()
    done = 0
    for number in range(2):
        position = int(tensors[f"position.{number}"].item())
        token = int(tensors[f"root.{number}"].item())
        hidden = tensors["hidden"]
        memory.take_committed([1] * (position - done), hidden[done:position], done)
        state = memory.root_state(Root(token, position, hidden[position - 1]))
        done = position
        expected = np.array(tensors[f"logits.{number}"])
        drafted = np.array(tensors[f"tokens.{number}"])
        assert len(drafted) == head.max_drafted
        for depth, (row, chosen) in enumerate(zip(expected, drafted, strict=True)):
            if depth:
                state = state.after(mx.array([0]), mx.array([int(drafted[depth - 1])]))
            found = np.array(state.logits())[0]
            ids = np.array(head.vocabulary)
            if f"candidates.{number}" in tensors:
                ids = np.array(state.ids())
                candidates = np.array(tensors[f"candidates.{number}"][depth])
                np.testing.assert_array_equal(np.sort(ids), np.sort(candidates))
                np.testing.assert_allclose(found[ids.argsort()], row[candidates.argsort()], atol=1e-4)
            else:
                np.testing.assert_allclose(found, row, atol=1e-4)
            assert ids[found.argmax()] == chosen


def test_every_layout_has_a_golden_file() -> None:
    """So that a folder without files cannot pass."""
    assert len(FILES) == 20
