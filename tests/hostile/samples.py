"""The good files that the corpus copies and harms, made once: `python -m tests.hostile.samples`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "hostile"
_REVISION = "2"  # raise it when the samples change
HEADS = ("dflash", "dspark", "eagle3")
FAMILIES = ("qwen3_moe", "gemma3", "mamba2", "deepseek_v3", "gpt_oss", "qwen3_next")


def samples() -> Path:
    """Return the folder of the samples: `model`, `drafter`, and one for each of `HEADS` and `FAMILIES`.

    They are made in a process of their own, as that needs MLX and the caller may not.
    """
    place = BUILD / "samples"
    stamp = place / "revision"
    if not stamp.exists() or stamp.read_text() != _REVISION:
        draft = BUILD / f"samples-{os.getpid()}"
        draft.mkdir(parents=True)
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        subprocess.run([sys.executable, "-m", "tests.hostile.samples", draft], check=True, cwd=ROOT, env=environment)
        (draft / "revision").write_text(_REVISION)
        shutil.rmtree(place, ignore_errors=True)
        draft.rename(place)  # whole, or not at all
    return place


def copy_of(name: str, folder: Path) -> Path:
    """Copy a sample folder or file into `folder`; return the copy."""
    source = samples() / name
    target = folder / name
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return target


def _make(place: Path) -> None:
    import rdchat.inference.blas  # noqa: F401  it picks the fast BLAS, so it goes first
    from rdchat.inference.models.default_conversion import convert
    from tests.inference.gguf_samples import write_gguf

    (place / "model").mkdir()
    convert(write_gguf(place / "small.gguf"), place / "model", lambda _progress: None)
    _make_drafter(place / "drafter", place / "model")
    _make_heads(place)
    for name in FAMILIES:
        _make_family(place / name, name, place / "model")


def _make_drafter(folder: Path, model: Path) -> None:
    import mlx.core as mx

    from rdchat.inference.drafting.checkpoints.checkpoint import write_drafter
    from rdchat.inference.drafting.checkpoints.recurrent_layout import published
    from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
    from rdchat.inference.models.model_files import TargetBinding
    from rdchat.inference.models.safetensors_file import target_hash

    mx.random.seed(5)
    head = RecurrentHead(HeadConfig(hidden_size=256, draft_vocabulary_size=64, exit_size=256, state_size=32))
    binding = TargetBinding(model.name, "llama", target_hash(model))
    write_drafter(folder, published(head, mx.arange(64), binding), "A drafter of random weights.\n")


def _make_heads(place: Path) -> None:
    """Write published drafters of the other kinds, with random weights, for the model."""
    from rdchat.inference.drafting.heads.block_network import Markov
    from rdchat.inference.loading import load_model
    from tests.inference.drafting.heads.block_drafters import written_block
    from tests.inference.drafting.heads.eagle3_drafters import eagle3_folder

    model = load_model(place / "model")
    written_block(place / "dflash", model)
    written_block(place / "dspark", model, markov=Markov.GATED)
    eagle3_folder(place / "eagle3", model)


def _make_family(folder: Path, name: str, tokenizer_of: Path) -> None:
    """Write a small model of another family, with the llama sample's tokenizer."""
    import mlx.core as mx
    from mlx.utils import tree_flatten

    from tests.inference.families import CHAINS, COMMON, TREES, network_of

    model_type, options = (TREES | CHAINS)[name]
    network = network_of(model_type, options)
    folder.mkdir()
    config = COMMON | {"model_type": model_type} | options
    (folder / "config.json").write_text(json.dumps(config))
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(network.parameters())), {"format": "mlx"})
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(tokenizer_of / file, folder / file)


if __name__ == "__main__":
    _make(Path(sys.argv[1]))
