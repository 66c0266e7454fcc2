"""What the references give on tiny random weights; `scripts/golden_block.py` wrote it with their own code."""

from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.heads.block_head import BoundBlockHead
from rdchat.inference.drafting.heads.head import Root
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.fakes import loaded
from tests.inference.families import network_of

GOLDEN = Path(__file__).parents[2] / "golden"
FILES = sorted(path.stem for path in GOLDEN.glob("block_*.safetensors"))

pytestmark = pytest.mark.across_rows


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
