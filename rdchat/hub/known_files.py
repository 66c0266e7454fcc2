"""The files of a repository: selects those to download, and checks names that become paths.

Safetensors, JSON, known tokenizer files, README and licence are downloaded, all of them data; pickles and code never.
Weights that mlx-lm cannot unpack are refused as far as config.json tells of them.
"""

import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rdchat.files import TEMPLATES, TOKENIZER_FILES, max_bytes, opened
from rdchat.hub.endpoint import HubError
from rdchat.wording import size_text

# Names from the hub, which become paths. Lone surrogates cannot be in a path.
_SAFE_NAME = re.compile(r"[^\x00-\x1f\x7f/\\:*?\"<>|\ud800-\udfff]{1,200}")
# The limit of file systems, in bytes of UTF-8.
_LONGEST_NAME = 255
_REVISION = re.compile(r"[A-Za-z0-9_][\w.+-]{0,99}(/[A-Za-z0-9_][\w.+-]{0,99}){0,5}", re.ASCII)
_REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
# The hub's own limit.
_LONGEST_REPOSITORY = 96
# Model types, by the classes of mlx-lm that unpack their weights.
_DEEPSEEK = {"deepseek_v3", "joyai_llm_flash", "kimi_k2", "kimi_k25"}
_MISTRAL = {"llava", "mistral3", "mistral4"}
_FP8 = {"deepseek_v32", "deepseek_v41", "deepseek_v41_text", "glm_moe_dsa", "mimo_v2_flash", "minimax", "minimax_m2"}
FAMILIES: Mapping[str, frozenset[str] | None] = {
    # Every real file of GPTQ has group indices, which mlx-lm refuses.
    "gptq": frozenset(),
    "compressed-tensors": frozenset({*_DEEPSEEK, *_MISTRAL, "kimi_k3"}),
    "fp8": frozenset({*_DEEPSEEK, *_MISTRAL, *_FP8, "minimax_m3_vl", "ministral3"}),
    "modelopt": frozenset({"muse_spark"}),
    "mxfp8": frozenset({"minimax_m3_vl"}),
    "awq": None,
    "bitnet": None,
    "mxfp4": None,
}
"""Model types whose modules in mlx-lm unpack a method's weights; None where any does."""
# By method: the key that names its variant in `quantization_config`, and the variants that mlx-lm takes.
_VARIANTS: Mapping[str, tuple[str, tuple[object, ...]]] = {
    "awq": ("bits", (4,)),
    "compressed-tensors": ("format", ("pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized")),
    "modelopt": ("quant_algo", ("NVFP4",)),
}
PACKED_HINT = "Choose an MLX version of it, or convert the original, unquantised model with `mlx_lm.convert`."
MAX_FILE_BYTES = 2**50
"""A file for which the hub names more bytes is refused."""
_MAX_DOCUMENT_BYTES = 2**24
_DOCUMENT = re.compile(r"(README\.md|(LICEN[CS]E|NOTICE|USE_POLICY|COPYING)[\w.-]{0,40})", re.IGNORECASE | re.ASCII)
# Endings of code and of pickles, which are code too; a name may be that of a document but for these.
_CODE = re.compile(r"\.(py|pyc|so|dylib|sh|pkl|pickle|pt|pth|bin)$", re.IGNORECASE)
_MODEL_WEIGHTS = re.compile(r"model.*\.safetensors")
# Bytes that `checksum` reads at a time.
_CHUNK_BYTES = 2**22
_SHA256_LETTERS = 64


def check_names(repository: str, revision: str) -> None:
    """Refuse names that cannot be a hub id or a revision; both become paths.

    Raises:
        HubError: If one of them cannot be.
    """
    if not is_repository(repository):
        raise HubError(f"{repository[:200]} is not the name of a model on Hugging Face.", "Write it as ORG/NAME.")
    if not is_revision(revision):
        raise HubError(f"{revision[:200]} is not a revision.", "Give a branch, a tag or a commit.")


def is_repository(name: str) -> bool:
    """Return whether a name may be a hub id, `ORG/NAME`. Such a name is also a safe folder name."""
    return (
        bool(_REPOSITORY.fullmatch(name))
        and len(name) <= _LONGEST_REPOSITORY
        and not any(word in name for word in ("..", "--"))
        and not any(part.endswith((".", "-", ".git")) for part in name.split("/"))
    )


def is_revision(name: str) -> bool:
    """Return whether a name may be a branch, tag or commit, which becomes a path below `refs`."""
    return bool(_REVISION.fullmatch(name)) and ".." not in name


def is_commit(name: str) -> bool:
    return bool(_COMMIT.fullmatch(name))


def is_digest(text: str) -> bool:
    return bool(_DIGEST.fullmatch(text))


def is_safe_name(name: str) -> bool:
    """Return whether a file's name may become a path in a snapshot: at the top, or of a chat template."""
    last = name.removeprefix(TEMPLATES)
    if not _SAFE_NAME.fullmatch(last) or last.startswith((".", "~", "-")) or last.strip() != last:
        return False
    return len(last.encode()) <= _LONGEST_NAME


def unpackable(family: str, settings: Mapping[str, Any]) -> str:
    """Return a sentence that says why a model's packed weights cannot be read; empty if mlx-lm can unpack them.

    It checks, in this order: that a method is named, that mlx-lm unpacks it for the model type (`FAMILIES`; an unknown
    method for none), and that it takes the method's variant (`_VARIANTS`).

    Args:
        family: The model type in config.json.
        settings: Its `quantization_config`.
    """
    if not settings.get("quant_method"):
        return "The model's quantization_config does not say how its weights are packed: it has no quant_method."
    method = str(settings["quant_method"])[:100]
    families = FAMILIES.get(method, frozenset())
    if families is not None and family not in families:
        return f"mlx-lm cannot unpack weights of {method} for the architecture '{family[:60]}'."
    key, known = _VARIANTS.get(method, ("", ()))
    if (variant := settings.get(key)) is not None and variant not in known:
        return f"mlx-lm cannot unpack weights of {method} with {key} {str(variant)[:60]}."
    return ""


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository at one commit.

    Attributes:
        name: Its path in the repository; safe to use.
        size: Its size in bytes.
        digest: Its checksum in hexadecimal: the sha256 of a large file, git's sha1 of a small one.
            It names the blob in the cache.
    """

    name: str
    size: int
    digest: str

    def is_at(self, path: Path, on_bytes: Callable[[int], None] = lambda _count: None) -> bool:
        """Return whether a file has this size and checksum; False if it cannot be read. See `checksum`."""
        try:
            same_size = path.stat().st_size == self.size
        except OSError:
            return False
        return same_size and checksum(path, len(self.digest), on_bytes) == self.digest


@dataclass(frozen=True, slots=True)
class RepositoryFiles:
    """The files of a repository to download: the record of a download on disk.

    Attributes:
        repository: The hub id.
        revision: The requested branch, tag or commit.
        commit: Commit of the revision; empty until the hub has listed the files.
        files: By name.
        left_out: Names of files that are not downloaded.
        is_model: Whether it is a language model; otherwise a drafter.
        paused: Whether it waits for the person; otherwise the app resumes it at its next start.
        drafter: Name of the folder of a drafter, or of a vision tower, to make from the files, which are then dropped;
            empty to keep the files.
        config: Configuration of the drafter or tower to be made, as JSON; empty without one.
        card: Card of the same, in Markdown.
    """

    repository: str
    revision: str
    commit: str
    files: tuple[HubFile, ...]
    left_out: tuple[str, ...] = ()
    is_model: bool = True
    paused: bool = True
    drafter: str = ""
    config: str = ""
    card: str = ""

    @property
    def digests(self) -> frozenset[str]:
        """Digests of all its files."""
        return frozenset(file.digest for file in self.files)

    @property
    def request(self) -> tuple[str, str, str]:
        """Repository, revision and drafter: what tells downloads apart."""
        return self.repository, self.revision, self.drafter

    @property
    def contents(self) -> list[HubFile]:
        """Each content once, under its first name."""
        once = {file.digest: file for file in reversed(self.files)}
        return sorted(once.values(), key=lambda file: file.name)

    @property
    def size(self) -> int:
        """Bytes of all its files, those with the same content once."""
        return sum(file.size for file in self.contents)


def checksum(path: Path, letters: int, on_bytes: Callable[[int], None] = lambda _count: None) -> str:
    """Return a file's checksum; empty if it cannot be read.

    Args:
        path: The file.
        letters: Length of the checksum: 64 for sha256, 40 for git's sha1.
        on_bytes: Called with the number of bytes read since the last call; may raise to stop.
    """
    try:
        if letters == _SHA256_LETTERS:
            state = hashlib.sha256()
        else:
            # This is git's name of a blob.
            state = hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False)
        with opened(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                state.update(chunk)
                on_bytes(len(chunk))
    except OSError:
        return ""
    return state.hexdigest()


def download_command(repository: str, revision: str = "main") -> str:
    """Return the shell command that downloads or resumes a model."""
    text = ["rdchat", "models", "download", repository]
    if revision != "main":
        text += ["--revision", revision]
    return shlex.join(text)


def is_document(name: str) -> bool:
    """Return whether a file is for people to read, such as README and licence; no model needs it."""
    return bool(_DOCUMENT.fullmatch(name))


def chosen_files(files: Iterable[HubFile], packed: str = "") -> tuple[tuple[HubFile, ...], tuple[str, ...]]:
    """Return the files to download, and the names of the others.

    Args:
        files: All files of a repository; their names are not checked yet.
        packed: Why its safetensors cannot be unpacked; empty if they can.

    Raises:
        HubError: If there is nothing to download, its weights cannot be unpacked, or a file is too large for its kind.
    """
    listed = list(files)
    known = [file for file in listed if is_safe_name(file.name) and _is_known(file)]
    weights = [file for file in known if file.name.endswith(".safetensors")]
    main = [file for file in weights if _MODEL_WEIGHTS.fullmatch(file.name)]
    # Beside `model*.safetensors` others hold the same weights in another form, such as `consolidated.safetensors`.
    copies = set(weights) - set(main) if main else set()
    if packed:
        raise HubError(packed, PACKED_HINT)
    if not weights:
        raise HubError("It has no weights that rdchat can read.", "Search for an MLX version of it.")
    taken = [file for file in known if file not in copies]
    if len({file.name.casefold() for file in taken}) < len(taken):
        text = "Some of its files have names that differ only in upper and lower case."
        raise HubError(text, "A Mac cannot keep both.")
    for file in taken:
        if (limit := max_bytes(Path(file.name))) is not None and file.size > limit:
            # Nothing would read a larger file.
            text = f"{file.name} is too large: {size_text(file.size)}. The limit is {size_text(limit)}."
            raise HubError(text, "Look for another version of the model.")
    names = {file.name for file in taken}
    left_out = tuple(file.name for file in listed if file.name not in names)
    return tuple(sorted(taken, key=lambda file: file.name)), left_out


def _is_known(file: HubFile) -> bool:
    """Return whether a file is of a kind that is downloaded: weights, JSON, tokenizer, template or document."""
    name = file.name
    if name.startswith(TEMPLATES):
        return name.endswith(".jinja")
    if _CODE.search(name):
        return False
    # Nobody reads a longer document.
    if is_document(name):
        return file.size <= _MAX_DOCUMENT_BYTES
    return name.endswith((".safetensors", ".json", ".tiktoken")) or name in TOKENIZER_FILES
