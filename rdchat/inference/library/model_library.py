"""Lists all models, drafters and unfinished downloads on this machine, for the models window and `rdchat models`.

Facts come from the headers of their files, which are foreign data: the app has a child process read them
(`rdchat --child facts`, whose `main` is here). They are cached until the files change. First comes how the facts of one
folder are read, then the lists.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.errors import ModelError, RdchatError
from rdchat.files import plain
from rdchat.hub import CachedRepository, RepositoryFiles, checksum
from rdchat.hub.downloads.download_record import files_here, unfinished_downloads
from rdchat.inference.api import FolderFacts, ModelCard
from rdchat.inference.models.model_config import check_architecture, read_config, stated_layers, unreadable
from rdchat.inference.models.model_files import check_model_folder, locate_model
from rdchat.inference.models.model_locations import (
    HUB,
    is_drafter,
    model_cards,
    other_revisions,
    own_parts,
    stamp_of,
    store_facts,
    stored_capability,
    stored_facts,
)
from rdchat.inference.prompts.tokenizer_process import has_template
from rdchat.inference.vision.families import vision_of
from rdchat.work import ChildClosedError, ChildLimitError, ChildProcess, Job, Limits, serve

# The limits of one folder: its headers may take 100 MB, on a slow disk.
_LIMITS = Limits(seconds=60.0, memory_bytes=1 << 30)
# Endings of the classes of models that write text, as `architectures` in config.json names them.
_WRITES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
_LOG = logging.getLogger(__name__)


def read_facts(path: Path) -> FolderFacts:
    """Read the facts of a model folder; a problem is one of the facts."""
    try:
        return _drafter_facts(path) if is_drafter(path) else _folder_facts(path)
    except (RdchatError, OSError) as error:
        family = _known_family(path)
        return FolderFacts(family=family, problem=_reason(path, error), is_model=bool(family))


def _folder_facts(folder: Path) -> FolderFacts:
    """Read the facts of a language model; raises what `read_facts` reports as a problem."""
    files = check_model_folder(folder)
    bits = files.sizes.quantization_bits
    vision = vision_of(folder)
    return FolderFacts(
        family=files.architecture,
        sizes=vision.sizes(files.sizes),
        quantization=f"{bits}-bit" if bits else files.sizes.float_type.value,
        tokens=_tokens(folder),
        states_mtp=stated_layers(read_config(folder)) > 0 and not unreadable(files.architecture),
        sees=vision.family is not None,
        blind=vision.reason,
        has_template=has_template(folder),
    )


def _drafter_facts(folder: Path) -> FolderFacts:
    """Read the facts of a drafter head, or of a vision tower, which is listed as a drafter is.

    They are told apart by their folder: all towers are in `towers_dir`.
    """
    if folder.parent == paths.towers_dir():
        return FolderFacts(
            family="vision", problem=vision_of(folder).reason, is_model=False, is_drafter=True, sees=True
        )
    from rdchat.inference.drafting.checkpoints.drafter_folder import inspect_drafter  # noqa: PLC0415  imports MLX

    try:
        kind = inspect_drafter(folder).label
        problem = ""
    except (RdchatError, OSError) as error:
        kind = ""
        problem = _reason(folder, error)
    return FolderFacts(family=kind, problem=problem, is_model=False, is_drafter=True)


def _reason(path: Path, error: RdchatError | OSError) -> str:
    return error.message if isinstance(error, RdchatError) else f"{path} cannot be read: {error.strerror}."


def _tokens(folder: Path) -> str:
    """Return a hash of the tokenizer's file. Different files may have the same tokens; this does not detect it."""
    return checksum(folder / "tokenizer.json", letters=64)[:32]


def _known_family(folder: Path) -> str:
    """Return the architecture of a folder with a language model, however damaged; empty for other folders."""
    try:
        config = read_config(folder)
    except (RdchatError, OSError):
        return ""
    try:
        return check_architecture(config)
    except ModelError:
        named = config.get("architectures")
        writes_text = isinstance(named, list) and any(str(name).endswith(_WRITES) for name in named)
        return str(config["model_type"])[:60] if writes_text else ""


@contextmanager
def facts_reader(
    limits: Limits = _LIMITS, child: ChildProcess | None = None
) -> Iterator[Callable[[Path], FolderFacts]]:
    """Give a function that runs `read_facts` in a child process.

    Args:
        limits: For one folder or file.
        child: Starts with the first call and ends with the block; None makes a new one.
    """
    child = child or ChildProcess("facts")

    def read(path: Path) -> FolderFacts:
        try:
            job = child.submit("read", {"path": str(path)}, limits, read=partial(plain, FolderFacts))
            facts: FolderFacts = job.result()
        except ChildLimitError as error:
            return FolderFacts(problem=f"Reading {path} {error.reason}.")
        except ChildClosedError:  # The app is quitting.
            return FolderFacts(problem=f"{path} could not be read.")
        except RdchatError as error:
            _LOG.warning("The facts of a model could not be read: %s", error)
            return FolderFacts(problem=f"{path} could not be read.")
        return facts

    with closing(child):
        yield read


def main() -> int:
    """Answer requests until the app ends."""
    return serve({"read": _read})


def _read(_job: Job[Any], path: str) -> dict[str, Any]:
    return asdict(read_facts(Path(path)))


def library_models(chosen: str = "", read: Callable[[Path], FolderFacts] = read_facts) -> Iterator[ModelCard]:
    """Yield the models and drafters one by one, including those that cannot be loaded.

    Args:
        chosen: The person's own models folder, to include; empty for none.
        read: Reads facts that are not cached; a child process may do it.
    """
    for card in (*model_cards(chosen), *own_parts(), *other_revisions()):
        if (model := _described(card, read)) is not None:
            yield model
    # Only once the hub has answered a record has a commit. That of a part (`drafter`) is no model's.
    for repository, record in unfinished_downloads():
        if record.commit and not record.drafter:
            yield _unfinished(repository, record)


def installed_models(read: Callable[[Path], FolderFacts] = read_facts) -> tuple[ModelCard, ...]:
    """Return the language models other than the default one, with the reason for those that cannot be loaded.

    Args:
        read: See `library_models`.
    """
    described = (_described(card, read) for card in model_cards())
    return tuple(card for card in described if card is not None and card.model and not card.is_drafter)


def problem_of(model: str) -> str:
    """Return a sentence on why a folder or file cannot be loaded; empty if its headers are right.

    Args:
        model: The path.
    """
    try:
        check_model_folder(locate_model(model))
    except (RdchatError, OSError) as error:
        return str(error)
    return ""


def _described(card: ModelCard, read: Callable[[Path], FolderFacts]) -> ModelCard | None:
    """Return the card of a folder or a file with its facts; None where it is neither a model nor a drafter."""
    path = card.path
    stamp = stamp_of(path)
    # A model sees with a tower that was fetched for it, so its facts change with the towers too.
    stamp_with_towers = replace(stamp, digest=stamp.digest + stamp_of(paths.towers_dir()).digest)
    try:
        facts = plain(FolderFacts, stored_facts("headers", path, stamp_with_towers))
    except (TypeError, ValueError):  # They are not cached, or the cache is damaged.
        facts = read(path)
        store_facts("headers", path, stamp_with_towers, asdict(facts))
    if not (facts.is_model or facts.is_drafter):
        return None
    # The fields of `FolderFacts` have the same names in `ModelCard`. A trial depends on the model alone, not on towers.
    facts_by_name = {field.name: getattr(facts, field.name) for field in fields(facts)}
    return replace(
        card,
        model="" if path == paths.default_model_dir() else card.model,
        disk_bytes=stamp.disk_bytes,
        changed=stamp.changed,
        tried=None if facts.problem or facts.is_drafter or path.is_file() else stored_capability(path, stamp),
        **facts_by_name,
    )


def _unfinished(repository: CachedRepository, files: RepositoryFiles) -> ModelCard:
    """Return the card of an unfinished download."""
    return ModelCard(
        name=files.repository,
        model="",
        origin=HUB,
        path=repository.folder,
        disk_bytes=sum(file.done_bytes for file in files_here(repository, files)),
        changed=stamp_of(repository.work).changed,
        repository=files.repository,
        revision=files.revision,
        download_bytes=max(files.size, 1),
    )
