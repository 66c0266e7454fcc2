"""EAGLE-3 against the reference implementations: logits that `scripts/golden_eagle3.py` had them compute."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt
import pytest

from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.eagle3_layout import matches
from rdchat.inference.drafting.heads.eagle3_head import BoundEagle3Head
from rdchat.inference.drafting.heads.head import HeadMemory, HeadState, Root
from rdchat.inference.models.safetensors_file import read_header
from rdchat.inference.target.target import LoadedModel
from tests.inference.drafting.eagle3.eagle3_folders import golden_folders
from tests.inference.fakes import loaded
from tests.inference.families import network_of

WIDTH, VOCABULARY, DEPTH = 32, 48, 12  # of the target that the reference's weights are for
CASES = golden_folders()


@cache
def target() -> LoadedModel:
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": DEPTH, "vocab_size": VOCABULARY, "intermediate_size": 8}
    model = loaded(network_of("llama", sizes))
    return replace(model, info=replace(model.info, vocabulary_size=VOCABULARY))


class Golden:
    """One case: the drafter bound to a target of its sizes, and what the reference computes."""

    def __init__(self, folder: Path) -> None:
        self.head: BoundEagle3Head = load_drafter(folder, target()).bind(target())
        self.expected: dict[str, npt.NDArray] = dict(np.load(folder / "expected.npz"))
        self.features = mx.array(self.expected["features"])
        self.following = self.expected["following"].tolist()

    def memory(self, rows: int) -> HeadMemory:
        """Return a memory that knows what comes before the root whose row is the last of some; 0 is the first token."""
        memory = self.head.memory()
        tokens = [0, *self.following[: rows - 1]]
        memory.begin(tokens)
        memory.take(tokens, self.features[:rows], 0)
        return memory

    def state(self, rows: int) -> HeadState:
        """Return the state of that root."""
        return self.memory(rows).state(Root(self.following[rows - 1], rows, self.features[rows - 1]))

    def assert_same(self, found: mx.array, name: str, rows: slice = slice(None)) -> None:
        wanted = self.expected[name][rows]
        np.testing.assert_allclose(np.array(found), wanted, atol=1e-4)
        best = np.argsort(-wanted, axis=-1)[:, :3]
        assert np.array_equal(np.argsort(-np.array(found), axis=-1)[:, :3], best)


@pytest.fixture(params=CASES, ids=lambda folder: folder.name)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def test_there_is_a_case_of_each_layout() -> None:
    names = {folder.name for folder in CASES}
    assert {"eagle3_safeailab", "eagle3_deepspec", "eagle3_speculators_llama"} <= names


@pytest.mark.across_rows
def test_each_row_of_a_prompt_has_the_references_logits(golden: Golden) -> None:
    for rows in range(1, len(golden.following) + 1):
        golden.assert_same(golden.state(rows).logits(), "logits", slice(rows - 1, rows))


@pytest.mark.across_rows
def test_rows_that_come_one_by_one_are_those_that_come_at_once(golden: Golden) -> None:
    memory = golden.head.memory()
    memory.begin([0])
    token = 0
    for place, following in enumerate(golden.following):
        memory.take([token], golden.features[place : place + 1], place)
        state = memory.state(Root(following, place + 1, golden.features[place]))
        golden.assert_same(state.logits(), "logits", slice(place, place + 1))
        token = following


@pytest.mark.across_rows
def test_a_chain_has_the_references_logits(golden: Golden) -> None:
    state = golden.state(len(golden.following))
    for place, token in enumerate(golden.expected.get("chain", ())):
        state = state.after(mx.array([0]), mx.array([int(token)]))
        golden.assert_same(state.logits(), "chain_logits", slice(place, place + 1))


@pytest.mark.across_rows
def test_a_tree_has_the_references_logits(golden: Golden) -> None:
    state = golden.state(len(golden.following))
    tokens, parents = (golden.expected.get(name, np.zeros(0, int)) for name in ("tree", "parents"))
    level = [-1]
    while (nodes := np.flatnonzero(np.isin(parents, level))).size:
        beams = mx.array([level.index(parents[node]) for node in nodes])
        state = state.after(beams, mx.array(tokens[nodes]))
        golden.assert_same(state.logits(), "tree_logits", slice(nodes[0], nodes[-1] + 1))
        level = nodes.tolist()
    assert not parents.size or level[-1] == len(parents) - 1, "all nodes were drafted"


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
def test_a_drafter_is_recognised_by_its_tensors(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    names = read_header(folder / "model.safetensors").keys()
    assert matches(config, names)
    assert matches({}, names)
    block = {name for name in names if "layers.0.hidden" not in name and "midlayer.hidden" not in name}
    assert not matches({"architectures": ["LlamaForCausalLMEagle3"]}, block | {"hidden_norm.weight"}), (
        "DFlash's tensors"
    )
