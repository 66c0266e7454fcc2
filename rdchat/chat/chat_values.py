"""The one order of a chat's options: its own, else its preset's, else those of Settings, else the model's."""

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from rdchat.chat.conversation import NEW_CHAT, Conversation
from rdchat.chat.presets import Preset
from rdchat.chat.settings import Settings
from rdchat.inference.api.answer_shape import AnswerShape
from rdchat.inference.api.requests import DraftSettings, SamplingDefaults, SamplingParams, ThinkingChoice


@dataclass(frozen=True, slots=True)
class ChatValues:
    """What applies to a chat; the fields have the names of those in `Conversation` and `Preset`.

    Attributes:
        draft: None for the draft settings of the model.
    """

    system_prompt: str
    sampling: SamplingParams
    thinking_choice: ThinkingChoice | None
    thinking_tokens: int | None
    answer_shape: AnswerShape | None
    draft: DraftSettings | None


_NO_PRESET = Preset("", "")


@dataclass(frozen=True, slots=True)
class OptionOrder:
    """The options that chats have with a model.

    Attributes:
        settings: The app's settings.
        defaults: The sampling of the model.
        model: Folder of the model; None without one.
    """

    settings: Settings
    defaults: SamplingDefaults = SamplingDefaults()  # noqa: RUF009  it is frozen
    model: Path | None = None

    @property
    def model_preset(self) -> Preset | None:
        """The default preset of the model."""
        return next((each for each in self.settings.presets if str(self.model) in each.models), None)

    def preset(self, chat: Conversation = NEW_CHAT) -> Preset | None:
        """Return a chat's preset; None if it has none, or it was deleted."""
        chosen = chat.own.preset
        if chosen is None:
            return self.model_preset
        return next((each for each in self.settings.presets if each.id == chosen), None)

    def usual(self, chat: Conversation = NEW_CHAT) -> ChatValues:
        """Return what applies to a chat without options of its own but the preset."""
        preset = self.preset(chat) or _NO_PRESET
        settings = self.settings
        prompt = settings.system_prompt if preset.system_prompt is None else preset.system_prompt
        sampling = replace(settings.sampling_for(self.defaults), **preset.chosen_sampling)
        thinking = preset.thinking_choice, preset.thinking_tokens
        return ChatValues(prompt, sampling, *thinking, preset.answer_shape, preset.draft)

    def values(self, chat: Conversation) -> ChatValues:
        """Return what applies to a chat."""
        return replace(self.usual(chat), **chat.own_values)

    def own(self, chat: Conversation, values: ChatValues) -> dict[str, Any]:
        """Return those of some values, by name, that differ from what is usual for a chat."""
        usual = _by_name(self.usual(chat))
        return {name: value for name, value in _by_name(values).items() if value != usual[name]}

    def as_preset(self, chat: Conversation, name: str, draft: DraftSettings | None) -> Preset:
        """Return a preset with the values of a chat, as far as they are not those of Settings or of the model."""
        values = self.values(chat)
        base = self.preset(chat) or _NO_PRESET
        below = replace(self, settings=replace(self.settings, presets=())).usual()
        plain = asdict(below.sampling)
        sampling = asdict(values.sampling)
        chosen = tuple(each for each in plain if sampling[each] != plain[each] or each in base.sampling_chosen)
        has_prompt = values.system_prompt != below.system_prompt or base.system_prompt is not None
        made = Preset(name, sampling_chosen=chosen, **_by_name(replace(values, draft=draft)))
        return made if has_prompt else replace(made, system_prompt=None)


def _by_name(values: ChatValues) -> dict[str, Any]:
    return {each.name: getattr(values, each.name) for each in fields(values)}
