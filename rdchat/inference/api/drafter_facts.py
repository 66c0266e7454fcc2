"""Drafters as people choose them: kinds, where they lie, and whether one fits the loaded model. Plain data, no MLX."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

APPLE_MODEL_TYPE = "recurrent_drafting_drafter"
# What only drafters' configurations have; whether one is a drafter that can be read, its tensors say.
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
    """Tell whether a configuration has what only a drafter's does."""
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
    """How sure it is that a drafter was made for a target.

    Attributes:
        sure: Whether it is known; else the sizes fit, which those of other models may, too.
        words: A sentence for people; empty where there is nothing to say.
    """

    sure: bool
    words: str = ""


@dataclass(frozen=True, slots=True)
class InstalledDrafter:
    """A drafter that was found on this machine.

    Attributes:
        name: For people: a hub id, the publisher and name of LM Studio's folders, or the folder's name.
        drafter: What `DraftSettings.drafter` takes: a folder or a hub id.
        place: Where it lies, such as "Hugging Face".
        kind: What it is; None where that cannot be told.
        problem: Why no model can use it, a sentence; empty where nothing stands against it.
        disk_bytes: Of its files.
    """

    name: str
    drafter: str
    place: str
    kind: HeadKind | None = None
    problem: str = ""
    disk_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DrafterFit:
    """Whether a drafter fits the loaded model.

    Attributes:
        drafter: See `InstalledDrafter`.
        match: How sure it is that it was made for it; None where it does not fit.
        problem: Why it does not, a sentence; empty where it does.
    """

    drafter: str
    match: TargetMatch | None = None
    problem: str = ""
