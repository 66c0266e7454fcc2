"""Presets in files: rdchat's own come back as they were; of LM Studio's, what is not understood is named."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.conversation import NEW_CHAT, OwnOptions
from rdchat.chat.option_order import OptionOrder
from rdchat.chat.presets import Preset, SavedPrompt, presets_text, read_presets, unused_name, unused_names
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.errors import StorageError
from rdchat.inference.api import (
    AnswerShape,
    DraftSettings,
    Mode,
    SamplingDefaults,
    SamplingParams,
    ShapeKind,
    ThinkingChoice,
)

FULL = Preset(
    "Careful",
    system_prompt="Think twice.",
    sampling=SamplingParams(temperature=0.2, stop=("END",)),
    sampling_chosen=("temperature", "stop"),
    thinking_choice=ThinkingChoice.ON,
    thinking_tokens=900,
    answer_shape=AnswerShape(ShapeKind.JSON),
    draft=DraftSettings(Mode.LOOKUP),
    models=("/models/one",),
)
MODEL = SamplingDefaults(SamplingParams(temperature=0.6, top_k=20), frozenset({"temperature", "top_k"}))


def written(folder: Path, data: Any, name: str = "Coder.preset.json") -> Path:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_presets_and_prompts_come_back_from_settings_and_from_an_export(tmp_path: Path) -> None:
    prompt = SavedPrompt("Translate", "Into {{language}}: ")
    store = SettingsStore(tmp_path / "settings.json")
    store.save_settings(Settings(presets=(FULL,), prompts=(prompt,)))
    again = SettingsStore(tmp_path / "settings.json")
    assert (again.settings.presets, again.settings.prompts, again.notice) == ((FULL,), (prompt,), None)
    (preset,), prompts, not_understood = read_presets(written(tmp_path, presets_text((FULL,), (prompt,))))
    assert preset.id != FULL.id
    assert replace(preset, id=FULL.id, models=FULL.models) == FULL
    assert (prompts, not_understood) == ([replace(prompt, imported=True)], []), "an export of one's own looks the same"


def test_a_preset_of_lm_studio_is_read_and_what_is_not_understood_is_named(tmp_path: Path) -> None:
    schema = {"type": "object"}
    fields = {
        "llm.prediction.systemPrompt": "You write code.",
        "llm.prediction.temperature": 0.3,
        "llm.prediction.topPSampling": {"checked": True, "value": 0.9},
        "llm.prediction.minPSampling": {"checked": False, "value": 0.5},
        "llm.prediction.repeatPenalty": {"checked": True, "value": "much"},
        "llm.prediction.stopStrings": ["###"],
        "llm.prediction.structured": {"type": "json", "jsonSchema": schema},
        "llm.prediction.reasoning.enableThinking": False,
        "llm.prediction.contextOverflowPolicy": "rollingWindow",
    }
    data = {
        "identifier": "@local:coder",
        "operation": {"fields": [{"key": key, "value": value} for key, value in fields.items()]},
        "load": {"fields": [{"key": "llm.load.contextLength", "value": 8192}]},
    }
    (preset,), _, not_understood = read_presets(written(tmp_path, data))
    assert (preset.name, preset.system_prompt) == ("Coder", "You write code.")
    assert preset.chosen_sampling == {"temperature": 0.3, "top_p": 0.9, "stop": ("###",)}
    assert preset.thinking_choice is ThinkingChoice.OFF
    assert preset.answer_shape == AnswerShape(ShapeKind.SCHEMA, json.dumps(schema))
    assert not_understood == [
        "llm.prediction.repeatPenalty", "llm.prediction.contextOverflowPolicy", "llm.load.contextLength"
    ]  # fmt: skip


ODD = [None, True, 7, "", "odd", [], [None], {}, {"name": None}, {"name": "odd"}, {"text": "odd"}]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("place", [0, 1])
def test_an_odd_entry_takes_no_other_away_and_is_named(tmp_path: Path, odd: Any, place: int) -> None:
    data = json.loads(presets_text((FULL,), (SavedPrompt("Good", "text"),)))
    for key in ("presets", "prompts"):
        data[key].insert(place, odd)
    presets, prompts, not_understood = read_presets(written(tmp_path, data))
    assert [each.name for each in presets if each.name == "Careful"] == ["Careful"]
    assert [each for each in prompts if each.name == "Good"] == [SavedPrompt("Good", "text", imported=True)]
    named = (len(presets) == 2 or f"preset {place + 1}" in not_understood, f"prompt {place + 1}" in not_understood)
    assert named == (True, True)


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_field_of_lm_studio_takes_no_other_away_and_is_named(tmp_path: Path, odd: Any) -> None:
    good = {"key": "llm.prediction.temperature", "value": 0.3}
    data = {"operation": {"fields": [odd, good]}, "load": {"fields": [odd, {"key": "llm.load.x"}]}}
    (preset,), _, not_understood = read_presets(written(tmp_path, data))
    assert preset.chosen_sampling == {"temperature": 0.3}
    assert not_understood == ["field 1", "field 1", "llm.load.x"]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"operation": {"fields": 1}}', '{"format": "rdchat presets", "presets": [1]}', "[" * 100_000],
)
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    with pytest.raises(StorageError, match="cannot be imported"):
        read_presets(written(tmp_path, content))


def test_an_exchanged_preset_has_a_name_on_one_line_and_no_path_of_a_computer(tmp_path: Path) -> None:
    drafted = replace(FULL, draft=DraftSettings(Mode.DRAFTER, draft_model="/models/a", drafter="/drafters/b"))
    text = presets_text((drafted,), ())
    assert not any(each in text for each in ("/models", "/drafters"))
    foreign = {**asdict(drafted), "name": "Two\nlines" + "!" * 999}
    data = {"format": "rdchat presets", "presets": [foreign], "prompts": [{"name": "a\nb", "text": "c\nd"}]}
    (preset,), prompts, _ = read_presets(written(tmp_path, data))
    assert preset.draft == DraftSettings(Mode.DRAFTER)
    assert preset.name == ("Two lines" + "!" * 999)[:200]
    assert prompts == [SavedPrompt("a b", "c\nd", imported=True)]
    # No field of a file has a say.
    data["prompts"] = [{"name": "a", "text": "b", "imported": False}]
    assert read_presets(written(tmp_path, data))[1] == [SavedPrompt("a", "b", imported=True)]
    old = {"prompts": [{"name": "a", "text": "b"}]}
    assert SettingsStore(written(tmp_path, old, "settings.json")).settings.prompts == (SavedPrompt("a", "b"),)


def test_the_order_is_chat_preset_settings_model() -> None:
    settings = Settings(sampling=SamplingParams(top_k=40, temperature=0.9))
    order = OptionOrder(replace(settings, system_prompt="Usual.", presets=(FULL,)), MODEL, Path("/models/two"))
    usual = order.effective_values(NEW_CHAT)
    assert (usual.system_prompt, usual.sampling) == ("Usual.", SamplingParams(temperature=0.9, top_k=40))
    chat = replace(NEW_CHAT, own=OwnOptions(FULL.id))
    values = order.effective_values(chat)
    assert (values.system_prompt, values.thinking_tokens, values.draft) == ("Think twice.", 900, FULL.draft)
    assert values.sampling == SamplingParams(temperature=0.2, top_k=40, stop=("END",))
    changed = order.own(chat, replace(values, thinking_choice=None, thinking_tokens=5))
    assert changed == {"thinking_choice": None, "thinking_tokens": 5}
    own = chat.with_own(changed)
    assert (order.effective_values(own).thinking_choice, order.effective_values(own).answer_shape) == (
        None,
        FULL.answer_shape,
    )
    assert own.with_own(order.own(own, values)) == chat


def test_a_models_default_preset_can_be_left_and_a_deleted_one_is_none() -> None:
    order = OptionOrder(Settings(presets=(FULL,)), MODEL, Path("/models/one"))
    assert order.preset() == FULL
    assert order.effective_values(NEW_CHAT).sampling == SamplingParams(temperature=0.2, top_k=20, stop=("END",))
    for other in ("", "deleted"):
        chat = replace(NEW_CHAT, own=OwnOptions(other))
        assert order.preset(chat) is None
        assert order.effective_values(chat).sampling == MODEL.params


def test_a_saved_preset_holds_what_was_chosen_and_leaves_the_rest_to_the_model() -> None:
    order = OptionOrder(Settings(), MODEL)
    chat = replace(NEW_CHAT, sampling=SamplingParams(temperature=0.1, top_k=20))
    preset = order.as_preset(chat, "Cool", None)
    assert preset.chosen_sampling == {"temperature": 0.1}
    assert preset.system_prompt is None


def test_names_stay_different() -> None:
    items = [SavedPrompt("a", ""), SavedPrompt("a 2", "")]
    assert [unused_name(name, items) for name in ("a", "b")] == ["a 3", "b"]
    assert unused_names(["a", "b", "a 4", "a", "b", "b 2"], items) == ["a 3", "b", "a 4", "a 5", "b 2", "b 2 2"]


def test_a_file_of_more_presets_than_a_list_shows_is_refused(tmp_path: Path) -> None:
    data = {"format": "rdchat presets", "presets": [{"name": "a"}] * 1001}
    with pytest.raises(StorageError, match="more than 1,000"):
        read_presets(written(tmp_path, data))
    fields = {"fields": [{"key": "a", "value": 1}] * 1001}
    with pytest.raises(StorageError, match="more than 1,000"):
        read_presets(written(tmp_path, {"operation": fields}))
