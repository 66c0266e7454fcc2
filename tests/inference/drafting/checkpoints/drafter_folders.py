"""Drafters on disk, ours and Apple's, and a target that has files, for small models."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten

from rdchat.errors import ModelError
from rdchat.inference.drafting.checkpoints.checkpoint import write_drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import StoredDrafter
from tests.time_limits import at_most

_COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = HeadConfig(hidden_size=32, draft_vocabulary_size=5, exit_size=32, state_size=32)


def with_files(model: LoadedModel, folder: Path, tokenizer: str) -> LoadedModel:
    """Write a model's weights and a tokenizer file; return the model as loaded from there."""
    folder.mkdir()
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.network.parameters())))
    (folder / "tokenizer.json").write_text(tokenizer)
    return replace(model, info=replace(model.info, path=folder))


def stored(target: LoadedModel, config: HeadConfig = CONFIG) -> StoredDrafter:
    """Return a drafter of five tokens with random weights, made for the target."""
    vocabulary = mx.array([1, 4, 9, 16, 25], mx.int32)
    return StoredDrafter(RecurrentHead(config), vocabulary, TargetBinding.for_model(target.info))


def saved_random_drafter(target: LoadedModel, folder: Path, hidden_size: int) -> Path:
    """Write a drafter of the target's whole vocabulary, with random weights, made for the target."""
    size = target.info.vocabulary_size
    mx.random.seed(1)
    head = RecurrentHead(HeadConfig(hidden_size, size, exit_size=16, state_size=16))
    write_drafter(folder, StoredDrafter(head, mx.arange(size), TargetBinding.for_model(target.info)).written(), "card")
    return folder


def apple_checkpoint(
    folder: Path, hidden: int, inner: int, blocks: int, rnn: bool, vocabulary: int
) -> dict[str, mx.array]:
    """Write a checkpoint of ml-recurrent-drafter's layout: the names and shapes of its PyTorch module."""
    mx.random.seed(5)
    shapes = {
        f"lm_head.{i}.linear.{part}": (inner, inner)[: 2 - (part == "bias")]
        for i in range(blocks)
        for part in ("weight", "bias")
    }
    shapes[f"lm_head.{blocks}.weight"] = (vocabulary, inner)
    if inner != 2 * hidden:
        shapes |= {"input_proj.weight": (inner, 2 * hidden), "input_proj.bias": (inner,)}
    if rnn:
        shapes |= {"rnn_u.weight": (hidden, hidden), "rnn_u.bias": (hidden,), "rnn_w.weight": (hidden, hidden)}
    tensors = {name: 0.2 * mx.random.normal(shape) for name, shape in shapes.items()}
    folder.mkdir()
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    sizes = {"hidden_size": hidden, "exit_dim": inner, "num_draft_layers": blocks, "vocab_size": vocabulary}
    (folder / "config.json").write_text(json.dumps({"model_type": "recurrent_drafting_drafter", "rnn": rnn, **sizes}))
    return tensors


def change(folder: Path, part: str | None = None, /, **changes: Any) -> None:
    """Change settings of a drafter's configuration, or of a part of it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    (config[part] if part else config).update(changes)
    path.write_text(json.dumps(config))


def refused(folder: Path, model: LoadedModel, words: str, load: Callable[..., object] = load_drafter) -> ModelError:
    """Check that a drafter is refused, soon and in few words; return the error."""
    with at_most(60), pytest.raises(ModelError, match=words) as caught:
        load(folder, model)
    assert len(str(caught.value)) < 500
    return caught.value


def edit_tensors(folder: Path, edit: Callable[[dict[str, mx.array]], object]) -> None:
    """Change a drafter's tensors in place."""
    path = str(folder / "model.safetensors")
    tensors = dict(mx.load(path))
    mx.eval(tensors)
    edit(tensors)
    mx.save_safetensors(path, tensors)


def change_tensors(folder: Path, **changes: mx.array | None) -> None:
    """Replace tensors by name, with `__` for a dot; None removes one."""
    named = {name.replace("__", "."): tensor for name, tensor in changes.items()}
    gone = {name for name, tensor in named.items() if tensor is None}

    def edit(tensors: dict[str, Any]) -> None:
        tensors |= named
        for name in gone:
            del tensors[name]

    edit_tensors(folder, edit)


def hub_snapshot(cache: Path, name: str) -> Path:
    """Return the folder of a repository's snapshot in the hub's cache, which is not there yet."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(_COMMIT)
    (repository / "snapshots").mkdir()
    return repository / "snapshots" / _COMMIT
