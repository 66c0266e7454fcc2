"""Facts about drafters: their kinds, and whether one fits the loaded model. Plain data, no MLX."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

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
    al. 2025, arXiv 2503.01840); `mtp` is the model's own multi-token-prediction layer (DeepSeek-V3, arXiv 2412.19437).
    """

    RECURRENT = "recurrent"
    BLOCK = "block"
    EAGLE3 = "eagle3"
    MTP = "mtp"

    @property
    def words(self) -> str:
        """Its name for people."""
        return {HeadKind.EAGLE3: "EAGLE-3", HeadKind.MTP: "MTP"}.get(self, self.value.capitalize())


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
