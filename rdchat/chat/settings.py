"""The person's settings."""

from dataclasses import dataclass, field
from enum import StrEnum

from rdchat.inference.api.requests import DraftSettings, Dtype, SamplingParams, check_seed, require

MIN_TEXT_SIZE, MAX_TEXT_SIZE = 9, 32  # points
MOST_DOWNLOADS = 8  # at once


class Appearance(StrEnum):
    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


@dataclass(frozen=True, slots=True)
class ModelDraft:
    """How one model's replies are drafted; `model` is its folder."""

    model: str
    draft: DraftSettings


@dataclass(frozen=True, slots=True)
class Settings:
    """The app's settings; the command line reads none of them.

    Attributes:
        appearance: Light, dark, or as the system is.
        text_size: Transcript text, in points.
        sampling: Default sampling of new and unchanged chats.
        system_prompt: Default system prompt; empty leaves it to the model's chat template.
        seed: The person's fixed seed; None draws fresh entropy for each reply.
        model: The model folder or hub id to load at start; None is the default model.
        dtype: Precision to load it in.
        recent_models: Model folders and hub ids that were loaded before, latest first.
        drafts: How replies are drafted, per model; the one changed last comes first.
        downloads_at_once: How many models are downloaded at the same time.
        models_folder: Folder that 'Open folder...' starts in; empty for the home folder.
        larger_model_declined: Whether the person put the offer of a larger model away.
        panel_visible: Whether the speed panel is shown.
        panel_collapsed: Names of its sections that are folded up; at first those that say more than how fast it is.
        sidebar_visible: Whether the list of conversations is shown.
        titles_by_model: Whether the model writes titles of new chats while nothing else is to be done.
        window_geometry: Qt's own blob, base64.
        window_state: Splitter sizes, base64.

    Raises:
        InvalidSettingError: If the text size, the downloads or the seed are out of range.
    """

    appearance: Appearance = Appearance.SYSTEM
    text_size: int = 13
    sampling: SamplingParams = field(default_factory=SamplingParams)
    system_prompt: str = ""
    seed: int | None = None
    model: str | None = None
    dtype: Dtype = Dtype.AUTO
    recent_models: tuple[str, ...] = ()
    drafts: tuple[ModelDraft, ...] = ()
    downloads_at_once: int = 2
    models_folder: str = ""
    larger_model_declined: bool = False
    panel_visible: bool = True
    panel_collapsed: tuple[str, ...] = ("Drafts", "Reply", "Memory", "Model")
    sidebar_visible: bool = True
    titles_by_model: bool = True
    window_geometry: str = ""
    window_state: str = ""

    def __post_init__(self) -> None:
        sizes = f"from {MIN_TEXT_SIZE} to {MAX_TEXT_SIZE}"
        require(MIN_TEXT_SIZE <= self.text_size <= MAX_TEXT_SIZE, "text size", self.text_size, sizes)
        most = MOST_DOWNLOADS
        require(1 <= self.downloads_at_once <= most, "downloads at once", self.downloads_at_once, f"from 1 to {most}")
        if self.seed is not None:
            check_seed(self.seed)
