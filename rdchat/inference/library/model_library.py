"""Lists all models, drafters and unfinished downloads on this machine."""

from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path

from rdchat import paths
from rdchat.errors import RdchatError
from rdchat.files.plain_data import plain
from rdchat.hub.cache_layout import CachedRepository
from rdchat.hub.downloads.download_record import DownloadRecord, unfinished_downloads
from rdchat.inference.api.model_card import Capability, DraftKind, ModelCard
from rdchat.inference.library.folder_facts import FolderFacts, read_facts
from rdchat.inference.models.fact_cache import Stamp, cache_facts, cached_facts, stamp_of
from rdchat.inference.models.gguf_header import read_gguf_header
from rdchat.inference.models.model_files import check_model_folder, gguf_sizes, locate_model
from rdchat.inference.models.model_places import HUB, model_places, other_revisions, own_drafters


def library_models(chosen: str = "", read: Callable[[Path], FolderFacts] = read_facts) -> Iterator[ModelCard]:
    """Yield the models and drafters one by one, including those that cannot be loaded.

    Args:
        chosen: The person's own models folder, to include; empty for none.
        read: Reads facts that are not cached; a child process may do it.
    """
    for place in (*model_places(chosen), *own_drafters(), *other_revisions()):
        if (model := _described(place, read)) is not None:
            yield model
    for repository, record in unfinished_downloads():
        yield _unfinished(repository, record)


def installed_models(read: Callable[[Path], FolderFacts] = read_facts) -> tuple[ModelCard, ...]:
    """Return the language models other than the default one, with the reason for those that cannot be loaded.

    Args:
        read: See `library_models`.
    """
    described = (_described(place, read) for place in model_places())
    return tuple(card for card in described if card is not None and card.model and not card.is_drafter)


def problem_of(model: str) -> str:
    """Return a sentence that says why a folder or file cannot be loaded; empty where its headers are right.

    Args:
        model: The path.
    """
    try:
        path = locate_model(model)
        if path.suffix.lower() == ".gguf" and path.is_file():
            gguf_sizes(path, read_gguf_header(path))
        else:
            check_model_folder(path)
    except (RdchatError, OSError) as error:
        return str(error)
    return ""


def _described(place: ModelCard, read: Callable[[Path], FolderFacts]) -> ModelCard | None:
    """Return the card of a folder or a file with its facts; None where it is neither a model nor a drafter."""
    path = place.path
    stamp = stamp_of(path)
    try:
        facts = plain(FolderFacts, cached_facts("headers", path, stamp))
    except (TypeError, ValueError):  # not cached, or the cache is damaged
        facts = read(path)
        cache_facts("headers", path, stamp, asdict(facts))
    if not (facts.is_model or facts.is_drafter):
        return None
    known = {field.name: getattr(facts, field.name) for field in fields(facts) if field.name != "is_model"}
    return replace(
        place,
        model="" if path == paths.default_model_dir() else place.model,
        disk_bytes=stamp.disk_bytes,
        changed=stamp.changed,
        tried=None if facts.problem or facts.is_drafter or path.is_file() else stored_capability(path, stamp),
        **known,
    )


def store_capability(folder: Path, tried: Capability) -> None:
    """Store what the model in a folder can verify; a failure is logged."""
    cache_facts("verifies", folder, stamp_of(folder), {"verifies": tried.kind.value, "reason": tried.reason})


def stored_capability(folder: Path, stamp: Stamp) -> Capability | None:
    """Return what the model in a folder can verify; None where it was not tried, or the model has changed."""
    try:
        fields = cached_facts("verifies", folder, stamp)
        return Capability(DraftKind(fields["verifies"]), str(fields["reason"]))
    except (KeyError, TypeError, ValueError):
        return None


def _unfinished(repository: CachedRepository, record: DownloadRecord) -> ModelCard:
    files = record.files
    return ModelCard(
        name=files.repository,
        model="",
        place=HUB,
        path=repository.folder,
        disk_bytes=sum(file.done_bytes for file in record.files_here(repository)),
        changed=stamp_of(repository.work).changed,
        repository=files.repository,
        revision=files.revision,
        download_bytes=max(files.size, 1),
        download_gguf=record.gguf,
    )
