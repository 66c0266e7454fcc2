"""All models, drafters and unfinished downloads on this machine, and what fits together, for windows and commands.

Facts come from the headers of files, which are foreign data: a child process reads them (`folder_facts`). They are
cached until the files change. A part of each model is known only once MLX is loaded: the functions about drafters, and
`measured_calls`, import it. First come the lists, then drafters for a model, then checks of what a person names.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, fields, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdchat import paths
from rdchat.errors import RdchatError
from rdchat.files import entries_of, plain, read_json
from rdchat.hub import CachedRepository, RepositoryFiles, folders_in
from rdchat.hub.downloads.download_record import files_here, unfinished_downloads
from rdchat.inference.api import (
    FolderFacts,
    HeadKind,
    ModelCard,
    ModelPart,
    OnProgress,
    Origin,
    TargetMatch,
    describes_drafter,
)
from rdchat.inference.models.default_model import is_default_model_ready
from rdchat.inference.models.model_config import LAYER_KEYS, first_int, read_config, text_config
from rdchat.inference.models.model_files import check_model_folder, locate_model, paired_drafter, resolve_model
from rdchat.inference.models.model_locations import (
    model_cards,
    other_revisions,
    own_drafters,
    own_parts,
    shipped_drafters,
)
from rdchat.inference.models.safetensors_file import target_hash
from rdchat.inference.models.stored_facts import stamp_of, store_facts, stored_capability, stored_facts
from rdchat.inference.prompts.tokenizer_process import shared_tokenizers
from rdchat.inference.vision.families import vision_of
from rdchat.work import ChildClosedError, ChildLimitError, ChildProcess, Limits

if TYPE_CHECKING:
    from rdchat.hub.hub_api import HubApi
    from rdchat.inference.drafting.checkpoints.drafter_search import DrafterSearch
    from rdchat.inference.models.vocabularies import PairVerdict

# The limits of one folder: its headers may take 100 MB, on a slow disk.
_LIMITS = Limits(seconds=60.0, memory_bytes=1 << 30)
# The folder around a model may hold all downloads.
_MAX_NEIGHBOURS = 1000
# Every model has one of them, and no drafter needs one.
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")
_SURE = TargetMatch(True)
_CONFIG = "config.json"
_LOG = logging.getLogger(__name__)

type ReadFacts = Callable[[Path], FolderFacts]
"""Returns the facts of a folder."""


@contextmanager
def facts_reader(limits: Limits = _LIMITS, child: ChildProcess | None = None) -> Iterator[ReadFacts]:
    """Give a function that runs `folder_facts.read_facts` in a child process.

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


def library_models(chosen: str = "", read: ReadFacts | None = None) -> Iterator[ModelCard]:
    """Yield the models and drafters one by one, including those that cannot be loaded.

    Args:
        chosen: The person's own models folder, to include; empty for none.
        read: Reads facts that are not cached; None for a child process of its own.
    """
    with facts_reader() if read is None else nullcontext(read) as read_one:
        for card in (*model_cards(chosen), *own_parts(), *other_revisions()):
            if (model := _described(card, read_one)) is not None:
                yield model
    # Only once the hub has answered a record has a commit. That of a part (`drafter`) is no model's.
    for repository, record in unfinished_downloads():
        if record.commit and not record.drafter:
            yield _unfinished(repository, record)


def installed_models(read: ReadFacts | None = None) -> tuple[ModelCard, ...]:
    """Return the language models other than the default one, with the reason for those that cannot be loaded.

    Args:
        read: See `library_models`.
    """
    with facts_reader() if read is None else nullcontext(read) as read_one:
        described = [_described(card, read_one) for card in model_cards()]
    return tuple(card for card in described if card is not None and card.model and not card.is_drafter)


def _described(card: ModelCard, read: ReadFacts) -> ModelCard | None:
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
        origin=Origin.HUB,
        path=repository.folder,
        disk_bytes=sum(file.done_bytes for file in files_here(repository, files)),
        changed=stamp_of(repository.work).changed,
        repository=files.repository,
        revision=files.revision,
        download_bytes=max(files.size, 1),
    )


def installed_drafters(model: Path | None) -> tuple[ModelCard, ...]:
    """Return the drafters on this machine, each once, by origin and name.

    Args:
        model: Folder of the loaded model, to look beside and inside it; None without a model.
    """
    from rdchat.inference.drafting.checkpoints.drafter_search import changed_ns  # noqa: PLC0415  MLX

    cards: dict[Path, ModelCard] = {}
    for card in _candidates(model):
        folder = card.path.resolve()
        if folder in cards or (model is not None and folder == model.resolve()):
            continue
        has_only_drafters = card.origin in (Origin.TRAINED, Origin.SHIPPED)
        if (seen := _inspect(card.path, changed_ns(card.path), has_only_drafters)) is not None:
            kind, problem = seen
            cards[folder] = replace(
                card,
                is_drafter=True,
                kind=kind,
                family=kind.label if kind else "",
                problem=problem,
                disk_bytes=stamp_of(folder).disk_bytes,
            )
    return tuple(cards.values())


def _candidates(model: Path | None) -> Iterator[ModelCard]:
    """Yield the folders that may hold a drafter, those of the person first."""
    yield from own_drafters()
    if model is not None and model.is_dir():
        for folder in (*folders_in(model), *folders_in(model.parent)[:_MAX_NEIGHBOURS]):
            yield ModelCard(folder.name, str(folder), Origin.NEAR_MODEL, folder)
    yield from model_cards()
    yield from shipped_drafters()


@lru_cache(maxsize=5000)
def _inspect(folder: Path, changed_ns: int, surely: bool) -> tuple[HeadKind | None, str] | None:  # noqa: ARG001  as of then
    """Return a drafter's kind and its problem; None where the folder holds no drafter.

    A folder whose configuration does not say what it is counts as a drafter if it has no tokenizer and reads as one.

    Args:
        folder: The folder.
        changed_ns: When it was changed; part of the cache's key.
        surely: Whether it is known to hold a drafter, perhaps a damaged one.
    """
    from rdchat.inference.drafting.checkpoints.drafter_folder import MAX_CONFIG_BYTES, inspect_drafter  # noqa: PLC0415  MLX

    known = surely
    try:
        if folder / _CONFIG not in entries_of(folder):
            return None
        config = read_json(folder / _CONFIG, max_size=MAX_CONFIG_BYTES)
        known = surely or (isinstance(config, dict) and describes_drafter(config))
        if known or not any((folder / name).exists() for name in _TOKENIZERS):
            return inspect_drafter(folder), ""
    except (RdchatError, OSError) as error:
        problem = error.message if isinstance(error, RdchatError) else f"{folder} cannot be read: {error.strerror}."
        return (None, problem) if known else None
    return None


def fitting_drafters(folder: Path) -> tuple[ModelCard, ...]:
    """Return the drafter heads that fit the model in a folder, the certain ones first.

    Args:
        folder: The model's folder.
    """
    from rdchat.inference.drafting.checkpoints.drafter_search import own_layers, resolve_drafter  # noqa: PLC0415  MLX

    if not folder.is_dir():
        return ()
    try:
        config = text_config(read_config(folder))
        own_hash = target_hash(folder)
    except (RdchatError, OSError):
        return ()
    drafters = []
    if (layers := own_layers(folder)) is not None:
        size = sum(tensor.stored_bytes for tensor in layers.tensors.values())
        drafters.append(
            ModelCard(
                "MTP layers",
                str(folder),
                Origin.OWN_LAYERS,
                folder,
                kind=HeadKind.MTP,
                match=_SURE,
                is_drafter=True,
                family=HeadKind.MTP.label,
                weights_bytes=size,
                disk_bytes=size,
            )
        )
    paired = paired_drafter(folder)
    for drafter in installed_drafters(folder):
        if drafter.problem or drafter.kind is None:
            continue
        try:
            folder_of_drafter = resolve_drafter(drafter.model)
            if (match := _match(folder_of_drafter, config, own_hash)) is not None:
                match = _SURE if paired == folder_of_drafter else match
                weights = sum(path.stat().st_size for path in folder_of_drafter.glob("*.safetensors"))
                drafters.append(replace(drafter, match=match, weights_bytes=weights))
        except (RdchatError, OSError):
            continue
    return tuple(sorted(drafters, key=lambda fitting: not fitting.fits_surely))


def _match(folder_of_drafter: Path, config: Mapping[str, Any], own_hash: str) -> TargetMatch | None:
    """Compare a drafter's hash, or else the sizes that it needs, with a model's.

    A size that one of the two does not give passes, but a model that does not give its width has no match.
    """
    from rdchat.inference.drafting.checkpoints.drafter_folder import bound_hash, drafter_config  # noqa: PLC0415  MLX

    bound = bound_hash(folder_of_drafter)
    if bound is not None:
        return _SURE if bound == own_hash else None
    kind, needs = drafter_config(folder_of_drafter)
    depth = first_int(config, *LAYER_KEYS) or None
    width = config.get("hidden_size")
    if kind is HeadKind.RECURRENT:
        # Apple's, which gives neither model nor depth.
        pairs = [(needs.hidden_size, width), (needs.draft_vocabulary_size, config.get("vocab_size"))]
    else:
        pairs = [
            (needs.target_width, width),
            (needs.vocabulary_size, config.get("vocab_size")),
            (needs.target_depth, depth),
        ]
    if any(needed is not None and actual is not None and needed != actual for needed, actual in pairs):
        return None
    if width is None or (depth is not None and max(needs.target_layers, default=0) >= depth):
        return None
    return TargetMatch(False, "Its sizes fit; rdchat checks the rest when the model is loaded.")


def made_for(model: Path | None) -> "DrafterSearch":
    """Look for the drafter that was made for a model; None only looks for damaged ones."""
    from rdchat.inference.drafting.checkpoints.drafter_search import search_drafters  # noqa: PLC0415  MLX

    return search_drafters(target_hash(model) if model else None, model)


def drafter_folders(names: Collection[str | None], model: Path) -> list[Path]:
    """Return the folders of drafters by name; None is the one made for the model, and left out where there is none."""
    from rdchat.inference.drafting.checkpoints.drafter_search import (  # noqa: PLC0415  MLX
        resolve_drafter,
        search_drafters,
    )

    target = target_hash(model)
    folders = (resolve_drafter(name) if name else search_drafters(target).folder for name in names)
    return [folder for folder in folders if folder is not None]


def measured_calls(folder: Path) -> Mapping[int, float]:
    """Return the time of a model's calls by rows, in plain steps; empty where this machine has not measured it."""
    from rdchat.inference.auto.cost_model import newest_calls  # noqa: PLC0415  MLX

    try:
        target = target_hash(folder) if folder.is_dir() else ""
    except RdchatError:
        return {}
    return newest_calls(target)


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


def find_part(
    api: "HubApi", model: ModelCard, original: str = "", part: ModelPart = ModelPart.MTP
) -> RepositoryFiles | None:
    """Return the record of an unfinished download, or of a new one; None if no original is known.

    An unfinished download goes on, unless the caller names an original.

    Args:
        api: The hub.
        model: The model that lacks the part.
        original: The hub id of its original; empty to find it.
        part: What it lacks.

    Raises:
        ModelError: If the model cannot be read, or has the part already.
        NetworkError: If the hub cannot be reached or refuses, or has none that fit the model.
    """
    from rdchat.inference.library.original_source import (  # noqa: PLC0415  only for what a model lacks
        IncompleteModel,
        find_original,
        plan_part,
    )

    target = IncompleteModel.read_model(model, part)
    if not original:
        for _, record in unfinished_downloads():
            if record.drafter == target.drafter:
                return record
        original = find_original(api, target)
    return plan_part(api, target, original) if original else None


def why_blind(model: str | None) -> str | None:
    """Return why a model sees no images, which may be empty; None where it sees, or its files are not here.

    Args:
        model: Its name or folder; None for the default model.

    Raises:
        ModelError: If there is no such model, or it is damaged.
    """
    folder = locate_model(model) if model is not None else paths.default_model_dir()
    vision = vision_of(folder) if folder.is_dir() else None
    return vision.reason if vision is not None and vision.family is None else None


def default_model(on_progress: OnProgress | None = None) -> Path | None:
    """Return the default model's folder; None where it is not here, unless it may be downloaded.

    Args:
        on_progress: Called during the download; None for no download.

    Raises:
        RdchatError: As `resolve_model` does.
    """
    if on_progress is not None:
        return resolve_model(None, on_progress)
    return paths.default_model_dir() if is_default_model_ready() else None


def check_named(models: Iterable[str], drafters: Iterable[str]) -> None:
    """Check by headers that models are whole, and that the folders of drafters are there.

    Args:
        models: Names or folders.
        drafters: Names or folders.

    Raises:
        RdchatError: If one is missing, or a model is damaged.
    """
    from rdchat.inference.drafting.checkpoints.drafter_search import resolve_drafter  # noqa: PLC0415  MLX

    for name in models:
        check_model_folder(resolve_model(name))
    for name in drafters:
        if not resolve_drafter(name).is_dir():
            raise RdchatError(f"There is no drafter folder {name}.", "Check the path.")


def check_fetched_layers(folder: Path) -> None:
    """Raise ModelError where MTP layers that were fetched into a folder cannot be used."""
    from rdchat.inference.drafting.checkpoints.drafter_folder import inspect_drafter  # noqa: PLC0415  MLX

    inspect_drafter(folder)


def check_pair(target: str, draft: str) -> "PairVerdict":
    """Compare the vocabularies of two models without loading their weights.

    Args:
        target: A model folder, or a hub id that is in the hub's cache.
        draft: The draft model, in the same form.

    Raises:
        ModelError: If one of them is missing or damaged.
    """
    from rdchat.inference.models.vocabularies import compare_vocabularies, tokenizer_of  # noqa: PLC0415  seldom needed

    process = shared_tokenizers()
    target_tokenizer, target_name = tokenizer_of(target, process)
    draft_tokenizer, draft_name = tokenizer_of(draft, process)
    return compare_vocabularies(target_tokenizer, draft_tokenizer, target_name, draft_name)
