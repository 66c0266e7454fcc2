"""EAGLE-3 in training computes what it computes in drafting, and its gradients are those of that."""

from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten, tree_map

from rdchat.inference.drafting.checkpoints.checkpoint import write_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import check_drafter, inspect_drafter, load_drafter
from rdchat.inference.drafting.heads.head import HeadKind, Root
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.training.heads.eagle3_objective import Eagle3Objective, Sample
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import shared_llama, tiny_llama
from tests.inference.training.heads.eagle3_task import prepared, recipe_of


def target(bits: int) -> LoadedModel:
    if not bits:
        return shared_llama()
    model = tiny_llama()
    nn.quantize(model.network, 32, bits)
    mx.eval(model.network.parameters())
    return model


def shaken(model: LoadedModel, **changes: Any) -> Eagle3Objective:
    """Return a head whose weights are all other than those of a fresh one, that drops nothing."""
    found = prepared(model, recipe_of(dropout=0.0, **changes))
    mx.random.seed(5)
    found.network.update(
        tree_map(lambda array: array + 0.2 * mx.random.normal(array.shape), found.network.parameters())
    )
    found.network.eval()
    return found


def sample_of(trained: Eagle3Objective) -> Sample:
    return trained.held_out[0]


@pytest.mark.parametrize("bits", [0, 4])
@pytest.mark.across_rows
def test_logits_in_training_are_those_of_the_stored_head_in_drafting(bits: int, tmp_path: Path) -> None:
    """Below every place: whitening is folded, positions and masks are the same, and so is the layout that is read."""
    model = target(bits)
    trained = shaken(model, question_tokens=4)
    sample = sample_of(trained)
    roots = sample.roots()[:-5]
    expected = np.array(trained.features(sample, roots) @ trained.output_rows.T)
    write_drafter(tmp_path / "out", trained.published(), "")
    bound = load_drafter(tmp_path / "out", model)
    tokens, hidden = sample.tokens.tolist(), mx.array(sample.features).astype(mx.float32)
    memory = bound.memory()
    memory.begin([0] * sample.position + tokens[: roots[0]])
    memory.take(tokens[: roots[0]], hidden[: roots[0]], sample.position)
    for place, root in enumerate(roots.tolist()):
        state = memory.state(Root(tokens[root], sample.position + root, hidden[root - 1]))
        for step in range(5):
            found = np.array(state.logits())[0]
            assert np.abs(found - expected[place, step]).max() < 2e-4, (place, step)
            state = state.after(mx.array([0]), mx.array([tokens[root + 1 + step]]))
        memory.take([tokens[root]], hidden[root : root + 1], sample.position + root)


def test_what_is_stored_has_the_published_layout_and_knows_its_target(tmp_path: Path) -> None:
    model = shared_llama()
    write_drafter(tmp_path / "out", prepared(model, recipe_of()).drafter(TargetBinding.of(model.info)), "")
    assert inspect_drafter(tmp_path / "out") is HeadKind.EAGLE3
    assert check_drafter(tmp_path / "out", model).sure
    tensors = mx.load(str(tmp_path / "out" / "model.safetensors"))
    assert isinstance(tensors, dict)
    chosen = np.flatnonzero(np.array(tensors["t2d"]))
    assert (np.array(tensors["d2t"]) + np.arange(len(chosen)) == chosen).all()
    floats = {array.dtype for name, array in tensors.items() if name not in ("d2t", "t2d")}
    assert floats == {mx.float16}
    assert any(name.startswith("midlayer.") for name in tensors)


def unrolled(trained: Eagle3Objective, sample: Sample, roots: list[int]) -> mx.array:
    """Return the features of each root's own draft, computed by itself: (roots, steps, width)."""
    network = trained.network
    layer, tokens = network.layers[0], mx.array(sample.tokens)
    scaled = trained.scaled(sample)
    found = []
    for root in roots:
        hidden, outputs, rows = network.fuse(scaled[:root]), list[mx.array](), list[mx.array]()
        embedded = trained.embed(tokens[1 : root + 1])
        for step in range(trained.recipe.steps):
            start = sample.position + (root - 1 + step if step else 0)
            taken, residual = layer.inputs(embedded, hidden)
            own = layer.self_attn.rows(taken, range(start, start + taken.shape[0]))
            rows = [mx.concatenate([*pair], axis=2) for pair in zip(rows, own, strict=True)] if rows else own
            attended = layer.self_attn(taken[-1:], [sample.position + root - 1 + step], rows, None)
            outputs.append(layer.outputs(residual[-1:], attended))
            hidden = network.carried(outputs[-1])
            embedded = trained.embed(tokens[mx.array([min(root + step + 1, len(sample.tokens) - 1)])])
        found.append(network.norm(mx.concatenate(outputs)))
    return mx.stack(found)


@pytest.mark.across_rows
def test_the_gradient_of_the_training_time_test_is_that_of_drafts_unrolled_one_by_one() -> None:
    trained = shaken(shared_llama())
    sample = sample_of(trained)
    roots = sample.roots()
    weights = mx.random.normal((len(roots), trained.recipe.steps, trained.output_rows.shape[1]))
    ours, theirs = (
        nn.value_and_grad(trained.network, lambda compute=compute: mx.sum(compute() * weights))()
        for compute in (
            partial(trained.features, sample, roots),
            partial(unrolled, trained, sample, roots.tolist()),
        )
    )
    assert ours[0].item() == pytest.approx(theirs[0].item(), rel=1e-4)
    for (name, expected), (_, found) in zip(tree_flatten(theirs[1]), tree_flatten(ours[1]), strict=True):
        assert mx.allclose(expected, found, rtol=1e-3, atol=1e-3 * float(mx.abs(expected).max())).item(), name


def test_a_row_of_a_fresh_head_attends_to_itself_first() -> None:
    """It holds the token before the drafted one."""
    network = prepared(shared_llama(), recipe_of()).network
    attention = network.layers[0].self_attn
    mx.random.seed(2)
    rows = mx.random.normal((7, 2 * network.config.hidden_size))
    scores = attention.q_proj(rows) @ attention.k_proj(rows).T
    assert mx.array_equal(mx.argmax(scores, axis=-1), mx.arange(7)).item()
