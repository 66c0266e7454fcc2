"""A model or a drafter on this machine, with all that is known of it without loading it. Plain data, no MLX."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rdchat.inference.api.drafter_facts import HeadKind, TargetMatch
from rdchat.inference.api.memory_facts import ModelSizes


class Verifies(StrEnum):
    """What a model was found to verify in one call, when it was tried."""

    TREES = "trees"
    CHAINS = "chains"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class TriedOut:
    """What a model can verify."""

    verifies: Verifies
    reason: str = ""  # a clause that says why not trees; empty where it takes them


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model folder, a GGUF file, a drafter head, or what is here of a download that is not finished.

    Its name and place are always known. Whoever reads its files, or holds it against a model, adds the rest.
    """

    name: str  # for people: a hub id, the publisher and name of LM Studio's folders, or the file's name
    model: str  # what `Engine.load` or `DraftSettings.drafter` takes; empty is the default model
    place: str  # whose folder it lies in, such as "LM Studio"
    path: Path = Path()  # the folder or the GGUF file; a repository's folder for an unfinished download
    repository: str = ""  # the hub id, where the hub's cache holds it
    revision: str = "main"  # the branch, tag or commit there
    problem: str = ""  # why it cannot be loaded or drafted with, a sentence; empty where nothing stands against it
    # By its files
    family: str = ""  # the architecture, such as `llama`; a drafter's kind; empty where it is not known
    sizes: ModelSizes | None = None  # what its need of memory is computed from; None where it cannot be loaded
    quantization: str = ""  # such as `4-bit` or `bfloat16`; empty where it is not known
    tokens: str = ""  # a hash of the tokenizer's file: models with the same one know the same tokens
    disk_bytes: int = 0  # of its files that are here
    changed: float = 0.0  # when its folder was changed, in seconds since 1970
    tried: TriedOut | None = None  # what it can verify; None where that was not tried yet
    # Of an unfinished download
    download_bytes: int = 0  # that it has when it is whole; 0 of anything else
    download_gguf: str = ""  # the file that was asked for, where the hub has several
    # Of a drafter head
    is_drafter: bool = False  # it drafts for a model, and cannot be loaded alone
    kind: HeadKind | None = None  # None where that is not known
    match: TargetMatch | None = None  # how sure it is that it was made for the model; None where that is not known
    weights_bytes: int = 0  # of its files of weights; of the loaded model, as they are in memory
    is_loaded: bool = False  # whether it answers now

    @property
    def is_unfinished(self) -> bool:
        """Whether it is a download that is not whole yet."""
        return self.download_bytes > 0

    @property
    def can_be_loaded(self) -> bool:
        return not (self.problem or self.is_unfinished or self.is_drafter)

    @property
    def fits_surely(self) -> bool:
        """Whether it is known to be made for the model."""
        return self.match is not None and self.match.sure

    @property
    def is_gguf(self) -> bool:
        return self.path.suffix.lower() == ".gguf" and not self.is_unfinished

    @property
    def gguf(self) -> str:
        """The name of the GGUF file that it is, or of the one that was asked for; empty for an MLX model."""
        return self.path.name if self.is_gguf else self.download_gguf

    @property
    def folder(self) -> Path:
        """Where its files lie."""
        return self.path.parent if self.is_gguf else self.path
