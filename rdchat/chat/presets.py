"""Presets, options of chats under a name, and saved prompts; read from files of rdchat and of LM Studio."""

import json
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from rdchat.errors import InvalidSettingError, ModelError, StorageError
from rdchat.files import from_plain, plain, read_object
from rdchat.inference.api import (
    AnswerShape,
    DraftSettings,
    SamplingParams,
    ShapeKind,
    ThinkingChoice,
    check_thinking_tokens,
)

PLACEHOLDER = re.compile(r"\{\{[^{}\n]{1,60}\}\}")
"""A part of a saved prompt that is asked for when it is inserted."""
_FORMAT = "rdchat presets"
_MAX_BYTES = 4 * 2**20
_LONGEST_NAME = 200
# The most presets, prompts or fields in a file: it is read on the window's thread.
_MAX_ENTRIES = 1000
# Names of sampling values by LM Studio's keys, which have this prefix.
_LM_STUDIO = {
    "temperature": "temperature", "topKSampling": "top_k", "topPSampling": "top_p", "minPSampling": "min_p",
    "repeatPenalty": "repetition_penalty", "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty", "maxPredictedTokens": "max_tokens", "maxTokens": "max_tokens",
    "stopStrings": "stop",
}  # fmt: skip
_PREFIX = "llm.prediction."
# What reading a damaged entry may raise.
_DAMAGE = (TypeError, ValueError, KeyError, AttributeError, RecursionError)
# The last part of LM Studio's key for a switch of thinking; the parts before it name the model.
_THINKING = "enableThinking"


class LongChats(StrEnum):
    """What happens when a chat nearly fills the model's context. `compact`: a summary replaces the oldest turns."""

    ASK = "ask"
    LEAVE_OUT = "leave_out"
    COMPACT = "compact"


@dataclass(frozen=True, slots=True)
class Preset:
    """Options of chats under a name.

    Attributes:
        name: Its name for people.
        id: Chats and models refer to it by this.
        system_prompt: None leaves it to the settings.
        sampling: Of these values only those named in `sampling_chosen` apply; others are left to the settings.
        sampling_chosen: Names of values in `sampling`, `stop` for the stop strings.
        thinking_choice: None leaves it to the model.
        thinking_tokens: The most tokens of a thought; None for no limit.
        answer_shape: The format of answers; None for any text.
        draft: How replies are drafted; None for the settings of the model.
        long_chats: What happens when a chat nearly fills the context; None leaves it to the settings.
        models: Folders of the models whose chats have it unless they have another one.
    """

    name: str
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    system_prompt: str | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    sampling_chosen: tuple[str, ...] = ()
    thinking_choice: ThinkingChoice | None = None
    thinking_tokens: int | None = None
    answer_shape: AnswerShape | None = None
    draft: DraftSettings | None = None
    long_chats: LongChats | None = None
    models: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_thinking_tokens(self.thinking_tokens)

    @property
    def chosen_sampling(self) -> dict[str, Any]:
        """The sampling values that it sets, by name."""
        return {name: value for name, value in asdict(self.sampling).items() if name in self.sampling_chosen}


@dataclass(frozen=True, slots=True)
class SavedPrompt:
    """A text for the message field; `PLACEHOLDER` matches what is asked for in it.

    Attributes:
        imported: Whether it is from a file, so its words may be a stranger's.
    """

    name: str
    text: str
    imported: bool = False


STARTER_PROMPTS = tuple(
    SavedPrompt(name, text)
    for name, text in {
        "Summarise": "Summarise this in five sentences:\n\n{{text}}",
        "Shorten": "Make this half as long. Keep the facts:\n\n{{text}}",
        "Proofread": "Correct the spelling and grammar of this text, then list what you changed:\n\n{{text}}",
        "Rewrite": "Rewrite this in a {{friendly}} tone:\n\n{{text}}",
        "Translate": "Translate this into {{language}}:\n\n{{text}}",
        "Answer a message": "Write a short answer to this message. It should say: {{answer}}\n\n{{message}}",
        "Explain": "Explain {{topic}} in plain words, with one example.",
        "Explain code": "Explain step by step what this code does, and point out mistakes:\n\n{{code}}",
        "Pros and cons": "List what speaks for and against {{decision}}, then say what it depends on.",
        "Ideas": "Give me ten ideas for {{subject}}, each in one line.",
    }.items()
)
"""The prompts of a new library. They are the person's from then on: a deleted one does not come back."""


def unused_name(name: str, items: Iterable[Preset | SavedPrompt]) -> str:
    """Return a name that no item has."""
    return unused_names([name], items)[0]


def unused_names(names: Iterable[str], items: Iterable[Preset | SavedPrompt]) -> list[str]:
    """Return a name for each of some names, so that neither they nor items share one."""
    taken = {each.name for each in items}
    numbers = dict[str, int]()
    unused = list[str]()
    for name in names:
        free = name
        number = numbers.get(name, 2)
        while free in taken:
            free = f"{name} {number}"
            number += 1
        numbers[name] = number
        taken.add(free)
        unused.append(free)
    return unused


type ReadPresets = tuple[list[Preset], list[SavedPrompt], list[str]]
"""What a file held, and the names of fields without an effect."""


def presets_text(presets: tuple[Preset, ...], prompts: tuple[SavedPrompt, ...]) -> str:
    """Return presets and prompts as JSON, without what belongs to this computer."""
    plain_presets = [asdict(_portable(each)) for each in presets]
    data = {"format": _FORMAT, "version": 1, "presets": plain_presets, "prompts": [asdict(each) for each in prompts]}
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def read_presets(path: Path) -> ReadPresets:
    """Read a file of `presets_text`, or a preset of LM Studio.

    Raises:
        StorageError: If it cannot be read, or is neither.
    """
    problem = f"{path.name} cannot be imported"
    hint = "Choose a file that rdchat or LM Studio exported."
    try:
        data = read_object(path, hint, _MAX_BYTES)
        if data.get("format") == _FORMAT:
            return _own(data)
        if isinstance(data.get("operation"), dict):
            return _lm_studio(data, path.name.removesuffix(".json").removesuffix(".preset"))
    except ModelError as error:
        raise StorageError(f"{problem}: {error.message}", error.hint) from error
    except _DAMAGE as error:
        raise StorageError(f"{problem}: it is damaged.", hint) from error
    raise StorageError(f"{problem}: it holds no presets.", hint)


def _own(data: Mapping[str, Any]) -> ReadPresets:
    """Read a file of `presets_text`; ValueError if none of its entries can be read."""
    wrong = list[str]()

    def read_preset(entry: Any) -> Preset:
        # A new id, so that it replaces no other preset.
        preset, problems = from_plain(Preset(""), {**entry, "id": secrets.token_hex(6)})
        wrong.extend(problems)
        return _portable(replace(preset, name=_one_line(str(entry["name"]))))

    def read_prompt(entry: Any) -> SavedPrompt:
        prompt = plain(SavedPrompt, {**entry, "imported": True})
        return replace(prompt, name=_one_line(prompt.name))

    presets = _read_each(data.get("presets"), "preset", read_preset, wrong)
    prompts = _read_each(data.get("prompts"), "prompt", read_prompt, wrong)
    if wrong and not presets and not prompts:
        raise ValueError("nothing can be read")
    return presets, prompts, wrong


def _read_each[T](entries: Any, kind: str, read: Callable[[Any], T], wrong: list[str]) -> list[T]:
    """Return what can be read of the entries of a list, which may be None; the others are named in `wrong`."""
    if len(entries or ()) > _MAX_ENTRIES:
        raise ModelError(f"it has more than {_MAX_ENTRIES:,} of one kind of entry.", "Split it into several files.")
    results = list[T]()
    for number, entry in enumerate(entries or [], 1):
        try:
            results.append(read(entry))
        except _DAMAGE:
            wrong.append(f"{kind} {number}")
    return results


def _portable(preset: Preset) -> Preset:
    """Return a preset without folders and models of this computer."""
    draft = replace(preset.draft, drafter=None, draft_model=None) if preset.draft else None
    return replace(preset, draft=draft, models=())


def _one_line(name: str) -> str:
    return " ".join(name.split())[:_LONGEST_NAME] or "Unnamed"


def _lm_studio(data: Mapping[str, Any], file_name: str) -> ReadPresets:
    """Read LM Studio's keys and values; the keys that are not understood are returned, all for loading among them."""
    preset = Preset(_one_line(str(data.get("name") or file_name)))
    not_understood = list[str]()
    load = data.get("load")
    read = lambda entry: (str(entry["key"]), entry.get("value"))  # noqa: E731
    for part in (data["operation"], load if isinstance(load, dict) else {}):
        for key, value in _read_each(part.get("fields"), "field", read, not_understood):
            try:
                preset = _with(preset, key.removeprefix(_PREFIX), value)
            except (TypeError, ValueError, InvalidSettingError):
                not_understood.append(key[:_LONGEST_NAME])
    return [preset], [], not_understood


def _with(preset: Preset, key: str, value: Any) -> Preset:
    """Return a preset with a value of LM Studio; raises TypeError or ValueError if it is not understood."""
    match key, value:
        case _, {"checked": checked}:
            # A value with a switch, such as {"checked": true, "value": 40}; switched off, it changes nothing.
            return _with(preset, key, value.get("value")) if checked is True else preset
        case "systemPrompt", str():
            return replace(preset, system_prompt=value)
        case "structured", {"type": "json"}:
            schema = value.get("jsonSchema")
            shape = AnswerShape(ShapeKind.SCHEMA, json.dumps(schema)) if schema else AnswerShape(ShapeKind.JSON)
            return replace(preset, answer_shape=shape)
        case "structured", {"type": "none"}:
            return preset
        case _, bool() if key.rpartition(".")[2] == _THINKING:
            return replace(preset, thinking_choice=ThinkingChoice.ON if value else ThinkingChoice.OFF)
    name = _LM_STUDIO.get(key, "")
    sampling, wrong = from_plain(preset.sampling, {name: value})
    if wrong or not name:
        raise ValueError(key)
    return replace(preset, sampling=sampling, sampling_chosen=(*preset.sampling_chosen, name))
