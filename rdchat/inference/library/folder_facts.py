"""Reads facts about a model folder or a GGUF file from its headers, in a child process or in this one."""

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError, RdchatError
from rdchat.files.foreign_files import check_file
from rdchat.inference.api.memory_facts import ModelSizes
from rdchat.inference.api.requests import Dtype
from rdchat.inference.models.gguf_header import read_gguf_header
from rdchat.inference.models.model_config import check_architecture, read_config
from rdchat.inference.models.model_files import check_model_folder, gguf_sizes
from rdchat.inference.models.model_places import is_drafter
from rdchat.work.child_limits import ChildClosedError, ChildLimitError, Limits
from rdchat.work.child_process import ChildProcess
from rdchat.work.job import Job
from rdchat.work.served import serve

_LIMITS = Limits(seconds=60.0, memory_bytes=1 << 30)  # for one folder: headers may take 100 MB, on a slow disk
_ADAPTED = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")  # endings of architectures that write text
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """Facts from headers; all but `is_model` become fields of `ModelCard`."""

    family: str = ""
    sizes: ModelSizes | None = None
    quantization: str = ""
    problem: str = ""
    is_model: bool = True  # a language model, loadable or not; the hub's cache also has other things
    tokens: str = ""
    is_drafter: bool = False


def parsed_facts(data: Any) -> FolderFacts:
    """Undo `asdict`; raises TypeError, KeyError or ValueError where the data has another shape."""
    sizes = data["sizes"]
    if sizes is not None:
        sizes = ModelSizes(**{**sizes, "float_type": Dtype(sizes["float_type"])})
    return FolderFacts(**{**data, "sizes": sizes})


def read_facts(path: Path) -> FolderFacts:
    """Read the facts of a model folder or a GGUF file; a problem is one of the facts."""
    try:
        if path.suffix.lower() == ".gguf":
            return _gguf_facts(path)
        return _drafter_facts(path) if is_drafter(path) else _folder_facts(path)
    except (RdchatError, OSError) as error:
        family = _known_family(path)
        return FolderFacts(family, problem=_words(path, error), is_model=bool(family) or path.suffix.lower() == ".gguf")


def _folder_facts(folder: Path) -> FolderFacts:
    files = check_model_folder(folder)
    bits = files.sizes.quantization_bits
    quantization = f"{bits}-bit" if bits else files.sizes.float_type.value
    return FolderFacts(files.architecture, files.sizes, quantization, tokens=_tokens(folder))


def _drafter_facts(folder: Path) -> FolderFacts:
    from rdchat.inference.drafting.checkpoints.drafter_folder import inspect_drafter  # noqa: PLC0415  imports MLX

    try:
        kind, problem = inspect_drafter(folder).words, ""
    except (RdchatError, OSError) as error:
        kind, problem = "", _words(folder, error)
    return FolderFacts(kind, problem=problem, is_model=False, is_drafter=True)


def _words(path: Path, error: RdchatError | OSError) -> str:
    return error.message if isinstance(error, RdchatError) else f"{path} cannot be read: {error.strerror}."


def _tokens(folder: Path) -> str:
    """Return a hash of the tokenizer's file. Different files may have the same tokens; this does not detect it."""
    path = folder / "tokenizer.json"
    try:
        check_file(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except (RdchatError, OSError):
        return ""


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
        writes = isinstance(named, list) and any(str(name).endswith(_ADAPTED) for name in named)
        return str(config["model_type"])[:60] if writes else ""


def _gguf_facts(path: Path) -> FolderFacts:
    """Return the facts of the folder that a GGUF file would be converted to."""
    header = read_gguf_header(path)
    family = str(header.metadata.get("general.architecture", ""))[:60]
    try:
        sizes = gguf_sizes(path, header)
    except ModelError as error:
        return FolderFacts(family, problem=error.message)
    kinds: Counter[str] = Counter()
    for tensor in header.tensors:
        kinds[tensor.kind.name] += tensor.elements
    return FolderFacts(family, sizes, kinds.most_common(1)[0][0])


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
            facts: FolderFacts = child.submit("read", {"path": str(path)}, limits, read=parsed_facts).result()
        except ChildLimitError as error:
            return FolderFacts(problem=f"Reading {path} {error.words}.")
        except ChildClosedError:  # the app is quit
            return FolderFacts(problem=f"{path} could not be read.")
        except RdchatError as error:
            _LOG.warning("The facts of %s could not be read: %s", path, error)
            return FolderFacts(problem=f"{path} could not be read.")
        return facts

    with closing(child):
        yield read


def main() -> int:
    """Answer requests until the app ends."""
    return serve({"read": _read})


def _read(_job: Job[Any], path: str) -> dict[str, Any]:
    return asdict(read_facts(Path(path)))
