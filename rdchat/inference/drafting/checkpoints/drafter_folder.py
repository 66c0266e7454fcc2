"""Drafters on disk, of whatever layout: opened, checked against a target, and read."""

from pathlib import Path
from typing import Any

from rdchat.errors import ModelError
from rdchat.files.atomic_file import temporary_of
from rdchat.files.foreign_files import read_json
from rdchat.inference.api.drafter_facts import TargetMatch
from rdchat.inference.drafting.checkpoints.checkpoint import Checkpoint, Layout, open_checkpoint
from rdchat.inference.drafting.checkpoints.drafter_files import ACCEPTANCE, BINDING, CARD, CONFIG, WEIGHTS
from rdchat.inference.drafting.checkpoints.layouts import layout_of
from rdchat.inference.drafting.checkpoints.recurrent_layout import HINT, RECURRENT, not_a_drafter
from rdchat.inference.drafting.heads.head import HeadKind, StoredHead
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.models.model_files import shown_name
from rdchat.inference.target.target import LoadedModel

_MOST_CONFIG_BYTES = 2**20


def bound_hash(folder: Path) -> str | None:
    """Return the `target_hash` of a drafter's model; None where its configuration, as Apple's, names none.

    Raises:
        ModelError: If that cannot be read.
    """
    config = _read_config(folder)
    binding = config.get(BINDING, config)
    target = binding.get("target") if isinstance(binding, dict) else None
    named = target.get("hash") if isinstance(target, dict) else None
    return named if isinstance(named, str) else None


def target_named_in(folder: Path) -> str | None:
    """Return the `target_hash` of the drafter that a folder holds, "" where it holds something else.

    None where a drafter may be written there without asking: an empty folder, or one where writing was cut short.
    """
    names = {path.name for path in folder.iterdir()}
    ours = {CONFIG, WEIGHTS, CARD, ACCEPTANCE}
    temporary = {temporary_of(folder / name).name for name in ours}
    if names - ours - temporary:
        return ""
    if CONFIG in names:
        try:
            return bound_hash(folder) or ""
        except ModelError:
            return ""
    return None if names <= temporary or temporary_of(folder / CONFIG).name in names else ""


def load_drafter(folder: Path, model: LoadedModel) -> StoredHead:
    """Read a drafter and check it against the target.

    Args:
        folder: A drafter folder of ours, a checkpoint of Apple's ml-recurrent-drafter, or one of `LAYOUTS`.
        model: The target.

    Raises:
        ModelError: If it is missing, damaged, or made for another model; the message says which and why.
    """
    form, checkpoint = _open(folder)
    _check(form, checkpoint, model)
    return form.load(checkpoint, model)


def check_drafter(folder: Path, model: LoadedModel) -> TargetMatch:
    """Check a drafter's configuration against the target; its weights are not read.

    Returns:
        How sure it is that it was made for it.

    Raises:
        ModelError: If it is missing, described wrongly, or made for another model.
    """
    return _check(*_open(folder), model)


def inspect_drafter(folder: Path) -> HeadKind:
    """Check that a drafter's configuration and the header of its weights fit together.

    Returns:
        Its kind.

    Raises:
        ModelError: If one of them is missing or damaged, or if the weights do not account for the architecture.
    """
    form, checkpoint = _open(folder)
    form.inspect(checkpoint)
    return form.kind


def _open(folder: Path) -> tuple[Layout, Checkpoint]:
    """Return a folder's layout, and what it holds."""
    config = _read_config(folder)
    recurrent = RECURRENT.matches(config, ())
    checkpoint = open_checkpoint(folder, config)
    if checkpoint is None and recurrent:
        raise ModelError(f"The drafter {shown_name(folder)} has no {WEIGHTS}.", HINT)
    form = RECURRENT if recurrent else layout_of(checkpoint) if checkpoint else None
    if checkpoint is None or form is None:
        raise not_a_drafter(folder)
    return form, checkpoint


def _check(form: Layout, checkpoint: Checkpoint, model: LoadedModel) -> TargetMatch:
    """Check a drafter against a target; one that we trained names its own."""
    form.inspect(checkpoint)
    config, bound = checkpoint.config, "format" in checkpoint.config or BINDING in checkpoint.config
    if bound:
        _check_binding(checkpoint.folder, config.get(BINDING, config), model)
    fit = form.check(checkpoint, model)
    return TargetMatch(True) if bound else fit


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.exists() and not path.is_symlink():
        raise ModelError(f"There is no drafter at {folder}: it has no {CONFIG}.", HINT)
    config = read_json(path, HINT, _MOST_CONFIG_BYTES)
    if not isinstance(config, dict):
        raise ModelError(f"{path} is damaged: it describes no drafter.", HINT)
    return config


def _check_binding(folder: Path, config: Any, model: LoadedModel) -> TargetBinding:
    try:
        binding = TargetBinding(**config["target"])
    except (KeyError, TypeError) as error:
        raise ModelError(f"{folder / CONFIG} does not say which model the drafter is for.", HINT) from error
    if not all(isinstance(text, str) for text in (binding.name, binding.architecture, binding.hash)):
        raise ModelError(f"{folder / CONFIG} does not say which model the drafter is for.", HINT)
    own = TargetBinding.of(model.info)
    if binding.hash != own.hash:
        other = "other weights of that name" if binding.name == own.name else f"the model {binding.name[:100]}"
        raise ModelError(
            f"The drafter {shown_name(folder)} was trained for {other}, not for the loaded {own.name}.", HINT
        )
    return binding
