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
from tests.services.window import WAIT_MS, Window, pause_midway

_LOOKUP = DraftSettings(mode=Mode.LOOKUP, draft_tokens=7)


def ready(window: Window) -> DraftControl:
    """Return the draft settings once the engine has said what can draft."""
    drafting = window.controller.drafting
    window.qtbot.waitUntil(lambda: drafting.option(Mode.LOOKUP) is not None, timeout=WAIT_MS)
    return drafting


def _to_be_had(drafting: DraftControl, mode: Mode) -> bool:
    option = drafting.option(mode)
    return option is not None and option.available


def test_a_request_carries_the_settings_and_asks_for_traces(window: Window, engine: ScriptedEngine) -> None:
    window.controller.drafting.change(_LOOKUP)
    window.ask("One")
    assert engine.requests[-1].draft == replace(_LOOKUP, trace=True)


def test_settings_are_kept_per_model_and_over_a_restart(window: Window, settings: SettingsStore) -> None:
    controller = window.controller
    controller.drafting.change(_LOOKUP)
    controller.model_slot.load_model("other")
    window.wait_for(EngineState.IDLE)
    assert controller.drafting.settings == DraftSettings()
    controller.drafting.change(DraftSettings(mode=Mode.SPECULATIVE))
    assert [item.model for item in controller.settings.values.drafts] == ["other", "tiny"]
    controller.model_slot.load_model(None)
    window.wait_for(EngineState.IDLE)
    assert controller.drafting.settings == _LOOKUP
    again = SettingsStore(settings.path)
    assert (again.notice, again.settings.drafts) == (None, controller.settings.values.drafts)


def test_no_more_than_fifty_models_are_remembered(window: Window) -> None:
    controller = window.controller
    many = tuple(ModelDraft(f"model-{number}", _LOOKUP) for number in range(50))
    controller.settings.change(replace(controller.settings.values, drafts=many))
    controller.drafting.change(_LOOKUP)
    kept = controller.settings.values.drafts
    assert (len(kept), kept[0].model, kept[-1].model) == (50, "tiny", "model-48")


def test_exact_times_and_traces_are_not_stored(window: Window) -> None:
    window.controller.drafting.change(replace(_LOOKUP, profile=True, trace=True))
    assert window.controller.settings.values.drafts[0].draft == _LOOKUP


def test_beams_change_in_the_reply_under_way_and_another_mode_waits(
    window: Window, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    drafting = window.controller.drafting
    drafting.change(_LOOKUP)
    engine.replies = [Reply(tokens=("a", "b", "c", "d", "e"))]
    shut_gate.allow(4)
    window.controller.send("Hi")
    window.qtbot.waitUntil(lambda: window.texts[-1:] == ["ab"], timeout=WAIT_MS)
    assert drafting.applies == ""
    drafting.change(replace(_LOOKUP, draft_tokens=2))
    assert drafting.applies == "from the next step"
    shut_gate.allow(1)
    window.qtbot.waitUntil(lambda: bool(engine.updates), timeout=WAIT_MS)
    assert engine.updates[-1] == DraftSettings(mode=Mode.LOOKUP, draft_tokens=2, trace=True)
    drafting.change(replace(_LOOKUP, mode=Mode.OFF))
    assert drafting.applies == "from the next reply"
    drafting.change(_LOOKUP)
    assert drafting.applies == ""
    shut_gate.open()
    window.wait_for(EngineState.IDLE)


def test_a_change_between_replies_applies_at_once(window: Window) -> None:
    window.ask("One")
    window.controller.drafting.change(_LOOKUP)
    assert window.controller.drafting.applies == ""


def test_the_drafts_of_another_chat_do_not_reach_a_reply(window: Window, engine: ScriptedEngine) -> None:
    controller = window.controller
    controller.settings.change_values(presets=(Preset("Plain", "1", draft=DraftSettings(mode=Mode.OFF)),))
    controller.drafting.change(_LOOKUP)
    pause_midway(window, engine)
    writing = controller.chat.id
    controller.chat.start_new()
    controller.chat.use_preset("1")
    assert controller.drafting.settings.mode is Mode.OFF
    assert controller.drafting.applies == ""
    controller.drafting.change(DraftSettings(mode=Mode.AUTO))
    controller.drafting.set_exact_times(True)
    engine.gate.open()
    window.qtbot.waitUntil(lambda: controller.replies.free, timeout=WAIT_MS)
    assert writing is not None
    assert engine.updates[-1] == replace(_LOOKUP, profile=True, trace=True)


def test_exact_times_are_sent_to_the_reply_under_way(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine)
    window.controller.drafting.set_exact_times(True)
    engine.gate.open()
    window.wait_for(EngineState.IDLE)
    assert engine.updates[-1].profile
    window.ask("Again")
    assert engine.requests[-1].draft.profile


def test_options_are_told_after_loading_and_asked_for_again_when_a_model_is_named(
    window: Window, engine: ScriptedEngine
) -> None:
    drafting = ready(window)
    asked = len(engine.options_asked)
    engine.options = DraftOptions(Path(), (ModeOption(Mode.SPECULATIVE, False, "Other tokens."),))
    drafting.change(replace(_LOOKUP, draft_tokens=3))
    assert not drafting.checking
    drafting.change(DraftSettings(mode=Mode.SPECULATIVE, draft_model="small"))
    assert drafting.checking
    window.qtbot.waitUntil(lambda: not drafting.checking, timeout=WAIT_MS)
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
    window.qtbot.waitUntil(lambda: answers == [True], timeout=WAIT_MS)
    gate.open()
    window.qtbot.waitUntil(lambda: answers == [True, False], timeout=WAIT_MS)


def test_the_checking_of_a_drafter_ends_where_it_fails(
    window: Window, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafting = ready(window)

    def fail(*_arguments: object) -> None:
        raise ModelError("It does not load.")

    monkeypatch.setattr(engine, "load_drafters", fail)
    drafting.change(DraftSettings(mode=Mode.SPECULATIVE, draft_model="one"))
    assert drafting.checking
    window.qtbot.waitUntil(lambda: not drafting.checking, timeout=WAIT_MS)


def test_a_drafter_that_was_trained_meanwhile_is_found_when_a_reply_ends(
    window: Window, engine: ScriptedEngine
) -> None:
    """The panel said that there was none until a menu was opened."""
    drafting = window.controller.drafting
    window.qtbot.waitUntil(lambda: _to_be_had(drafting, Mode.DRAFTER), timeout=WAIT_MS)
    engine.options = DraftOptions(Path(), (ModeOption(Mode.DRAFTER, False, "There is no drafter."),))
    drafting.change(DraftSettings(mode=Mode.DRAFTER))
    window.qtbot.waitUntil(lambda: not _to_be_had(drafting, Mode.DRAFTER), timeout=WAIT_MS)
    engine.options = DraftOptions(Path(), (ModeOption(Mode.DRAFTER, True),))
    engine.replies = [Reply(mode_reason="There is no drafter.")]
    window.ask("One")
    window.qtbot.waitUntil(lambda: _to_be_had(drafting, Mode.DRAFTER), timeout=WAIT_MS)
    assert drafting.last_problem == "", "what it told of is mended"


def test_options_are_not_asked_for_while_a_reply_holds_the_answer_up(window: Window, engine: ScriptedEngine) -> None:
    drafting = ready(window)
    pause_midway(window, engine)
    asked = len(engine.options_asked)
    for _ in range(3):
        drafting.refresh_options()
    engine.gate.open()
    window.wait_for(EngineState.IDLE)
    window.qtbot.waitUntil(lambda: len(engine.options_asked) > asked, timeout=WAIT_MS)
    window.ask("Again")
    window.qtbot.waitUntil(lambda: len(engine.options_asked) == asked + 2, timeout=WAIT_MS)


def test_options_of_the_model_before_are_forgotten(window: Window, engine: ScriptedEngine) -> None:
    drafting = ready(window)
    engine.load_gate.shut()
    window.controller.model_slot.load_model("other")
    assert drafting.option(Mode.LOOKUP) is None
    assert not drafting.ready
    drafting.change(_LOOKUP)
    assert window.controller.settings.values.drafts == ()
    engine.load_gate.open()
    window.qtbot.waitUntil(lambda: drafting.option(Mode.LOOKUP) is not None, timeout=WAIT_MS)


def test_it_is_told_why_a_reply_was_decoded_plainly_until_something_changes(
    window: Window, engine: ScriptedEngine
) -> None:
    engine.replies = [Reply(mode_reason="There is no drafter.")]
    window.ask("One")
    assert (
        window.controller.drafting.last_problem == "The last reply was written without drafting. There is no drafter."
    )
    window.controller.drafting.change(_LOOKUP)
    assert window.controller.drafting.last_problem == ""


def test_preparation_of_drafting_is_shown_until_it_is_done(window: Window, engine: ScriptedEngine) -> None:
    """It stayed, though the computer was idle again."""
    drafting = window.controller.drafting
    drafting._asks_again.setInterval(0)
    info = window.controller.model_slot.info
    assert info is not None
    engine.options = replace(engine.options, is_prepared=False)
    engine.replies = [Reply(mode_reason=not_prepared(info.name))]
    asked = len(engine.options_asked)
    window.ask("One")
    window.qtbot.waitUntil(lambda: len(engine.options_asked) > asked, timeout=WAIT_MS)
    assert f"Drafting with {info.name} is prepared" in drafting.last_problem
    engine.options = replace(engine.options, is_prepared=True)
    engine.idle_slices = 3
    drafting.model.engine.set_hidden(False)
    window.qtbot.waitUntil(lambda: drafting.last_problem == "", timeout=WAIT_MS)


def test_folders_chosen_before_are_offered_again(window: Window) -> None:
    controller, drafting = window.controller, window.controller.drafting
    drafting.change(DraftSettings(draft_model="/models/small", drafter="/drafters/a"))
    controller.model_slot.load_model("other")
    window.wait_for(EngineState.IDLE)
    controller.model_slot.load_model("third")
    window.wait_for(EngineState.IDLE)
    assert drafting.recent_draft_models == ("/models/small", "other")
    assert drafting.recent_drafters == ("/drafters/a",)


def test_why_a_reply_was_decoded_plainly_is_not_told_of_another_model(
    window: Window, engine: ScriptedEngine, shut_gate: Gate
) -> None:
    """The reply that a new model stops ends when the old model's words are forgotten already."""
    engine.replies = [Reply(mode_reason="There is no drafter for tiny.")]
    shut_gate.allow(4)
    window.controller.send("Hi")
    window.wait_for(EngineState.WRITING)
    window.controller.model_slot.load_model("other")
    window.wait_for(EngineState.IDLE)
    window.qtbot.waitUntil(lambda: not window.controller.recorder.live, timeout=WAIT_MS)
    assert window.controller.drafting.last_problem == ""


def test_the_draft_model_is_loaded_beside_the_model_and_named(window: Window, engine: ScriptedEngine) -> None:
    window.qtbot.waitUntil(lambda: bool(engine.drafters_loaded), timeout=WAIT_MS)
    chosen = DraftSettings(mode=Mode.SPECULATIVE, draft_model="small")
    told: list[str] = []
    window.controller.model_slot.load_progressed.connect(lambda progress: told.append(progress.stage))
    window.controller.drafting.change(chosen)
    window.qtbot.waitUntil(lambda: engine.drafters_loaded[-1] == chosen, timeout=WAIT_MS)
    window.qtbot.waitUntil(lambda: "Loading the draft model small" in told, timeout=WAIT_MS)
    engine.drafters_loaded.clear()
    window.controller.model_slot.retry()
    window.controller.send("Hi")
    window.qtbot.waitUntil(lambda: len(engine.requests) == 1, timeout=WAIT_MS)
    assert engine.drafters_loaded == [chosen], "before the reply that waits for the model"
    window.wait_for(EngineState.IDLE)
    assert not window.controller.drafting.loading
