"""Draft settings per model, what is to be had, and what reaches a reply under way."""

from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.chat.presets import Preset
from rdchat.chat.settings import ModelDraft, SettingsStore
from rdchat.errors import ModelError
from rdchat.inference.api import DraftOptions, DraftSettings, Mode, ModeOption, not_prepared
from rdchat.services.engine.draft_control import DraftControl
from rdchat.services.engine.engine_request import EngineState
from tests.services.fakes import Gate, Reply, ScriptedEngine
from tests.services.window import Window, pause_midway

_LOOKUP = DraftSettings(mode=Mode.LOOKUP, draft_tokens=7)


def ready(window: Window) -> DraftControl:
    """Return the draft settings once the engine has said what can draft."""
    drafting = window.drafting
    window.wait_until(lambda: drafting.option(Mode.LOOKUP) is not None)
    return drafting


def _to_be_had(drafting: DraftControl, mode: Mode) -> bool:
    option = drafting.option(mode)
    return option is not None and option.available


def test_settings_are_kept_per_model_and_over_a_restart(window: Window, settings: SettingsStore) -> None:
    drafting = window.drafting
    drafting.change(_LOOKUP)
    window.load("other")
    assert drafting.settings == DraftSettings()
    drafting.change(DraftSettings(mode=Mode.SPECULATIVE))
    assert [item.model for item in window.settings.values.drafts] == ["other", "tiny"]
    window.load(None)
    assert drafting.settings == _LOOKUP
    again = SettingsStore(settings.path)
    assert (again.notice, again.settings.drafts) == (None, window.settings.values.drafts)


def test_no_more_than_fifty_models_are_remembered(window: Window) -> None:
    many = tuple(ModelDraft(f"model-{number}", _LOOKUP) for number in range(50))
    window.settings.change_values(drafts=many)
    window.drafting.change(_LOOKUP)
    kept = window.settings.values.drafts
    assert (len(kept), kept[0].model, kept[-1].model) == (50, "tiny", "model-48")


def test_a_request_carries_the_settings_with_exact_times_and_traces_which_are_not_stored(
    window: Window, engine: ScriptedEngine
) -> None:
    window.drafting.change(replace(_LOOKUP, profile=True, trace=True))
    window.drafting.set_exact_times(True)
    window.ask("One")
    assert engine.last_request.draft == replace(_LOOKUP, profile=True, trace=True)
    assert window.settings.values.drafts[0].draft == _LOOKUP


def test_beams_change_in_the_reply_under_way_and_another_mode_waits(
    window: Window, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    drafting = window.drafting
    drafting.change(_LOOKUP)
    engine.replies = [Reply(tokens=("a", "b", "c", "d", "e"))]
    shut_gate.allow(4)
    window.send("Hi")
    window.wait_until(lambda: window.texts[-1:] == ["ab"])
    assert drafting.applies == ""
    drafting.change(replace(_LOOKUP, draft_tokens=2))
    assert drafting.applies == "from the next step"
    shut_gate.allow(1)
    window.wait_until(lambda: bool(engine.updates))
    assert engine.updates[-1] == DraftSettings(mode=Mode.LOOKUP, draft_tokens=2, trace=True)
    drafting.change(replace(_LOOKUP, mode=Mode.OFF))
    assert drafting.applies == "from the next reply"
    drafting.change(_LOOKUP)
    assert drafting.applies == ""
    shut_gate.open()
    window.wait_until_idle()
    drafting.change(DraftSettings())
    assert drafting.applies == "", "it applies at once"


def test_the_drafts_of_another_chat_do_not_reach_a_reply(window: Window, engine: ScriptedEngine) -> None:
    chat = window.chat
    drafting = window.drafting
    window.settings.change_values(presets=(Preset("Plain", "1", draft=DraftSettings(mode=Mode.OFF)),))
    drafting.change(_LOOKUP)
    pause_midway(window, engine)
    chat.start_new()
    chat.use_preset("1")
    assert drafting.settings.mode is Mode.OFF
    assert drafting.applies == ""
    drafting.change(DraftSettings(mode=Mode.AUTO))
    drafting.set_exact_times(True)
    engine.gate.open()
    window.wait_until(lambda: window.replies.free)
    assert engine.updates[-1] == replace(_LOOKUP, profile=True, trace=True)


def test_options_are_told_after_loading_and_asked_for_again_when_a_model_is_named(
    window: Window, engine: ScriptedEngine
) -> None:
    drafting = ready(window)
    asked = len(engine.options_asked)
    engine.options = DraftOptions(Path(), (ModeOption(Mode.SPECULATIVE, False, "Other tokens."),))
    drafting.change(replace(_LOOKUP, draft_tokens=3))
    window.wait_until(lambda: not drafting.checking)
    drafting.change(DraftSettings(mode=Mode.SPECULATIVE, draft_model="small"))
    assert drafting.checking
    window.wait_until(lambda: not drafting.checking)
    assert [settings.draft_model for settings in engine.options_asked[asked:]] == [None, "small"]
    told = drafting.option(Mode.SPECULATIVE)
    assert told is not None
    assert told.reason == "Other tokens."


def test_an_answer_about_an_earlier_drafter_does_not_end_the_checking_of_a_newer_one(
    window: Window, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafting = ready(window)
    gate = Gate(open_=False)
    monkeypatch.setattr(engine, "load_drafters", lambda *_arguments: gate.wait())
    answers: list[bool] = []
    drafting.changed.connect(lambda: answers.append(drafting.checking))
    drafting.change(DraftSettings(mode=Mode.SPECULATIVE, draft_model="one"))
    drafting.change(DraftSettings(mode=Mode.SPECULATIVE, draft_model="two"))
    answers.clear()
    gate.allow(1)
    window.wait_until(lambda: answers == [True])
    gate.open()
    window.wait_until(lambda: answers == [True, False])


def test_the_checking_of_a_drafter_ends_where_it_fails(
    window: Window, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafting = ready(window)

    def fail(*_arguments: object) -> None:
        raise ModelError("It does not load.")

    monkeypatch.setattr(engine, "load_drafters", fail)
    drafting.change(DraftSettings(mode=Mode.SPECULATIVE, draft_model="one"))
    assert drafting.checking
    window.wait_until(lambda: not drafting.checking)


def test_a_drafter_that_was_trained_meanwhile_is_found_when_a_reply_ends(
    window: Window, engine: ScriptedEngine
) -> None:
    """The panel said that there was none until a menu was opened."""
    drafting = window.drafting
    window.wait_until(lambda: _to_be_had(drafting, Mode.DRAFTER))
    engine.options = DraftOptions(Path(), (ModeOption(Mode.DRAFTER, False, "There is no drafter."),))
    drafting.change(DraftSettings(mode=Mode.DRAFTER))
    window.wait_until(lambda: not _to_be_had(drafting, Mode.DRAFTER))
    engine.options = DraftOptions(Path(), (ModeOption(Mode.DRAFTER, True),))
    engine.replies = [Reply(mode_reason="There is no drafter.")]
    window.ask("One")
    window.wait_until(lambda: _to_be_had(drafting, Mode.DRAFTER))
    assert drafting.last_problem == "", "what it told of is mended"


def test_options_are_not_asked_for_while_a_reply_holds_the_answer_up(window: Window, engine: ScriptedEngine) -> None:
    drafting = ready(window)
    pause_midway(window, engine)
    asked = len(engine.options_asked)
    for _ in range(3):
        drafting.refresh_options()
    engine.gate.open()
    window.wait_until_idle()
    window.wait_until(lambda: len(engine.options_asked) > asked)
    window.ask("Again")
    window.wait_until(lambda: len(engine.options_asked) == asked + 2)


def test_options_of_the_model_before_are_forgotten(window: Window, engine: ScriptedEngine) -> None:
    drafting = ready(window)
    engine.load_gate.shut()
    window.slot.load_model("other")
    assert drafting.option(Mode.LOOKUP) is None
    assert not drafting.ready
    drafting.change(_LOOKUP)
    assert window.settings.values.drafts == ()
    engine.load_gate.open()
    window.wait_until(lambda: drafting.option(Mode.LOOKUP) is not None)


def test_it_is_told_why_a_reply_was_decoded_plainly_until_something_changes(
    window: Window, engine: ScriptedEngine
) -> None:
    engine.replies = [Reply(mode_reason="There is no drafter.")]
    window.ask("One")
    drafting = window.drafting
    assert drafting.last_problem == "There is no drafter."
    drafting.change(_LOOKUP)
    assert drafting.last_problem == ""


def test_preparation_of_drafting_is_shown_until_it_is_done(window: Window, engine: ScriptedEngine) -> None:
    """It stayed, though the computer was idle again."""
    drafting = window.drafting
    drafting._asks_again.setInterval(0)
    info = window.slot.info
    assert info is not None
    engine.options = replace(engine.options, is_prepared=False)
    engine.replies = [Reply(mode_reason=not_prepared(info.name))]
    asked = len(engine.options_asked)
    window.ask("One")
    window.wait_until(lambda: len(engine.options_asked) > asked)
    assert f"Drafting with {info.name} is prepared" in drafting.last_problem
    engine.options = replace(engine.options, is_prepared=True)
    engine.idle_slices = 3
    drafting.model.engine.set_hidden(False)
    window.wait_until(lambda: drafting.last_problem == "")


def test_folders_chosen_before_are_offered_again(window: Window) -> None:
    drafting = window.drafting
    drafting.change(DraftSettings(draft_model="/models/small", drafter="/drafters/a"))
    window.load("other")
    window.load("third")
    assert drafting.recent_draft_models == ("/models/small", "other")
    assert drafting.recent_drafters == ("/drafters/a",)


def test_why_a_reply_was_decoded_plainly_is_not_told_of_another_model(
    window: Window, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    """The reply that a new model stops ends when the old model's words are forgotten already."""
    engine.replies = [Reply(mode_reason="There is no drafter for tiny.")]
    shut_gate.allow(4)
    window.send("Hi")
    window.wait_for(EngineState.WRITING)
    window.load("other")
    window.wait_until(lambda: not window.controller.recorder.live)
    assert window.drafting.last_problem == ""


def test_the_draft_model_is_loaded_beside_the_model_and_named(window: Window, engine: ScriptedEngine) -> None:
    window.wait_until(lambda: bool(engine.drafters_loaded))
    chosen = DraftSettings(mode=Mode.SPECULATIVE, draft_model="small")
    told: list[str] = []
    window.slot.load_progressed.connect(lambda progress: told.append(progress.stage))
    window.drafting.change(chosen)
    window.wait_until(lambda: engine.drafters_loaded[-1] == chosen)
    window.wait_until(lambda: "Loading the draft model small" in told)
    engine.drafters_loaded.clear()
    window.slot.retry()
    window.send("Hi")
    window.wait_until(lambda: len(engine.requests) == 1)
    assert engine.drafters_loaded == [chosen], "before the reply that waits for the model"
    window.wait_until_idle()
    window.wait_until(lambda: not window.drafting.checking)
