"""Plans the download of a model's MTP layers from the repository of its original.

Quantised versions rarely have these layers, which the model's authors trained with it to draft. The plan is made from
headers; `hub.downloads` fetches the byte ranges.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError
from rdchat.files.foreign_files import read_bytes, readable_entries
from rdchat.files.sizes import size_text
from rdchat.hub.cache_layout import CachedRepository, drafter_folder
from rdchat.hub.downloads.download_record import DrafterPlan, unfinished_drafters
from rdchat.hub.hub_api import HubApi
from rdchat.hub.hub_errors import AccessRefusedError, HubError, MissingError
from rdchat.hub.hub_model import HubModel
from rdchat.hub.known_files import FilePart, HubFile, RepositoryFiles
from rdchat.hub.names import is_repository
from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.models.model_config import LAYER_KEYS, read_config, text_config
from rdchat.inference.models.model_files import BINDING, TargetBinding, target_hash
from rdchat.inference.models.model_locations import hub_name
from rdchat.inference.models.mtp_families import FLOAT8, FLOAT8_FAMILIES, SCALES, unreadable
from rdchat.inference.models.mtp_tensors import BARE, OTHER_HINT, HubTensor, find_tensors, is_mtp
from rdchat.inference.models.safetensors_file import header_bytes, read_headers, weight_files

_CONFIG, _CARD = "config.json", "README.md"
# Spaces and tabs only: with line ends too, a card with many takes time by their square, and `re` holds Python's lock.
_BASE = re.compile(
    r"^base_model:[ \t]*(?:\r?\n[ \t]*-[ \t]*)?[\"']?([\w.-]+/[\w.-]+)[\"']?[ \t]*\r?$", re.MULTILINE | re.ASCII
)
_RELATION = re.compile(r"^base_model_relation:[ \t]*(\w+)", re.MULTILINE | re.ASCII)
_MAX_CARD_BYTES = _MAX_CONFIG_BYTES = 2**20
# Characters at a card's beginning that can name the original.
_MAX_FACTS = 2**14
# Types of floats and their bytes.
_FLOATS = {"BF16": 2, "F16": 2, "F32": 4}
_SAME_SIZES = (
    "hidden_size", "vocab_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size",
    "moe_intermediate_size", "num_experts", "n_routed_experts", *LAYER_KEYS,
)  # fmt: skip
# In hidden sizes, of tensors whose names are the same in several families.
_SHAPES = (
    (re.compile(r"(?:^|\.)(?:fc|eh_proj|input_proj|mtp_linear_proj(?:\.\d+)?)\.weight"), (1, 2)),
    (re.compile(r"(?:^|\.)(?:pre_fc_norm_\w+|[eh]norm|(?:token|hidden|input|post_attention)_layernorm)\.weight"), (1,)),
)


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

    def folder_for(self, original: str = "") -> CachedRepository:
        """Return where its MTP layers go, among rdchat's drafters; `original` may be unknown."""
        name = (
            re.sub(r"[^\w.-]", "-", self.binding.name.rpartition("/")[2], flags=re.ASCII).strip(".-")[:100] or "model"
        )
        return drafter_folder(original, f"{name}-mtp-{self.binding.hash[:6]}")


def find_layers(api: HubApi, model: ModelCard, original: str = "") -> DrafterPlan | None:
    """Return the plan of an unfinished download, or a new one; None if the hub does not know the model's original.

    Args:
        api: The hub.
        model: The model that lacks the layers.
        original: The hub id of its original; empty to find it.

    Raises:
        ModelError: If the model cannot be read, or has its layers already.
        NetworkError: If the hub cannot be reached or refuses, or has none that fit the model.
    """
    target = MtpTarget.of(model)
    saved = None if original else saved_plan(target)
    named = original or ("" if saved else find_original(api, target))
    return saved or (plan_mtp(api, target, named) if named else None)


def saved_plan(target: MtpTarget) -> DrafterPlan | None:
    """Return the plan of an unfinished download; None without one."""
    folder = target.folder_for().folder
    plans = (DrafterPlan(repository, record, is_saved=True) for repository, record in unfinished_drafters())
    return next((plan for plan in plans if plan.repository.folder == folder), None)


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


def plan_mtp(api: HubApi, target: MtpTarget, original: str) -> DrafterPlan:
    """Find the MTP layers in a repository, and check them by the headers of its files.

    Args:
        api: The hub.
        target: The model that they are for.
        original: The hub id of the model's original.

    Raises:
        NetworkError: If the hub cannot be reached or refuses, or the repository has none that fit the model.
        ModelError: If they are here already.
    """
    if (repository := target.folder_for(original)).is_complete:
        raise ModelError(
            f"The MTP layers for {target.binding.name} are in {repository.folder}.", "There is nothing to get."
        )
    model = api.look_at(original)
    if _CONFIG not in {file.name for file in model.files}:
        raise HubError(f"{original} has no {_CONFIG}.", OTHER_HINT)
    config = api.document(original, model.commit, _CONFIG)
    if not isinstance(config, dict):
        raise HubError(f"The configuration of {original} is damaged.", OTHER_HINT)
    _check_same(target, original, config)
    tensors = find_tensors(api, model, config)
    _check_tensors(original, tensors, {**text_config(target.config), **text_config(config)})
    files = _files(target, model, config, tensors)
    if files.files[-1].size > _MAX_CONFIG_BYTES:
        raise HubError(f"The configuration of {original} is too long.", OTHER_HINT)
    return DrafterPlan(repository, files)


def _check_same(target: MtpTarget, original: str, config: Mapping[str, Any]) -> None:
    """Check that a repository's model is the target's, by kind and sizes."""
    ours, theirs, name = text_config(target.config), text_config(config), target.binding.name
    kinds, others = _kinds(target.config), _kinds(config)
    if kinds.isdisjoint(others):
        kind, other = (min(each, default="")[:50] or "nameless" for each in (kinds, others))
        raise HubError(f"{original} has a {other} model, and {name} is a {kind} model.", OTHER_HINT)
    for key in _SAME_SIZES:
        size, own = ours.get(key), theirs.get(key)
        if type(size) is int and type(own) is int and size != own:
            text = f"{original} has another {key} than {name}: {str(own)[:20]} instead of {size}."
            raise HubError(text, OTHER_HINT)


def _kinds(config: Mapping[str, Any]) -> set[str]:
    """Return a model's types, in and outside of the part for the language model."""
    types = (config.get("model_type"), text_config(config).get("model_type"))
    return {each.removesuffix(BARE).removesuffix("_text") for each in types if isinstance(each, str) and each}


def _check_tensors(original: str, tensors: list[HubTensor], config: Mapping[str, Any]) -> None:
    """Check types and shapes of the tensors against the configuration of the language model."""
    if not tensors:
        raise HubError(f"{original} has no MTP layers.", OTHER_HINT)
    names, width = {each.name for each in tensors}, config.get("hidden_size")
    for each in tensors:
        dtype, shape = each.stored.dtype, each.stored.shape
        if dtype == FLOAT8 and f"{each.name}{SCALES}" in names and _kinds(config) & FLOAT8_FAMILIES:
            continue
        if dtype not in _FLOATS:
            text = f"{original} stores its MTP layers as {dtype[:20]}, which rdchat cannot convert."
            raise HubError(text, "Name a repository of the original model with 16-bit floats, as ORG/NAME.")
        sizes = next((sizes for pattern, sizes in _SHAPES if pattern.search(each.name)), None)
        expected = tuple(width * size for size in sizes) if sizes and type(width) is int else shape
        if shape != expected:
            text = f"The tensor {each.name[:100]} of {original} has the shape {shape} instead of {expected}."
            raise HubError(text, OTHER_HINT)


def _files(target: MtpTarget, model: HubModel, config: Mapping[str, Any], tensors: list[HubTensor]) -> RepositoryFiles:
    """Return the drafter's files: wide types first, so that each tensor is aligned, and neighbours in one part."""
    ordered = sorted(tensors, key=lambda each: (-_FLOATS.get(each.stored.dtype, 1), each.part.name, each.part.start))
    parts: list[FilePart] = []
    for part in (each.part for each in ordered):
        if parts and (parts[-1].name, parts[-1].stop) == (part.name, part.start):
            parts[-1] = replace(parts[-1], stop=part.stop)
        else:
            parts.append(part)
    head = header_bytes({each.name: each.stored for each in ordered}, "pt")
    digests = {file.name: file.digest for file in model.files}
    sources = {part.name: {"etag": part.etag, "checksum": digests[part.name]} for part in parts}
    source = {"repository": model.repository, "commit": model.commit, "files": sources}
    bound = {**config, BINDING: {"target": asdict(target.binding), "source": source}}
    text = _card(target.binding.name, model, sources, ordered)
    source_id = model.repository, model.commit
    made = (
        HubFile.made("model.safetensors", head, tuple(parts), *source_id),
        # A licence may have half a letter.
        HubFile.made("card.md", text.encode("utf-8", "replace"), (), *source_id),
        HubFile.made(_CONFIG, json.dumps(bound, indent=2).encode(), (), *source_id),
    )
    return RepositoryFiles(*source_id, model.commit, made, is_model=False)


def _card(name: str, model: HubModel, files: Mapping[str, Mapping[str, str]], tensors: list[HubTensor]) -> str:
    """Return the drafter's card, in Markdown."""
    types = ", ".join(sorted({each.stored.dtype for each in tensors}))
    size = size_text(sum(each.stored.stored_bytes for each in tensors))
    rows = [f"| {file} | {source['etag'] or 'none'} | {source['checksum']} |" for file, source in files.items()]
    return "\n".join(
        [
            f"# MTP layers for {name}",
            "",
            f"The multi-token-prediction layers of {model.repository}, which the model's authors trained with it: "
            f"{len(tensors)} tensors, {size}, as published ({types}), not quantised. Copies of the model's token "
            "tables are left out.",
            "",
            f"Repository: {model.repository}, commit {model.commit}. Licence: {model.licence or 'see there'}.",
            "",
            "| Taken from | ETag | Checksum of the whole file, as the hub lists it |",
            "|---|---|---|",
            *rows,
            "",
            "The hub has checksums of whole files only. These are parts of files, so they could not be checked against "
            "one; names, types, shapes, sizes and ETags were checked.",
            "",
        ]
    )
