"""Lists all models, drafters and unfinished downloads on this machine."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from rdchat import paths
from rdchat.errors import RdchatError
from rdchat.hub.cache_layout import CachedRepository
from rdchat.hub.downloads.download_record import DownloadRecord, unfinished_downloads
from rdchat.hub.downloads.snapshot import is_snapshot
from rdchat.inference.api.model_card import ModelCard
from rdchat.inference.library.facts_file import FactsFile, stamp_of, tried_out
from rdchat.inference.library.folder_facts import FolderFacts, gguf_problem, read_facts
from rdchat.inference.models.gguf_header import check_gguf
from rdchat.inference.models.model_files import check_model_folder, locate_model
from rdchat.inference.models.model_places import HUB, model_places, other_revisions, own_drafters


def library_models(chosen: str = "", read: Callable[[Path], FolderFacts] = read_facts) -> Iterator[ModelCard]:
    """Yield the models and drafters one by one, also language models and drafters that cannot be loaded.

    Args:
        chosen: A folder of the person's own, to look into as well; empty for none.
        read: Reads what is not known of before; a child may do it.
    """
    kept = FactsFile(read)
    for place in (*model_places(chosen), *own_drafters(), *other_revisions()):
        if (model := _described(place, kept)) is not None:
            yield model
    kept.keep(all_seen=True)
    for repository, record in unfinished_downloads():
        if not is_snapshot(repository, record.files):  # else whole, but for the end of its record
            yield _unfinished(repository, record)


def installed_models(read: Callable[[Path], FolderFacts] = read_facts) -> tuple[ModelCard, ...]:
    """Return the language models that can be chosen and, with the reason, those that cannot; not the default model.

    Args:
        read: See `library_models`.
    """
    kept = FactsFile(read)
    found = []
    for place in model_places():
        if place.path != paths.default_model_dir():
            facts = kept.facts_of(place.path, stamp_of(place.path))
            if facts.is_model:
                found.append(replace(place, problem=facts.problem))
    kept.keep(all_seen=False)
    return tuple(found)


def problem_of(model: str) -> str:
    """Return why a folder or file cannot be loaded, a sentence; empty where its headers are right.

    Args:
        model: The path.
    """
    try:
        path = locate_model(model)
        if path.suffix.lower() == ".gguf" and path.is_file():
            return gguf_problem(path, check_gguf(path))
        check_model_folder(path)
    except (RdchatError, OSError) as error:
        return str(error)
    return ""


def _described(place: ModelCard, kept: FactsFile) -> ModelCard | None:
    path = place.path
    stamp = stamp_of(path)
    facts = kept.facts_of(path, stamp)
    if not (facts.is_model or facts.is_drafter):
        return None
    return replace(
        place,
        model="" if path == paths.default_model_dir() else place.model,
        family=facts.family,
        sizes=facts.sizes,
        quantization=facts.quantization,
        disk_bytes=stamp.disk_bytes,
        changed=stamp.changed,
        tried=None if facts.problem or facts.is_drafter or path.is_file() else tried_out(path),
        problem=facts.problem,
        tokens=facts.tokens,
        is_drafter=facts.is_drafter,
    )


def _unfinished(repository: CachedRepository, record: DownloadRecord) -> ModelCard:
    files = record.files
    return ModelCard(
        name=files.repository,
        model="",
        place=HUB,
        path=repository.folder,
        disk_bytes=record.done_bytes(repository),
        changed=_changed(repository.work),
        repository=files.repository,
        revision=files.revision,
        download_bytes=max(files.size, 1),
        download_gguf=record.gguf,
    )


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
