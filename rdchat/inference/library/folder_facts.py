"""Facts about a model folder or a GGUF file, from its headers."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError, RdchatError
from rdchat.files.foreign_files import check_file
from rdchat.inference.api.memory_facts import ModelSizes
from rdchat.inference.api.requests import Dtype
from rdchat.inference.models.gguf_header import GgufHeader, check_gguf
from rdchat.inference.models.gguf_import import FLOATS, QUANTISED_BITS
from rdchat.inference.models.model_config import check_architecture, read_config
from rdchat.inference.models.model_files import check_model_folder
from rdchat.inference.models.model_places import is_drafter

_GROUP_BYTES = 4  # of a converted GGUF file: a scale and a bias of 16 bits
_GROUP = 32  # weights that share them
_ADAPTED = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")  # end the names of networks that write


@dataclass(frozen=True, slots=True)
class FolderFacts:
    """Facts from headers; see `ModelCard`."""

    family: str = ""
    sizes: ModelSizes | None = None
    quantization: str = ""
    problem: str = ""
    is_model: bool = True  # a language model, loadable or not: the hub's cache holds other things too
    tokens: str = ""
    is_drafter: bool = False


def parsed_facts(data: Any) -> FolderFacts:
    """Undo `asdict`; raises TypeError, KeyError or ValueError where the data has another shape."""
    sizes = data["sizes"]
    if sizes is not None:
        sizes = ModelSizes(**{**sizes, "float_type": Dtype(sizes["float_type"])})
    return FolderFacts(**{**data, "sizes": sizes})


def read_facts(path: Path) -> FolderFacts:
    """Read a model folder or a GGUF file; a problem is one of the facts."""
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
    """Return a hash of the tokenizer's file. Different files may hold the same tokens; that is not noticed."""
    path = folder / "tokenizer.json"
    try:
        check_file(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()[:32]
    except (RdchatError, OSError):
        return ""


def _known_family(folder: Path) -> str:
    """Return the architecture of a folder that holds a language model, however damaged; empty of one that does not."""
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
    """Return the facts of the folder that a GGUF file would be converted into."""
    header = check_gguf(path)
    problem = gguf_problem(path, header)
    kinds = Counter(dict.fromkeys(QUANTISED_BITS, 0))
    for tensor in header.tensors:
        kinds[tensor.kind] += tensor.elements
    parameters = sum(kinds.values())
    common = kinds.most_common(1)[0][0] if parameters else None
    if problem or common is None:
        return FolderFacts(header.architecture[:60], problem=problem or f"{path} holds no weights.")
    bits = [QUANTISED_BITS[tensor.kind] for tensor in header.tensors if tensor.kind in QUANTISED_BITS]
    whole = all(tensor.kind.name == "F32" for tensor in header.tensors)
    number = header.numbers.get
    heads = number("llama.attention.head_count", 0)
    head_size = number("llama.attention.key_length") or number("llama.embedding_length", 0) // max(heads, 1)
    kv_heads = number("llama.attention.head_count_kv", heads)
    sizes = ModelSizes(
        parameters=parameters,
        stored_bytes=_converted_bytes(header, 4 if whole else 2),
        quantization_bits=Counter(sorted(bits)).most_common(1)[0][0] if bits else None,
        float_type=Dtype.FLOAT32 if whole else Dtype.FLOAT16,
        kv_values_per_token=2 * number("llama.block_count", 0) * kv_heads * head_size,
        context_length=number("llama.context_length", 0),
    )
    return FolderFacts(header.architecture, sizes, common.name)


def gguf_problem(path: Path, header: GgufHeader) -> str:
    """Return why a GGUF file cannot be converted, a sentence; empty where its header has nothing against it."""
    if header.architecture != "llama":
        return f"{path.name} is of the architecture '{header.architecture[:60]}'; only 'llama' can be converted."
    if not header.numbers.get("llama.context_length"):
        return f"{path.name} does not say how long its context is."
    unknown = next((each for each in header.tensors if each.kind not in {*QUANTISED_BITS, *FLOATS}), None)
    if unknown is not None:
        return f"{path.name} has weights of the type {unknown.kind.name}, which cannot be converted without a loss."
    return ""


def _converted_bytes(header: GgufHeader, float_bytes: int) -> int:
    """Return the bytes of all tensors once they are converted."""
    total = 0
    for tensor in header.tensors:
        if bits := QUANTISED_BITS.get(tensor.kind):
            total += tensor.elements * bits // 8 + tensor.elements // _GROUP * _GROUP_BYTES
        else:
            total += tensor.elements * float_bytes
    return total
