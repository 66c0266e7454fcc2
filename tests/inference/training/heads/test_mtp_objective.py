"""MTP layers in training compute what they compute in drafting, and are stored under published names."""

import json
from dataclasses import replace
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_map

from rdchat.errors import ModelError
from rdchat.inference.api.model_facts import HeadKind
from rdchat.inference.api.training import TrainedKind
from rdchat.inference.drafting.checkpoints.drafter_files import write_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import check_drafter, inspect_drafter, load_drafter
from rdchat.inference.drafting.checkpoints.mtp_layout import check_trainable
from rdchat.inference.drafting.heads.head import Root
from rdchat.inference.drafting.heads.mtp_head import BoundMtpHead, Reading
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.target.target import LoadedModel
from tests.inference.drafting.drafter_folders import with_files
from tests.inference.fakes import shared_family, shared_llama, tiny_llama
from tests.inference.training.heads.sequence_task import prepared, recipe_of


@pytest.fixture
def model(tmp_path: Path) -> LoadedModel:
    found = with_files(tiny_llama(), tmp_path / "model", "{}")
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "vocab_size": found.info.vocabulary_size}
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "llama", **sizes}))
    return found


@pytest.mark.across_rows
def test_logits_in_training_are_those_of_the_stored_layer_in_drafting(model: LoadedModel, tmp_path: Path) -> None:
    """Below every place: positions, masks and recycled states are the same, and so is the layout that is read."""
    trained = prepared(TrainedKind.MTP, model, recipe_of(TrainedKind.MTP, dropout=0.0, question_tokens=4))
    mx.random.seed(5)
    shaken = tree_map(lambda array: array + 0.2 * mx.random.normal(array.shape), trained.network.parameters())
    trained.network.update(shaken)
    trained.network.eval()
    sample = trained.held_out[0]
    roots, steps = sample.roots()[:-5], trained.recipe.steps
    features = trained.features(sample, roots)
    write_drafter(tmp_path / "out", trained.published().bound_to(TargetBinding.of(model.info)), "")
    bound = load_drafter(tmp_path / "out", model).bind(model)
    assert isinstance(bound, BoundMtpHead)
    bound.read_as(Reading(before_norm=True))
    tokens, hidden = sample.tokens.tolist(), mx.array(sample.features).astype(mx.float32)
    memory = bound.memory()
    memory.begin([0] * sample.position + tokens[: roots[0]])
    memory.take(tokens[: roots[0]], hidden[: roots[0]], sample.position)
    rows = trained.target.embeddings.output()
    for place, root in enumerate(roots.tolist()):
        state = memory.state(Root(tokens[root], sample.position + root, hidden[root - 1]))
        for step in range(steps):
            found, wanted = np.array(state.logits())[0], np.array(rows(features[place, step]))
            np.testing.assert_allclose(found, wanted, atol=2e-4)
            state = state.after(mx.array([0]), mx.array([tokens[root + 1 + step]]))
        memory.take([tokens[root]], hidden[root : root + 1], sample.position + root)


def test_what_is_stored_has_published_names_and_knows_its_target(model: LoadedModel, tmp_path: Path) -> None:
    trained = prepared(TrainedKind.MTP, model, recipe_of(TrainedKind.MTP))
    write_drafter(tmp_path / "out", trained.drafter(TargetBinding.of(model.info)), "")
    assert inspect_drafter(tmp_path / "out") is HeadKind.MTP
    assert check_drafter(tmp_path / "out", model).sure
    tensors = mx.load(str(tmp_path / "out" / "model.safetensors"))
    assert isinstance(tensors, dict)
    parts = ("eh_proj", "enorm", "hnorm", "shared_head.norm", "self_attn.q_proj", "mlp.down_proj", "input_layernorm")
    assert {f"model.layers.2.{part}.weight" for part in parts} < tensors.keys()
    assert {tensor.dtype for tensor in tensors.values()} == {mx.float16}


def test_targets_for_which_a_layer_could_not_be_read_are_refused() -> None:
    model = shared_llama()
    with pytest.raises(ModelError, match="No MTP layer can be trained for a model of the type gemma3"):
        check_trainable(replace(model, info=replace(model.info, architecture="gemma3")))
    with pytest.raises(ModelError, match="tiny has no layer that attends to all of the text"):
        check_trainable(shared_family("mamba2"))
