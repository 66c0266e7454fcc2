"""The options of chats, in one order: a chat's own, else its project's, else its preset's, else those of Settings.

What none of these has is left to the model.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import NEW_CHAT, Conversation, is_temporary
from rdchat.chat.presets import LongChats, Preset
from rdchat.chat.projects import Folder
from rdchat.chat.settings import Settings
from rdchat.inference.api import AnswerShape, DraftSettings, SamplingDefaults, SamplingParams, ThinkingChoice

_NO_PRESET = Preset("", "")
_NOTHING_SHARED = Folder(0, "")


@dataclass(frozen=True)
class ChatValues:
    """The options in effect for a chat; fields have the names of those in `Conversation` and `Preset`.

    Attributes:
        draft: None for the draft settings of the model.
    """

    system_prompt: str
    sampling: SamplingParams
    thinking_choice: ThinkingChoice | None
    thinking_tokens: int | None
    answer_shape: AnswerShape | None
    draft: DraftSettings | None
    long_chats: LongChats


@dataclass(frozen=True, slots=True)
class OptionOrder:
    """Resolves the options that chats have with a model.

    "Usual" is what a chat has without a choice of its own, and there are two choices:
    - A preset. `usual_preset` is that of a chat that has chosen nothing.
    - Its own options, such as a temperature (`Conversation.own_values`); the preset is not one of them. `usual` has the
      values without them, but with the preset that the chat chose.

    For example, the temperature is 1.0 in Settings and 0.2 in the preset that a chat chose, and the chat's own is 0.5.
    `usual` has 0.2 and `effective_values` has 0.5, so `own` returns the chat's sampling.

    Attributes:
        settings: The app's settings.
        defaults: The sampling of the model.
        model: Folder of the model; None without one.
        find_folder: Returns a folder of chats by its id, if it is there; one with something to share is a project.
    """

    settings: Settings
    defaults: SamplingDefaults = SamplingDefaults()  # noqa: RUF009  it is frozen
    model: Path | None = None
    find_folder: Callable[[int], Folder | None] = lambda _folder_id: None

    def project_folder(self, chat: Conversation) -> Folder | None:
        """Return the folder whose project a chat has: the nearest one around it; None outside of projects."""
        folder = self.find_folder(chat.folder_id or 0)
        while folder is not None and not folder.is_project:
            folder = self.find_folder(folder.parent_id or 0)
        return folder

    def _shared(self, chat: Conversation) -> Folder:
        """Return the folder with what a chat shares with others: that of its project, else an empty one."""
        return self.project_folder(chat) or _NOTHING_SHARED

    def note_folders(self, chat: Conversation) -> tuple[int | None, ...]:
        """Return the folders whose notes a chat has, that of its own notes last; None stands for all chats."""
        if is_temporary(chat.id) or not chat.own.notes:
            return ()
        folder = self.project_folder(chat)
        shared = (None,) if self.settings.notes_everywhere else ()
        return (*shared, folder.id) if folder else shared

    def files(self, chat: Conversation) -> tuple[AttachedFile, ...]:
        """Return the files that a chat shares with the others of its project."""
        return self._shared(chat).files

    @property
    def model_preset(self) -> Preset | None:
        """The default preset of the model."""
        return next((each for each in self.settings.presets if str(self.model) in each.models), None)

    def model_name(self, chat: Conversation) -> str | None:
        """Return the model of a chat, by which it is loaded: its project's; None for the one that is loaded."""
        return self._shared(chat).project.model

    def usual_preset(self, chat: Conversation) -> Preset | None:
        """The preset of a chat that has chosen nothing: its project's, else the model's default preset."""
        return self._preset(self._shared(chat).project.preset) or self.model_preset

    def preset(self, chat: Conversation = NEW_CHAT) -> Preset | None:
        """Return the preset that a chat chose, else its usual one.

        None if there is none, if the chat chose to have none (an empty id), or if the chosen one was deleted.
        """
        return self.usual_preset(chat) if chat.own.preset is None else self._preset(chat.own.preset)

    def _preset(self, preset_id: str | None) -> Preset | None:
        return next((each for each in self.settings.presets if each.id == preset_id), None)

    def tools(self, chat: Conversation) -> tuple[str, ...]:
        """Return the names of the tool servers of a chat: its own, or the usual ones."""
        is_own = chat.own.tools or "tools" in chat.own.cleared
        return chat.own.tools if is_own else self.usual_tools(chat)

    def usual_tools(self, chat: Conversation) -> tuple[str, ...]:
        """Return the names of the tool servers of a chat that has chosen none: its project's."""
        return self._shared(chat).project.tools

    def usual(self, chat: Conversation = NEW_CHAT) -> ChatValues:
        """Return the values of a chat without its own options, with the preset that it chose or the usual one."""
        preset = self.preset(chat) or _NO_PRESET
        settings = self.settings
        prompt = settings.system_prompt if preset.system_prompt is None else preset.system_prompt
        instructions = self._shared(chat).project.instructions
        prompt = instructions if instructions.strip() else prompt
        sampling = replace(settings.sampling_for(self.defaults), **preset.chosen_sampling)
        return ChatValues(
            prompt,
            sampling,
            preset.thinking_choice,
            preset.thinking_tokens,
            preset.answer_shape,
            preset.draft,
            preset.long_chats or settings.long_chats,
        )

    def effective_values(self, chat: Conversation) -> ChatValues:
        """Return what applies to a chat: its own options over the usual values."""
        return replace(self.usual(chat), **chat.own_values)

    def own(self, chat: Conversation, values: ChatValues) -> dict[str, Any]:
        """Return those of some values, by name, that differ from `usual` of a chat: its own options."""
        usual = vars(self.usual(chat))
        return {name: value for name, value in vars(values).items() if value != usual[name]}

    def as_preset(self, chat: Conversation, name: str, draft: DraftSettings | None) -> Preset:
        """Return the values of a chat as a new preset, with another `draft`.

        The preset leaves open what the chat has from Settings or the model. What the chat's present preset sets is set
        in the new one too, even where it equals the value of Settings. The instructions of its project count as its
        system prompt, and are set.
        """
        values = self.effective_values(chat)
        present = self.preset(chat) or _NO_PRESET
        without_presets = replace(self, settings=replace(self.settings, presets=())).usual()
        usual_sampling = asdict(without_presets.sampling)
        changed = {key for key, value in asdict(values.sampling).items() if value != usual_sampling[key]}
        chosen = tuple(key for key in usual_sampling if key in changed or key in present.sampling_chosen)
        new = Preset(name, sampling_chosen=chosen, **vars(replace(values, draft=draft)))
        if present.long_chats is None and values.long_chats is without_presets.long_chats:
            new = replace(new, long_chats=None)
        if present.system_prompt is None and values.system_prompt == without_presets.system_prompt:
            new = replace(new, system_prompt=None)
        return new
