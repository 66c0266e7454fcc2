"""A model or drafter on this machine: all that is known without loading it. Plain data, no MLX."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rdchat.inference.api.memory_facts import ModelSizes

APPLE_MODEL_TYPE = "recurrent_drafting_drafter"
# Settings that only drafters' configurations have. Whether a drafter can be read is decided by its tensors.
_TELLING = {
    "dflash_config",
    "draft_vocab_size",
    "eagle_config",
    "markov_head_type",
    "markov_rank",
    "speculators_config",
    "speculators_model_type",
    "target_layer_ids",
}


def describes_drafter(config: Mapping[str, object]) -> bool:
    """Tell whether a configuration has a setting that only drafters have."""
    ours = {"format", "architecture", "target"} <= config.keys()
    return ours or config.get("model_type") == APPLE_MODEL_TYPE or not _TELLING.isdisjoint(config)


class HeadKind(StrEnum):
    """The kinds of drafter heads.

    `recurrent` is a small RNN over the target's last hidden state (Zhang et al. 2024, arXiv 2403.09919); `block` drafts
    a block of tokens in one pass (DFlash, DSpark); `eagle3` is one transformer layer with a KV cache of its own (Li et
    al. 2025, arXiv 2503.01840).
    """

    RECURRENT = "recurrent"
    BLOCK = "block"
    EAGLE3 = "eagle3"

    @property
    def words(self) -> str:
        """Its name for people."""
        return "EAGLE-3" if self is HeadKind.EAGLE3 else self.value.capitalize()


@dataclass(frozen=True, slots=True)
class TargetMatch:
    """How sure it is that a drafter was made for a target."""

    sure: bool  # the target is known; otherwise only the sizes fit, as they may with other models
    words: str = ""  # a sentence for people


@dataclass(frozen=True, slots=True)
class DrafterFit:
    """Whether a drafter fits the loaded model."""

    drafter: str  # a folder or a hub id
    match: TargetMatch | None = None  # how sure it is that it was made for the model; None where it does not fit
    problem: str = ""  # why it does not fit, a sentence


class DraftKind(StrEnum):
    """The most that a model can verify in one call."""

    NONE = "nothing"
    CHAIN = "chains"
    TREE = "trees"


@dataclass(frozen=True, slots=True)
class Capability:
    """What a model can verify in one call, as measured."""

    kind: DraftKind
    reason: str = ""  # a clause that says why not trees; empty where it takes them
    # medians of the measured errors, in standard deviations of the logits; see `target.capability`
    errors: Mapping[str, float] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A model folder, a GGUF file, a drafter head, or an unfinished download.

    Its name and place are always known. Readers of its files, and checks against a model, add the rest.
    """

    name: str  # for people: a hub id, the publisher and name of LM Studio's folders, or the file's name
    model: str  # what `Engine.load` or `DraftSettings.drafter` takes; empty is the default model
    place: str  # whose folder it lies in, such as "LM Studio"
    path: Path = Path()  # the folder or the GGUF file; a repository's folder for an unfinished download
    repository: str = ""  # the hub id, where the hub's cache holds it
    revision: str = "main"  # the branch, tag or commit there
    problem: str = ""  # a sentence that says why it cannot be loaded, or used to draft; empty where it can
    # By its files
    family: str = ""  # the architecture, such as `llama`; a drafter's kind; empty where it is not known
    sizes: ModelSizes | None = None  # to compute its need of memory; None where it cannot be loaded
    quantization: str = ""  # such as `4-bit` or `bfloat16`; empty where it is not known
    tokens: str = ""  # hash of the tokenizer's file: models with the same hash have the same tokens
    disk_bytes: int = 0  # of its files on this machine
    changed: float = 0.0  # when its folder was changed, in seconds since 1970
    tried: Capability | None = None  # None where it was not tried yet
    # Of an unfinished download
    download_bytes: int = 0  # size of the whole download; 0 of anything else
    download_gguf: str = ""  # the file that was asked for, where the repository has several
    # Of a drafter head
    is_drafter: bool = False  # it drafts for a model, and cannot be loaded alone
    kind: HeadKind | None = None  # None where that is not known
    match: TargetMatch | None = None  # how sure it is that it was made for the model; None where that is not known
    weights_bytes: int = 0  # of its weight files; for the loaded model, its size in memory
    is_loaded: bool = False  # whether it is the model or drafter in use

    @property
    def is_unfinished(self) -> bool:
        """Whether it is an unfinished download."""
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
        """The name of its GGUF file, or of the one that was asked for; empty for an MLX model."""
        return self.path.name if self.is_gguf else self.download_gguf

    @property
    def folder(self) -> Path:
        """The folder of its files."""
        return self.path.parent if self.is_gguf else self.path
