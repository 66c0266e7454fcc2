"""Which of a repository's files are fetched, and which names may become paths.

Safetensors, JSON, tokenizer files that are known, GGUF files of types that are read right, README and licence: all of
them data. Pickles and code are never fetched.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rdchat.files.foreign_files import most_bytes
from rdchat.hub.hub_errors import HubError

MOST_FILE_BYTES = 2**50
_SAFE_NAME = re.compile(r"[^\x00-\x1f\x7f/\\:*?\"<>|\ud800-\udfff]{1,200}")  # no lone surrogates: no path takes them
_MOST_DOCUMENT_BYTES = 2**24
_LONGEST_NAME = 255  # bytes of UTF-8, which file systems take
_TOKENIZER_FILES = {
    "chat_template.jinja",
    "merges.txt",
    "spiece.model",
    "tiktoken.model",
    "tokenizer.model",
    "tokenizer.model.v3",
    "vocab.txt",
}
_TOKENIZER_ENDINGS = (".tiktoken",)
_TEMPLATES = "additional_chat_templates/"
_WORDS = re.compile(r"(README\.md|(LICEN[CS]E|NOTICE|USE_POLICY|COPYING)[\w.-]{0,40})", re.IGNORECASE | re.ASCII)
_CODE = re.compile(r"\.(py|pyc|so|dylib|sh|pkl|pickle|pt|pth|bin)$", re.IGNORECASE)
_GGUF_TYPE = re.compile(r"(?:^|[.\-_])(Q4_0|Q4_1|Q8_0|Q6_K|F16|F32)\.gguf$", re.IGNORECASE)
_NO_MODEL = re.compile(r"mmproj|-of-\d", re.IGNORECASE)  # what sees for another model, and a part of several
_MODEL_WEIGHTS = re.compile(r"model.*\.safetensors")
_REVISION = re.compile(r"[A-Za-z0-9_][\w.+-]{0,99}(/[A-Za-z0-9_][\w.+-]{0,99}){0,5}", re.ASCII)
_REPOSITORY = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DIGEST = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_LONGEST_REPOSITORY = 96  # the hub's own rule


class SeveralFilesError(HubError):
    """There are several files of which one is the model.

    Attributes:
        first: The name of the first one.
    """

    def __init__(self, message: str, hint: str, first: str) -> None:
        super().__init__(message, hint)
        self.first = first


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository at one commit.

    Attributes:
        name: Its path in the repository, which is safe to use.
        size: In bytes.
        digest: The sha256 of a large file, git's sha1 of a small one, in hexadecimal: its blob's name in the cache.
    """

    name: str
    size: int
    digest: str


@dataclass(frozen=True, slots=True)
class RepositoryFiles:
    """The files of a repository to fetch."""

    repository: str  # the hub id
    revision: str  # the branch, tag or commit that was asked for
    commit: str  # that it stands for
    files: tuple[HubFile, ...]  # by name
    left_out: tuple[str, ...] = ()  # names of what is not fetched

    @property
    def contents(self) -> list[HubFile]:
        """Each content once, under its first name."""
        once = {file.digest: file for file in reversed(self.files)}
        return sorted(once.values(), key=lambda file: file.name)

    @property
    def size(self) -> int:
        """Bytes of all its files, those with the same content once."""
        return sum(file.size for file in self.contents)


def download_command(repository: str, revision: str = "main", gguf: str = "") -> str:
    """Return the shell command that downloads or resumes a model."""
    words = ["rdchat", "models", "download", repository]
    if revision != "main":
        words += ["--revision", revision]
    return shlex.join([*words, "--file", gguf] if gguf else words)


def check_names(repository: str, revision: str) -> None:
    """Refuse what cannot be a hub id or a revision; both become paths.

    Raises:
        HubError: If one of them cannot be.
    """
    if not is_repository(repository):
        raise HubError(f"{repository[:200]} is no model's name on the hub.", "Such a name is ORG/NAME.")
    if not is_revision(revision):
        raise HubError(f"{revision[:200]} is no revision.", "Name a branch, a tag or a commit.")


def is_repository(name: str) -> bool:
    """Tell whether a name may be a hub id: `ORG/NAME`, which also is safe as a folder's name."""
    return (
        bool(_REPOSITORY.fullmatch(name))
        and len(name) <= _LONGEST_REPOSITORY
        and not any(word in name for word in ("..", "--"))
        and not any(part.endswith((".", "-", ".git")) for part in name.split("/"))
    )


def is_revision(name: str) -> bool:
    """Tell whether a name may be a branch, tag or commit; it becomes a path below `refs`."""
    return bool(_REVISION.fullmatch(name)) and ".." not in name


def is_commit(name: str) -> bool:
    return bool(_COMMIT.fullmatch(name))


def is_digest(text: str) -> bool:
    return bool(_DIGEST.fullmatch(text))


def is_document(name: str) -> bool:
    """Tell whether a file is for people to read, such as README and licence: no model needs it."""
    return bool(_WORDS.fullmatch(name))


def is_safe_name(name: str) -> bool:
    """Tell whether a file's name may become a path in a snapshot: at its top, or a chat template's."""
    last = name.removeprefix(_TEMPLATES)
    if not _SAFE_NAME.fullmatch(last) or last.startswith((".", "~", "-")) or last.strip() != last:
        return False
    return len(last.encode()) <= _LONGEST_NAME


def chosen_files(files: Iterable[HubFile], gguf: str = "") -> tuple[tuple[HubFile, ...], tuple[str, ...]]:
    """Return the files to fetch, and the names of the others.

    A repository of GGUF files alone holds one model many times: one is taken.

    Args:
        files: All files of a repository; their names are not checked yet.
        gguf: The GGUF file to take, where there are several.

    Raises:
        SeveralFilesError: If there are several GGUF files, and none is named.
        HubError: If there is nothing to fetch, or not the named file; or if a file is too large for its kind.
    """
    listed = list(files)
    known = [file for file in listed if is_safe_name(file.name) and _is_known(file.name) and not _is_long(file)]
    weights = [file for file in known if file.name.endswith(".safetensors")]
    models = [file for file in weights if _MODEL_WEIGHTS.fullmatch(file.name)]
    ggufs = [file for file in known if file.name.lower().endswith(".gguf")]
    left_out = {file.name for file in weights} - {file.name for file in models} if models else set()
    if gguf or (ggufs and not weights):
        left_out = {file.name for file in (*ggufs, *weights)} - {_one_gguf(ggufs, gguf)}
    elif weights:
        left_out |= {file.name for file in ggufs}
    else:
        raise HubError("It holds no weights that rdchat reads.", "Look for an MLX model, or a GGUF file of it.")
    taken = [file for file in known if file.name not in left_out]
    if len({file.name.casefold() for file in taken}) < len(taken):
        raise HubError("It has files whose names differ in upper and lower case only.", "No Mac could hold both.")
    for file in taken:
        if (most := most_bytes(Path(file.name))) is not None and file.size > most:  # nothing would read it
            words = f"{file.name} is too large: {file.size / 1e6:,.0f} MB, where {most / 1e6:,.0f} MB are the most."
            raise HubError(words, "Look for another version of the model.")
    names = {file.name for file in taken}
    return tuple(sorted(taken, key=lambda file: file.name)), tuple(f.name for f in listed if f.name not in names)


def readable_ggufs(files: Iterable[HubFile]) -> tuple[HubFile, ...]:
    """Return the GGUF files of types that are read right, smallest first; one of them is a whole model."""
    known = (file for file in files if file.name.lower().endswith(".gguf"))
    return tuple(sorted((f for f in known if is_safe_name(f.name) and _is_known(f.name)), key=lambda file: file.size))


def _is_known(name: str) -> bool:
    if name.startswith(_TEMPLATES):
        return name.endswith(".jinja")
    if _CODE.search(name):
        return False
    if name.lower().endswith(".gguf"):
        return bool(_GGUF_TYPE.search(name)) and not _NO_MODEL.search(name)
    return (
        name.endswith((".safetensors", ".json", *_TOKENIZER_ENDINGS)) or name in _TOKENIZER_FILES or is_document(name)
    )


def _is_long(file: HubFile) -> bool:
    """Tell whether a file for people is longer than anybody reads."""
    return is_document(file.name) and file.size > _MOST_DOCUMENT_BYTES


def _one_gguf(files: Sequence[HubFile], wanted: str) -> str:
    names = [file.name for file in files]
    if wanted in names:
        return wanted
    listed = ", ".join(names[:10]) or "none"
    if wanted:
        raise HubError(f"It has no file {wanted} that rdchat reads.", f"GGUF files that it reads: {listed}.")
    if len(names) > 1:
        raise SeveralFilesError(f"It holds {len(names)} GGUF files: {listed}.", "Choose one.", names[0])
    return names[0]
