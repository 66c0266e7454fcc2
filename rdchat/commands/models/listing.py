"""`rdchat models list`: models and drafters, damaged ones and unfinished downloads too."""

import argparse
import json
import sys
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from rdchat.chat.settings_store import stored_settings
from rdchat.commands.models.table import print_table, size_words

if TYPE_CHECKING:
    from rdchat.inference.api.model_card import ModelCard


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A line of the list.

    Attributes:
        name: What `--model`, `verify` and `delete` take; of an unfinished download, its hub id.
        place: Whose folder it lies in.
        path: The model folder or GGUF file; empty for an unfinished download.
        kind: `model` or `drafter`; empty where it is not known yet.
        family: The architecture, `GGUF` for such a file, a drafter's kind; empty where it is not known yet.
        parameters: Number of weights; None where it is not known.
        quantization: Such as `4-bit`, `bfloat16` or `Q4_0`; empty where it is not known.
        size: Bytes of its weights; of all its files, where it is an unfinished download.
        here: Bytes of them that are here.
        complete: Whether it can be loaded, or drafted with, as it is.
        problem: Why not.
    """

    name: str
    place: str
    path: str
    kind: str
    family: str
    parameters: int | None
    quantization: str
    size: int
    here: int
    complete: bool
    problem: str = ""


def card_named(name: str, revision: str = "main") -> "ModelCard | None":
    """Return the model that a hub id, a name of the list or a path stands for; None where there is none.

    A hub id stands for the model in the hub's cache, whole or not, before any other one.

    Raises:
        ModelError: If several models have this name.
    """
    from rdchat.hub.cache_layout import repository_of  # noqa: PLC0415  slow to import, as all of these
    from rdchat.hub.downloads.download_record import records_of  # noqa: PLC0415
    from rdchat.hub.known_files import is_repository  # noqa: PLC0415
    from rdchat.inference.api.model_card import ModelCard  # noqa: PLC0415
    from rdchat.inference.models.model_places import HUB, place_named  # noqa: PLC0415

    repository = repository_of(name) if is_repository(name) else None
    cached = None
    if repository is not None:
        snapshot = repository.snapshots / repository.commit_of(revision)
        cached = ModelCard(name, name, HUB, snapshot, name, revision)
        if repository.commits() or records_of(repository):
            return cached
    return place_named(name if revision == "main" else f"{name}@{revision}", stored_settings().models_folder) or cached


def add_actions(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `list`."""
    parser = actions.add_parser("list", help="list the models and drafters on this machine, and unfinished downloads")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=_list)


def _list(args: argparse.Namespace) -> int:
    from rdchat.inference.library.model_library import library_models  # noqa: PLC0415  slow to import

    models = _told_apart([_listed(model) for model in library_models(stored_settings().models_folder)])
    if args.json:
        print(json.dumps({"models": [asdict(model) for model in models]}, ensure_ascii=False))
        return 0
    if not models:
        print("No models yet. `rdchat models install-default` fetches the default one.", file=sys.stderr)
    print_table([_row(model) for model in models])
    return 0


def _told_apart(models: list[ListedModel]) -> list[ListedModel]:
    """Name drafters by their paths where a model has the same name."""
    names = {model.name for model in models if model.kind == "model"}
    return [
        replace(model, name=model.path) if model.kind == "drafter" and model.name in names else model
        for model in models
    ]


def _row(model: ListedModel) -> tuple[str, ...]:
    parameters = f"{model.parameters / 1e6:,.0f}M parameters" if model.parameters else ""
    whole = "" if model.complete else f"not complete: {model.problem}"
    family = f"{model.family} drafter".strip() if model.kind == "drafter" else model.family
    return model.name, family, parameters, model.quantization, size_words(model.size), model.place, whole


def _listed(model: "ModelCard") -> ListedModel:
    from rdchat.hub.known_files import download_command  # noqa: PLC0415  slow to import, as all of these rooms
    from rdchat.inference.models.model_places import listed_name  # noqa: PLC0415

    if model.is_unfinished:
        command = download_command(model.repository, model.revision, model.gguf)
        words = f"{model.disk_bytes / model.download_bytes:.0%} is here; `{command}` goes on."
        size, here = model.download_bytes, model.disk_bytes
        return ListedModel(model.name, model.place, "", "", "", None, "", size, here, False, words)
    gguf, sizes = model.is_gguf, model.sizes
    size = model.disk_bytes if gguf or sizes is None else sizes.stored_bytes
    return ListedModel(
        name=listed_name(model),
        place=model.place,
        path=str(model.path),
        kind="drafter" if model.is_drafter else "model",
        family="GGUF" if gguf else model.family,
        parameters=sizes.parameters if sizes is not None else None,
        quantization=model.quantization,
        size=size,
        here=size,
        complete=not model.problem,
        problem=model.problem,
    )
