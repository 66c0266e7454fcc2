"""MTP layers in the loop: the same text as plain decoding, as trees or as chains."""

import json
import re
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from rdchat.errors import ModelError
from rdchat.inference.api import BeamShape, DraftKind
from rdchat.inference.drafting.checkpoints.drafter_folder import check_drafter, load_drafter
from rdchat.inference.drafting.checkpoints.mtp_layout import _NAMINGS
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.head import HeadState, Root
from rdchat.inference.drafting.heads.mtp_head import READINGS, BoundMtpHead, LayerCache, MtpNetwork, Reading
from rdchat.inference.models.model_config import PLAIN
from tests.grids import grid, share
from tests.inference.drafting.heads.block_drafters import HeadPair
from tests.inference.drafting.heads.golden_heads import GoldenHead
from tests.inference.drafting.heads.mtp_targets import (
    CASES,
    GOLDEN,
    bound_mtp,
    golden_config,
    golden_folder,
    golden_target,
)
from tests.inference.fakes import ask
from tests.inference.image_prompts import Image, ImagePrompt, fresh
from tests.inference.plain_replies import drafted_by_beams

pytestmark = pytest.mark.across_rows

TREE = BeamShape(3, 5)
CHAIN = BeamShape(1, 5)


def test_all_families_that_are_read_have_a_case() -> None:
    read = {name for naming in _NAMINGS for name in naming.architectures}
    assert read - set(PLAIN) == set(CASES)


@pytest.mark.slow
@pytest.mark.parametrize(("case", "temperature"), share(product(CASES, (0, 0.9)), 20))
def test_the_text_is_that_of_plain_decoding(case: str, temperature: float) -> None:
    """As trees and chains, also with recurrent state in the target; the second time with what the memory holds."""
    model = golden_target(case)
    assert model.capability.kind is DraftKind.TREE
    drafters = HeadModel(model, load_drafter(golden_folder(case), model))
    request = ask(temperature=temperature, max_tokens=16, seed=2)
    for shape in (TREE, CHAIN):
        statistics = drafted_by_beams(drafters, model, request, shape).statistics
        assert statistics.host_syncs == statistics.rounds, "one a round"


@pytest.mark.parametrize(
    ("wrong", "chosen", "facts"),
    [
        (
            (50, 50.5, 48, 50.5),
            READINGS[0],
            "50 % of the tokens it drafted in a test were right, about as many in any other",
        ),
        (
            (50, 52, 40, 39),
            READINGS[2],
            "60 % of the tokens it drafted in a test were right, 50 % in the best other way.",
        ),
    ],
)
def test_another_reading_than_the_likeliest_must_be_clearly_better(
    wrong: tuple[float, ...], chosen: Reading, facts: str
) -> None:
    """A few tokens more are chance."""
    model = golden_target("glm4_moe")
    drafters = HeadModel(model, load_drafter(golden_folder("glm4_moe"), model))
    assert isinstance(drafters.head, BoundMtpHead)
    drafters.read_as(dict(zip(READINGS, wrong, strict=True)))
    assert drafters.head.reading == chosen
    assert f"It {chosen.description}: {facts}" in drafters.head.facts


@pytest.mark.slow
def test_a_model_of_16_bits_takes_layers_of_32(tmp_path: Path) -> None:
    model = golden_target("mimo", "bfloat16")
    head = bound_mtp(golden_folder("mimo"), model)
    assert head.networks[0].eh_proj.weight.dtype == mx.bfloat16
    assert list(HeadPair(model, head).start(ask(temperature=0, max_tokens=16), TREE))


def test_layers_of_another_family_are_refused() -> None:
    with pytest.raises(ModelError, match="not for a model of the type qwen3_next"):
        load_drafter(golden_folder("deepseek_v3"), golden_target("qwen3_next"))


def test_rows_behind_an_image_have_the_positions_that_the_target_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    model = golden_target("qwen3_5")
    prompt = ImagePrompt([1, 2, 3], Image(1, 12, -8), [4, 5], Image(2, 4, -2), [6, 7])
    head = load_drafter(golden_folder("qwen3_5"), model)
    turned = list[int]()
    rows = MtpNetwork.rows
    assert isinstance(head, BoundMtpHead)

    def noting(self: MtpNetwork, *arguments: Any, **options: Any) -> mx.array:
        turned.extend(arguments[2])
        return rows(self, *arguments, **options)

    monkeypatch.setattr(MtpNetwork, "rows", noting)
    memory = head.memory()
    hidden = mx.ones((len(prompt), head.networks[0].norm.weight.shape[0]))
    memory.begin_reply(prompt.tokens)
    memory.use_cache(fresh(model, prompt))
    memory.take_committed(prompt.tokens, hidden, 0)
    memory.root_state(Root(9, len(prompt), hidden[-1])).after(mx.array([0, 0]), mx.array([3, 4]))
    # Rows of text before text, at tokens 0, 1, 15, 21 and 22; then two beams at token 23.
    assert turned == [0, 1, 7, 11, 12, 13, 13]


@pytest.mark.parametrize("case", CASES)
def test_logits_are_those_of_the_reference(case: str) -> None:
    folder = golden_folder(case)
    head = bound_mtp(folder, golden_target(case))
    golden = GoldenHead(head, folder, "hidden", 2e-4)
    golden.assert_all()
    head.read_as(Reading(recycles_before_norm=True))
    golden.assert_chain("chain_before")


SEVERAL = ["glm4_moe", "qwen3_next", "mimo", "deepseek_v3", "deepseek_v32"]
ROWS = 7
WIDTH = 32
VOCABULARY = 31
LAYER = re.compile(r"(?<=layers\.)\d+(?=\.)")


def several(folder: Path, case: str, layers: int, left_out: str = "") -> Path:
    """Write a case's MTP layer, and others like it; return the folder."""
    config = golden_config(case) | {"num_nextn_predict_layers": layers}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    tensors = dict(mx.load(str(golden_folder(case) / "model.safetensors")))
    mx.random.seed(4)
    for name, tensor in list(tensors.items()):
        for layer in range(1, layers) if (first := LAYER.search(name)) else ():
            further = LAYER.sub(str(int(first[0]) + layer), name)
            tensors[further] = tensor + 0.05 * mx.random.normal(tensor.shape).astype(tensor.dtype)
    if left_out:
        assert any(name.endswith(left_out) for name in tensors)
    kept = {name: tensor for name, tensor in tensors.items() if not (left_out and name.endswith(left_out))}
    mx.save_safetensors(str(folder / "model.safetensors"), kept)
    return folder


def loaded_layers(folder: Path, case: str, layers: int) -> BoundMtpHead:
    head = bound_mtp(several(folder, case, layers), golden_target(case))
    assert len(head.networks) == layers
    return head


def reference(head: BoundMtpHead, hidden: mx.array, following: list[int], drafted: list[int]) -> np.ndarray:
    """Return the logits of each level of a chain, with all rows computed anew: each layer's tokens are one further."""
    logits = []
    tokens = list(following)
    for layer, network in enumerate(head.networks):
        count = len(tokens)
        mask = mx.tril(mx.ones((count, count), mx.bool_))
        caches = [LayerCache(lambda own: own) for _ in range(network.caches)]
        output = network.rows(head.embed(mx.array(tokens)), hidden, range(layer, layer + count), caches, mask)
        logits.append(head.row_logits(output[-1:], layer))
        hidden = head.recycled(output, layer)
        tokens = [*tokens[1:], *drafted[layer : layer + 1]]
    return np.array(mx.concatenate(logits))


def text(seed: int = 6) -> tuple[mx.array, list[int]]:
    rng = np.random.default_rng(seed)
    hidden = mx.array(rng.normal(0, 1, (ROWS, WIDTH)).astype(np.float32))
    return hidden, rng.integers(1, VOCABULARY, ROWS).tolist()


def levels(state: HeadState, drafted: list[int]) -> np.ndarray:
    rows = [state.logits()]
    for token in drafted:
        state = state.after(mx.array([0]), mx.array([token]))
        rows.append(state.logits())
    return np.array(mx.concatenate(rows))


def test_a_chain_has_the_logits_of_transformers() -> None:
    folder = GOLDEN / "several_mtp"
    head = bound_mtp(folder, golden_target("glm4_moe"))
    assert len(head.networks) == 3
    golden = np.load(folder / "expected.npz")
    hidden, following, chain = (golden[name] for name in ("hidden", "following", "chain"))
    memory = head.memory()
    tokens = [0, *following[:-1].tolist()]
    memory.begin_reply(tokens)
    memory.take_committed(tokens, mx.array(hidden), 0)
    state = memory.root_state(Root(int(following[-1]), len(following), mx.array(hidden[-1])))
    # The tables are those of the target's own golden case.
    np.testing.assert_allclose(levels(state, chain[:-1].tolist()), golden["chain_logits"], atol=2e-4)
    assert golden["chain_logits"].argmax(axis=1).tolist() == chain.tolist()


@pytest.mark.parametrize(("case", "layers", "reading"), grid(SEVERAL, [2, 3], READINGS[:2], one_in=8))
def test_each_layer_drafts_one_token_in_turn(case: str, layers: int, reading: Reading, tmp_path: Path) -> None:
    head = loaded_layers(tmp_path / "layers", case, layers)
    head.read_as(reading)
    hidden, following = text()
    drafted = [3, 7, 11, 5][: layers - 1]
    # A prompt has more tokens than there are layers.
    for rows in range(layers - 1, ROWS + 1):
        # All at once, and row by row: an earlier draft's last row is computed again.
        memories = [head.memory(), head.memory()]
        tokens = [0, *following[: rows - 1]]
        for memory in memories:
            memory.begin_reply(tokens)
        memories[0].take_committed(tokens, hidden[:rows], 0)
        for row in range(rows):
            memories[1].take_committed(tokens[row : row + 1], hidden[row : row + 1], row)
            if row < rows - 1:
                levels(memories[1].root_state(Root(following[row], row + 1, hidden[row])), drafted)
        expected = reference(head, hidden[:rows], following[:rows], drafted)
        for memory in memories:
            state = memory.root_state(Root(following[rows - 1], rows, hidden[rows - 1]))
            np.testing.assert_allclose(levels(state, drafted), expected, atol=2e-4)


@pytest.mark.parametrize("case", share(SEVERAL, 5))
def test_beams_do_not_see_each_other(case: str, tmp_path: Path) -> None:
    """Also further down than there are layers."""
    head = loaded_layers(tmp_path / "layers", case, 2)
    hidden, following = text()
    memory = head.memory()
    tokens = [0, *following[:-1]]
    memory.begin_reply(tokens)
    memory.take_committed(tokens, hidden, 0)
    root = Root(following[-1], ROWS, hidden[-1])
    beams = memory.root_state(root)
    for chosen, drafted in (([0, 0, 0], [3, 7, 11]), ([2, 0, 0], [4, 5, 6]), ([1, 0, 2], [8, 9, 10])):
        beams = beams.after(mx.array(chosen), mx.array(drafted))
    for beam, chain in enumerate(([3, 5, 8], [11, 4, 9], [3, 6, 10])):
        alone = levels(memory.root_state(root), chain)[-1]
        np.testing.assert_allclose(np.array(beams.logits())[beam], alone, atol=2e-4)


@pytest.mark.parametrize(("case", "temperature"), grid(SEVERAL, [0, 0.9], one_in=10))
def test_several_layers_leave_the_text_of_plain_decoding(case: str, temperature: float, tmp_path: Path) -> None:
    """Drafts that begin ahead are the drafts that begin behind the commit, so acceptance shows rows that are wrong."""
    model = golden_target(case)
    drafters = HeadModel(model, loaded_layers(tmp_path / "layers", case, 2))
    request = ask(temperature=temperature, max_tokens=10, seed=2)
    for shape in (TREE, CHAIN):
        drafted_by_beams(drafters, model, request, shape)


def test_a_further_layer_without_a_part_is_refused_by_name(tmp_path: Path) -> None:
    model = golden_target("glm4_moe")
    folder = several(tmp_path / "layers", "glm4_moe", 2, left_out="layers.5.hnorm.weight")
    with pytest.raises(ModelError, match="its MTP layer 2 has no hnorm"):
        check_drafter(folder, model)
