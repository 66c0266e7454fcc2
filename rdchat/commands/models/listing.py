"""`rdchat models list`: what can be loaded, what is damaged, and what is not downloaded whole."""

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rdchat.commands.models.table import print_table, size_words
from rdchat.errors import ModelError, RdchatError

if TYPE_CHECKING:
    from rdchat.inference.models.installed_models import ModelPlace


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A line of the list.

    Attributes:
        name: For people, and for `--model` where it is a hub id or a path.
        place: Whose folder it lies in.
        path: The model folder or GGUF file; empty for an unfinished download.
        family: The architecture, `GGUF` for such a file; empty where nobody knows yet.
        parameters: Number of weights; None where nobody knows.
        quantization: Such as `4-bit`; empty where nobody knows.
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
    models = [*_loadable(), *_unfinished()]
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


def _loadable() -> Iterator[ListedModel]:
    """Yield the models that lie on this machine; of what cannot be loaded, those whose kind could be."""
    from rdchat.inference.models.installed_models import model_places  # noqa: PLC0415  slow to import

    for place in (*model_places(), *_other_revisions()):
        try:
            yield _described(place)
        except (ModelError, OSError) as error:
            if (family := _known_family(place.path)) is not None:
                words = error.message if isinstance(error, ModelError) else str(error.strerror)
                size = _bytes_below(place.path)
                yield ListedModel(place.name, place.place, str(place.path), family, None, "", size, size, False, words)


def _other_revisions() -> "Iterator[ModelPlace]":
    """Yield what the hub's cache holds besides each model's main revision; older ones stay until they are deleted."""
    from rdchat.hub.cache_layout import cached_repositories  # noqa: PLC0415  slow to import
    from rdchat.inference.models.installed_models import HUB, ModelPlace  # noqa: PLC0415

    for repository in cached_repositories():
        main, names = repository.commit_of("main"), repository.references()
        for commit in repository.commits():
            if commit != main:
                name = f"{repository.name} --revision {names.get(commit, [commit])[0]}"
                folder = repository.snapshots / commit
                yield ModelPlace(name, str(folder), HUB, folder)


def _described(place: "ModelPlace") -> ListedModel:
    from rdchat.inference.models.gguf_header import check_gguf  # noqa: PLC0415  slow to import
    from rdchat.inference.models.model_files import check_model_folder  # noqa: PLC0415

    path = place.path
    if path.is_file():
        check_gguf(path)
        size = path.stat().st_size
        return ListedModel(place.name, place.place, str(path), "GGUF", None, "", size, size, True)
    files = check_model_folder(path)
    precision = f"{files.quantization_bits}-bit" if files.quantization_bits else "not quantised"
    size = files.stored_bytes
    return ListedModel(
        place.name, place.place, str(path), files.architecture, files.parameters, precision, size, size, True
    )


def _known_family(path: Path) -> str | None:
    """Return the architecture of a folder that holds a language model, however damaged; None of one that does not.

    The hub's cache also holds what is no language model.
    """
    from rdchat.inference.models.model_config import check_architecture, read_config  # noqa: PLC0415

    try:
        return check_architecture(read_config(path))
    except (RdchatError, OSError):
        return None


def _bytes_below(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _unfinished() -> Iterator[ListedModel]:
    from rdchat.hub.downloads.download_record import unfinished_downloads  # noqa: PLC0415
    from rdchat.hub.downloads.snapshot import is_snapshot  # noqa: PLC0415

    for repository, record in unfinished_downloads():
        files = record.files
        if is_snapshot(repository, files):
            continue  # whole, but for the end of its record
        here = record.done_bytes(repository)
        revision = f" --revision {files.revision}" if files.revision != "main" else ""
        file = f" --file {record.gguf}" if record.gguf else ""
        words = f"{here / max(files.size, 1):.0%} is here; `rdchat models download {files.repository}{revision}{file}`"
        yield ListedModel(
            files.repository, "Hugging Face", "", "", None, "", files.size, here, False, f"{words} goes on."
        )
