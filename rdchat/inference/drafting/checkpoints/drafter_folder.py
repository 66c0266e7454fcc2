"""Opens a drafter's folder, whatever its layout, checks it against a target, and reads it (`load_drafter`).

`_open` recognises the layout by the contents. `_check` then decides by the binding, where rdchat trained the drafter,
and else by sizes and names: these cannot prove that it was made for the target, so the result says how sure it is.
"""

from pathlib import Path
from typing import Any

from rdchat.errors import ModelError
from rdchat.files import plain, read_object, temporary_of
from rdchat.inference.api import TargetMatch
from rdchat.inference.drafting.checkpoints.assistant_layout import ASSISTANT
from rdchat.inference.drafting.checkpoints.block_layout import BLOCK
from rdchat.inference.drafting.checkpoints.checkpoint import (
    CARD,
    CONFIG,
    HINT,
    OTHER_HINT,
    WEIGHTS,
    Checkpoint,
    Layout,
    not_a_drafter,
    open_checkpoint,
)
from rdchat.inference.drafting.checkpoints.eagle3_layout import EAGLE3
from rdchat.inference.drafting.checkpoints.head_settings import Settings
from rdchat.inference.drafting.checkpoints.mtp_layout import MTP, open_mtp
from rdchat.inference.drafting.checkpoints.recurrent_layout import RECURRENT
from rdchat.inference.drafting.heads.assistant_head import AssistantConfig
from rdchat.inference.drafting.heads.decoder import DecoderConfig
from rdchat.inference.drafting.heads.head import Head, HeadKind
from rdchat.inference.drafting.heads.mtp_head import MtpConfig
from rdchat.inference.models.model_files import BINDING, TargetBinding, folder_label, paired_drafter
from rdchat.inference.verification import LoadedModel, TargetEmbeddings

# MTP layers are recognised by their tensors before these.
LAYOUTS: tuple[Layout, ...] = (RECURRENT, BLOCK, EAGLE3, ASSISTANT)
MAX_CONFIG_BYTES = 2**20


def bound_hash(folder: Path) -> str | None:
    """Return the `target_hash` of the model that a drafter is for; None where its configuration (as Apple's) has none.

    The binding is the configuration itself in our recurrent drafters, and under the key `BINDING` in other layouts.

    Raises:
        ModelError: If the configuration cannot be read.
    """
    config = _read_config(folder)
    binding = config.get(BINDING, config)
    target = binding.get("target") if isinstance(binding, dict) else None
    named = target.get("hash") if isinstance(target, dict) else None
    return named if isinstance(named, str) else None


def target_named_in(folder: Path) -> str | None:
    """Return the `target_hash` of the drafter in a folder; "" where the folder holds something else.

    None means that a drafter may be written there: the folder is empty, or writing was interrupted there.
    """
    names = {path.name for path in folder.iterdir()}
    ours = {CONFIG, WEIGHTS, CARD}
    temporary = {temporary_of(folder / name).name for name in ours}
    if names - ours - temporary:
        return ""
    if CONFIG in names:
        try:
            return bound_hash(folder) or ""
        except ModelError:
            return ""
    # `write_drafter` writes the configuration to a temporary file first, and puts it in its place last. While that file
    # is there, the weights and the card may be in their places already.
    return None if names <= temporary or temporary_of(folder / CONFIG).name in names else ""


def load_drafter(folder: Path, model: LoadedModel) -> Head:
    """Read a drafter, check it against the target, and bind it.

    Args:
        folder: A folder of one of our drafters, of Apple's ml-recurrent-drafter, or of one of `LAYOUTS`.
        model: The target.

    Raises:
        ModelError: If it is missing, damaged, or made for another model; the message names it, and the reason.
    """
    layout, checkpoint = _open(folder)
    config, _ = _check(layout, checkpoint, model)
    return layout.load(checkpoint, config, model)


def check_drafter(folder: Path, model: LoadedModel) -> TargetMatch:
    """Check a drafter's configuration against the target; its weights are not read.

    Returns:
        How sure it is that the drafter was made for the target.

    Raises:
        ModelError: If it is missing, has a wrong configuration, or was made for another model.
    """
    return _check(*_open(folder), model)[1]


def inspect_drafter(folder: Path) -> HeadKind:
    """Check that a drafter's configuration and the headers of its weights fit together; see `drafter_config`.

    Returns:
        Its kind.
    """
    return drafter_config(folder)[0]


def drafter_config(folder: Path) -> tuple[HeadKind, Any]:
    """Return a drafter's kind and its configuration, whose class depends on the kind.

    Raises:
        ModelError: If one of its files is missing or damaged, or the weights do not fit the configuration.
    """
    layout, checkpoint = _open(folder)
    return layout.kind, layout.config(checkpoint, None)


def _open(folder: Path) -> tuple[Layout, Checkpoint]:
    """Return a folder's layout, recognised by its contents, and the opened checkpoint.

    MTP layers come first, then the first of `LAYOUTS` that matches. A folder without weights is an error: that they are
    missing, if the configuration is a recurrent drafter's, and otherwise that it holds no drafter.
    """
    config = _read_config(folder)
    if (mtp_layers := open_mtp(folder, config)) is not None:
        return MTP, mtp_layers
    checkpoint = open_checkpoint(folder, config)
    if checkpoint is None and RECURRENT.matches(config, ()):
        raise ModelError(f"The drafter {folder_label(folder)} has no {WEIGHTS}.", HINT)
    names = checkpoint.tensors.keys() if checkpoint else ()
    layout = next((layout for layout in LAYOUTS if layout.matches(config, names)), None)
    if checkpoint is None or layout is None:
        raise not_a_drafter(folder)
    return layout, checkpoint


def _check(layout: Layout, checkpoint: Checkpoint, model: LoadedModel) -> tuple[Any, TargetMatch]:
    """Check a drafter against a target; return its configuration and the match.

    A binding is checked by its hash, and sizes are checked in any case. The match is sure with a binding, for MTP
    layers in the target's own folder, and for the drafter that rdchat suggests; otherwise it says what fits.
    """
    if not model.hooks.gives_states:
        raise checkpoint.error(f"{model.info.name} does not provide the hidden states that a drafter reads", OTHER_HINT)
    depth = len(getattr(model.network, "layers", ()))
    needs = layout.config(checkpoint, depth)
    config = checkpoint.config
    bound = "format" in config or BINDING in config
    if bound:
        _check_binding(checkpoint.folder, config.get(BINDING, config), model)
    if layout is not RECURRENT:
        fit = _fit(checkpoint, needs, model, depth)
    elif needs.draft_vocabulary_size > model.info.vocabulary_size:
        raise checkpoint.error(f"it proposes tokens that {model.info.name} does not have")
    else:
        fit = _name_fit(None, model.info.name)
    target = model.info.path
    own = layout is MTP and checkpoint.folder.resolve() == target.resolve()
    return needs, TargetMatch(True) if bound or own or paired_drafter(target) == checkpoint.folder else fit


def _fit(
    checkpoint: Checkpoint, needs: DecoderConfig | MtpConfig | AssistantConfig, model: LoadedModel, depth: int
) -> TargetMatch:
    """Check a published drafter's sizes against a target, and return how sure it is that they belong together.

    Raises:
        ModelError: If it was made for another one.
    """
    info = model.info
    width = TargetEmbeddings(model.network, info.vocabulary_size).width
    differing = [
        (needs.target_width, width, "hidden states of width {:,}"),
        (needs.vocabulary_size, info.vocabulary_size, "{:,} tokens"),
        (needs.target_depth or depth, depth, "{:,} layers"),
    ]
    for needed, actual, what in differing:
        if needed != actual:
            reason = f"it needs a model with {what.format(needed)}, but {info.name} has {actual:,}"
            raise checkpoint.error(reason, OTHER_HINT)
    if not all(0 <= layer < depth for layer in needs.target_layers):
        raise checkpoint.error(
            f"it reads the layers {list(needs.target_layers)[:20]}, but {info.name} has {depth}", OTHER_HINT
        )
    named = Settings(checkpoint, checkpoint.config).named_target
    kind = checkpoint.config.get("target_model_type")
    if not named and isinstance(kind, str) and kind and kind != info.architecture:
        return TargetMatch(False, f"It was made for a {kind[:100]} model; its sizes fit {info.name} as well.")
    return _name_fit(named, info.name)


def _name_fit(named: str | None, name: str) -> TargetMatch:
    """Compare the target's name with the name in the drafter's configuration.

    Names are vague: `Qwen/Qwen3-4B` fits `mlx-community/Qwen3-4B-4bit`, but also `Qwen3-4B-Instruct-2507`, another
    model.
    """
    if not named:
        return TargetMatch(False, f"It does not say which model it is for; its sizes fit {name}.")
    target_name = named.rstrip("/").rsplit("/", 1)[-1].lower()
    fits = bool(target_name) and name.rsplit("/", 1)[-1].lower().startswith(target_name)
    verdict = f"name and sizes fit {name}" if fits else f"its sizes fit {name} as well"
    return TargetMatch(False, f"It was made for {named[:100]}; {verdict}.")


def _read_config(folder: Path) -> dict[str, Any]:
    """Return a drafter's configuration."""
    path = folder / CONFIG
    if not path.exists(follow_symlinks=False):
        raise ModelError(f"There is no drafter at {folder}: it has no {CONFIG}.", HINT)
    return read_object(path, HINT, MAX_CONFIG_BYTES)


def _check_binding(folder: Path, config: Any, model: LoadedModel) -> None:
    """Raise ModelError unless a drafter that rdchat trained was trained for the target."""
    try:
        binding = plain(TargetBinding, config["target"])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(f"{folder / CONFIG} does not say which model the drafter is for.", HINT) from error
    own = TargetBinding.for_model(model.info)
    if binding.hash != own.hash:
        other = "other weights of that name" if binding.name == own.name else f"the model {binding.name[:100]}"
        raise ModelError(
            f"The drafter {folder_label(folder)} was trained for {other}, not for the loaded {own.name}.", HINT
        )
