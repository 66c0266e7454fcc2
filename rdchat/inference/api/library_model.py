"""A model on this machine with all that is known of it without loading it. Plain data, no MLX."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rdchat.inference.api.drafter_facts import InstalledDrafter, TargetMatch
from rdchat.inference.api.memory_facts import ModelSizes


class Verifies(StrEnum):
    """What a model was found to verify in one call, when it was tried."""

    TREES = "trees"
    CHAINS = "chains"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class TriedOut:
    """What a model can verify.

    Attributes:
        verifies: That.
        reason: A clause that says why not trees; empty where it takes them.
    """

    verifies: Verifies
    reason: str = ""


@dataclass(frozen=True, slots=True)
class LibraryModel:
    """A model folder or a GGUF file, a drafter head, or what is here of a download that is not finished.

    Attributes:
        name: For people: a hub id, the publisher and name of LM Studio's folders, or the file's name.
        model: What `Engine.load` takes; None is the default model.
        place: Whose folder it lies in, such as "LM Studio".
        path: The model folder or the GGUF file; a repository's folder for an unfinished download.
        family: The architecture, such as `llama`; a drafter's kind; empty where nobody knows.
        sizes: What its need of memory is reckoned from; None where it cannot be loaded.
        quantization: Such as `4-bit` or `bfloat16`; empty where nobody knows.
        disk_bytes: Bytes of its files that are here.
        changed: When its folder was changed, in seconds since 1970.
        tried: What it can verify; None where that was not tried yet.
        problem: Why it cannot be loaded, a sentence; empty where nothing stands against it.
        repository: Its hub id where the hub's cache holds it; empty elsewhere.
        revision: Its branch, tag or commit there.
        download_bytes: Of an unfinished download, the bytes that it has when it is whole; 0 of anything else.
        gguf: The file that an unfinished download is of, where the hub has several; empty otherwise.
        tokens: A hash of its tokenizer's file: models with the same one know the same tokens; empty where it has none.
        is_drafter: Whether it is a drafter head, which drafts for a model and cannot be loaded alone.
    """

    name: str
    model: str | None
    place: str
    path: Path
    family: str = ""
    sizes: ModelSizes | None = None
    quantization: str = ""
    disk_bytes: int = 0
    changed: float = 0.0
    tried: TriedOut | None = None
    problem: str = ""
    repository: str = ""
    revision: str = "main"
    download_bytes: int = 0
    gguf: str = ""
    tokens: str = ""
    is_drafter: bool = False

    @property
    def is_unfinished(self) -> bool:
        """Whether it is a download that is not whole yet."""
        return self.download_bytes > 0

    @property
    def can_be_loaded(self) -> bool:
        return not (self.problem or self.is_unfinished or self.is_drafter)


@dataclass(frozen=True, slots=True)
class FittingDrafter:
    """A drafter head on this machine that fits a model, as far as files tell.

    Attributes:
        drafter: The head.
        match: How sure it is that it was made for the model.
        weights_bytes: Of its files of weights.
    """

    drafter: InstalledDrafter
    match: TargetMatch
    weights_bytes: int
