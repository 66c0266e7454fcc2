"""`rdchat models list`: what can be loaded, what is damaged, and what is not downloaded whole."""

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rdchat.commands.models.table import print_table, size_words

if TYPE_CHECKING:
    from rdchat.inference.api.library_model import LibraryModel


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A line of the list.

    Attributes:
        name: For people, and for `--model` where it is a hub id or a path.
        place: Whose folder it lies in.
        path: The model folder or GGUF file; empty for an unfinished download.
        family: The architecture, `GGUF` for such a file; empty where nobody knows yet.
        parameters: Number of weights; None where nobody knows.
        quantization: Such as `4-bit`, `bfloat16` or `Q4_0`; empty where nobody knows.
        size: Bytes of its weights; of all its files, where it is an unfinished download.
        here: Bytes of them that are here.
        complete: Whether it can be loaded as it is.
        problem: Why not.
    """

    name: str
    place: str
    path: str
    family: str
    parameters: int | None
    quantization: str
    size: int
    here: int
    complete: bool
    problem: str = ""


def add_actions(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `list`."""
    parser = actions.add_parser("list", help="list the models on this machine, and unfinished downloads")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=_list)


def _list(args: argparse.Namespace) -> int:
    from rdchat.inference.library.model_library import library_models  # noqa: PLC0415  slow to import

    models = [_listed(model) for model in library_models()]
    if args.json:
        print(json.dumps({"models": [asdict(model) for model in models]}, ensure_ascii=False))
        return 0
    if not models:
        print("No models yet. `rdchat models install-default` fetches the default one.", file=sys.stderr)
    print_table([_row(model) for model in models])
    return 0


def _row(model: ListedModel) -> tuple[str, ...]:
    parameters = f"{model.parameters / 1e6:,.0f}M parameters" if model.parameters else ""
    whole = "" if model.complete else f"not complete: {model.problem}"
    return model.name, model.family, parameters, model.quantization, size_words(model.size), model.place, whole


def _listed(model: "LibraryModel") -> ListedModel:
    revision = f" --revision {model.revision}" if model.repository and model.revision != "main" else ""
    if model.is_unfinished:
        file = f" --file {model.gguf}" if model.gguf else ""
        command = f"`rdchat models download {model.repository}{revision}{file}` goes on."
        words = f"{model.disk_bytes / model.download_bytes:.0%} is here; {command}"
        size, here = model.download_bytes, model.disk_bytes
        return ListedModel(model.name, model.place, "", "", None, "", size, here, False, words)
    gguf, sizes = model.path.suffix.lower() == ".gguf", model.sizes
    size = model.disk_bytes if gguf or sizes is None else sizes.stored_bytes
    return ListedModel(
        name=model.name + revision,
        place=model.place,
        path=str(model.path),
        family="GGUF" if gguf else model.family,
        parameters=sizes.parameters if sizes is not None else None,
        quantization=model.quantization,
        size=size,
        here=size,
        complete=not model.problem,
        problem=model.problem,
    )
