"""EAGLE-3 against the reference implementations: logits that `scripts/golden_eagle3.py` had them compute."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.eagle3_layout import matches
from rdchat.inference.drafting.heads.head import HeadState
from rdchat.inference.models.safetensors_file import read_header
from rdchat.inference.verification.target import LoadedModel
from tests.inference.drafting.checkpoints.eagle3_folders import golden_folders
from tests.inference.drafting.heads.golden_heads import GoldenHead
from tests.inference.fakes import loaded
from tests.inference.families import network_of

WIDTH = 32  # of the target that the reference's weights are for
VOCABULARY = 48
DEPTH = 12
CASES = golden_folders()


@cache
def target() -> LoadedModel:
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": DEPTH, "vocab_size": VOCABULARY, "intermediate_size": 8}
    model = loaded(network_of("llama", sizes))
    return replace(model, info=replace(model.info, vocabulary_size=VOCABULARY))


class Golden(GoldenHead):
    """One case: the drafter bound to a target of its sizes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(load_drafter(folder, target()), folder, "features", 1e-4)

    def assert_same(self, state: HeadState, name: str, rows: slice) -> None:
        super().assert_same(state, name, rows)
        best, found = (np.argsort(-logits, axis=-1)[:, :3]
                       for logits in (self.expected[name][rows], np.array(state.logits())))  # fmt: skip
        assert np.array_equal(found, best)


@pytest.fixture(params=CASES, ids=lambda folder: folder.name)
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


def test_there_is_a_case_of_each_layout() -> None:
    names = {folder.name for folder in CASES}
    assert {"eagle3_safeailab", "eagle3_deepspec", "eagle3_speculators_llama"} <= names


@pytest.mark.across_rows
def test_each_row_of_a_prompt_has_the_references_logits(golden: Golden) -> None:
    golden.assert_each_row()


@pytest.mark.across_rows
def test_rows_that_come_one_by_one_are_those_that_come_at_once(golden: Golden) -> None:
    golden.assert_rows_one_by_one()


@pytest.mark.across_rows
def test_a_chain_has_the_references_logits(golden: Golden) -> None:
    golden.assert_chain()


@pytest.mark.across_rows
def test_a_tree_has_the_references_logits(golden: Golden) -> None:
    golden.assert_tree()


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
