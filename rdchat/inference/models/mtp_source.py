"""Plans the download of a model's MTP layers from the repository of its original.

Quantised versions rarely have these layers, which the model's authors trained with it to draft. `hub.downloads` fetches
the files that hold them.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.errors import ModelError
from rdchat.files.foreign_files import read_bytes, readable_entries
from rdchat.hub.downloads.download_record import unfinished_downloads
from rdchat.hub.hub_api import HubApi
from rdchat.hub.hub_errors import AccessRefusedError, HubError, MissingError
from rdchat.hub.known_files import RepositoryFiles
from rdchat.hub.names import is_repository
from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.models.model_config import LAYER_KEYS, read_config, text_config
from rdchat.inference.models.model_files import BINDING, TargetBinding, target_hash
from rdchat.inference.models.model_locations import hub_name
from rdchat.inference.models.mtp_families import unreadable
from rdchat.inference.models.mtp_tensors import BARE, CONFIG, OTHER_HINT, files_with_layers, is_mtp
from rdchat.inference.models.safetensors_file import read_headers, weight_files

_CARD = "README.md"
# Spaces and tabs only: with line ends too, a card with many takes time by their square, and `re` holds Python's lock.
_BASE = re.compile(
    r"^base_model:[ \t]*(?:\r?\n[ \t]*-[ \t]*)?[\"']?([\w.-]+/[\w.-]+)[\"']?[ \t]*\r?$", re.MULTILINE | re.ASCII
)
_RELATION = re.compile(r"^base_model_relation:[ \t]*(\w+)", re.MULTILINE | re.ASCII)
_MAX_CARD_BYTES = 2**20
# Characters at a card's beginning that can name the original.
_MAX_FACTS = 2**14
_SAME_SIZES = (
    "hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "moe_intermediate_size", "num_experts", "n_routed_experts", *LAYER_KEYS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MtpTarget:
    """A model on this machine that lacks its MTP layers.

    Attributes:
        hub_id: Hub id of the model; empty if unknown.
    """

    binding: TargetBinding
    config: Mapping[str, Any]
    folder: Path
    hub_id: str

    @classmethod
    def of(cls, model: ModelCard) -> "MtpTarget":
        """Read a model's files.

        Raises:
            ModelError: If they cannot be read, are not MLX's, already have MTP layers, or rdchat does not know theirs.
        """
        if model.is_gguf:
            raise ModelError(f"{model.name} is a GGUF file.", "Choose an MLX version of the model.")
        config, folder = read_config(model.path), model.path
        if reason := unreadable(str(config["model_type"])):
            raise ModelError(
                f"rdchat cannot use the MTP layers of {model.name}: {reason}.", "Find or train another drafter."
            )
        if any(is_mtp(name, config) for name in read_headers(folder, weight_files(folder, readable_entries(folder)))):
            raise ModelError(f"{model.name} has MTP layers in its own files.", "There is nothing to get.")
        # The loaded model has no origin.
        hub_id = hub_name(model) or ("" if model.origin else model.name)
        binding = TargetBinding(model.name, str(config["model_type"]), target_hash(folder))
        return cls(binding, config, folder, hub_id if is_repository(hub_id) else "")

    @property
    def drafter(self) -> str:
        """Name of the folder of its MTP layers, among rdchat's drafters."""
        name = re.sub(r"[^\w.-]", "-", self.binding.name.rpartition("/")[2], flags=re.ASCII).strip(".-")[:100]
        return f"{name or 'model'}-mtp-{self.binding.hash[:6]}"


def find_layers(api: HubApi, model: ModelCard, original: str = "") -> RepositoryFiles | None:
    """Return the record of an unfinished download, or of a new one; None if the hub does not know the original.

    Args:
        api: The hub.
        model: The model that lacks the layers.
        original: The hub id of its original; empty to find it.

    Raises:
        ModelError: If the model cannot be read, or has its layers already.
        NetworkError: If the hub cannot be reached or refuses, or has none that fit the model.
    """
    target = MtpTarget.of(model)
    if not original:
        records = (record for _, record in unfinished_downloads())
        if saved := next((record for record in records if record.drafter == target.drafter), None):
            return saved
        original = find_original(api, target)
    return plan_mtp(api, target, original) if original else None


def find_original(api: HubApi, target: MtpTarget) -> str:
    """Return the hub id of the model that a target was quantised from; empty if neither hub nor card names it.

    Raises:
        NetworkError: If the hub cannot be reached.
    """
    if target.hub_id:
        # The name may only look like a hub id, or the repository was deleted.
        with suppress(MissingError, AccessRefusedError):
            if original := api.look_at(target.hub_id).quantized_from:
                return original
    try:
        card = read_bytes(target.folder / _CARD, max_size=_MAX_CARD_BYTES).decode("utf-8", "replace")
    except ModelError:
        return ""
    head = card[:_MAX_FACTS].removeprefix("---").partition("\n---")[0] if card.startswith("---") else ""
    base, relation = _BASE.search(head), _RELATION.search(head)
    is_quantized = relation[1] == "quantized" if relation else "quantization" in target.config
    return base[1] if base and is_quantized and is_repository(base[1]) else ""


def plan_mtp(api: HubApi, target: MtpTarget, original: str) -> RepositoryFiles:
    """Return the files with a model's MTP layers, with the drafter's configuration and card.

    Args:
        api: The hub.
        target: The model that they are for.
        original: The hub id of the model's original.

    Raises:
        NetworkError: If the hub cannot be reached or refuses, or the repository has none that fit the model.
        ModelError: If they are here already.
    """
    folder = paths.drafters_dir() / target.drafter
    if (folder / CONFIG).exists():
        raise ModelError(f"The MTP layers for {target.binding.name} are in {folder}.", "There is nothing to get.")
    model = api.look_at(original)
    if CONFIG not in {file.name for file in model.files}:
        raise HubError(f"{original} has no {CONFIG}.", OTHER_HINT)
    config = api.document(original, model.commit, CONFIG)
    if not isinstance(config, dict):
        raise HubError(f"The configuration of {original} is damaged.", OTHER_HINT)
    _check_same(target, original, config)
    files = files_with_layers(api, model, config)
    source = {"repository": original, "commit": model.commit, "files": {file.name: file.digest for file in files}}
    bound = {**config, BINDING: {"target": asdict(target.binding), "source": source}}
    card = (
        f"# MTP layers for {target.binding.name}\n\nThe multi-token-prediction layers of {original}, commit "
        f"{model.commit}, which the model's authors trained with it, as published. Copies of the model's token tables "
        f"are left out.\n\nLicence: {model.licence or 'see there'}.\n"
    )
    return RepositoryFiles(
        original,
        model.commit,
        model.commit,
        files,
        is_model=False,
        drafter=target.drafter,
        config=json.dumps(bound, indent=2),
        card=card,
    )


def _check_same(target: MtpTarget, original: str, config: Mapping[str, Any]) -> None:
    """Check that a repository's model is the target's, by kind and sizes."""
    ours, theirs = _facts(target.config), _facts(config)
    for key in ours.keys() & theirs.keys():
        if ours[key] != theirs[key]:
            text = f"{original} has another {key} than {target.binding.name}: {theirs[key]!r:.30}"
            raise HubError(f"{text} instead of {ours[key]!r:.30}.", OTHER_HINT)


def _facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's kind and sizes, as far as its configuration gives them."""
    text = text_config(config)
    kind = str(text.get("model_type") or config.get("model_type")).removesuffix(BARE).removesuffix("_text")
    return {"model_type": kind, **{key: text[key] for key in _SAME_SIZES if type(text.get(key)) is int}}
