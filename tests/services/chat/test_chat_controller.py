"""The controller over the real store and settings; only the engine is scripted."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import pytest

from rdchat.chat.conversation import Drafting, MadeWith, MessageStatus, Notice
from rdchat.chat.settings import SettingsStore
from rdchat.errors import DoesNotFitError, ModelError, OutOfMemoryError
from rdchat.inference.api import (
    ChatMessage,
    Dtype,
    FinishReason,
    Role,
    SamplingDefaults,
    SamplingParams,
    Statistics,
    reply_seed,
)
from rdchat.services.engine.engine_request import EngineState, Failure
from tests.listed_chats import listed
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window, pause_in_prefill, pause_midway, restarted

# Sending


def test_a_first_prompt_is_answered_and_makes_the_chat_and_its_title(window: Window) -> None:
    controller = window.controller
    assert (controller.chat.stored_conversation, controller.chat.path, listed(controller.chats)) == (None, [], [])
    reply = window.ask("What is a tree?\nIn two lines.")
    assert window.texts == ["What is a tree?\nIn two lines.", "Hello, you!"]
    assert (reply.status, reply.finish_reason, reply.model) == (MessageStatus.COMPLETE, FinishReason.EOS, "tiny")
    assert reply.statistics == Statistics(prompt_tokens=8, generated_tokens=4)
    assert window.titles == ["What is a tree?"]
    assert controller.chat.stored_conversation is not None
    assert window.store.messages(controller.chat.stored_conversation.id) == controller.chat.path
    assert "".join(window.seen.grown) == "Hello, you!"
    assert window.seen.states == [
        EngineState.LOADING,
        EngineState.IDLE,
        EngineState.PREFILL,
        EngineState.WRITING,
        EngineState.IDLE,
    ]


def test_the_model_is_told_the_system_prompt_and_the_whole_path(window: Window, engine: ScriptedEngine) -> None:
    window.settings.change_values(system_prompt="Be brief.")
    window.chat.set_options(sampling=SamplingParams(temperature=0))
    window.ask("One")
    window.ask("Two")
    assert engine.last_request.messages == (
        ChatMessage(Role.SYSTEM, "Be brief."),
        ChatMessage(Role.USER, "One"),
        ChatMessage(Role.ASSISTANT, "Hello, you!"),
        ChatMessage(Role.USER, "Two"),
    )
    assert engine.last_request.sampling.temperature == 0
    window.chat.set_options(system_prompt="")
    window.ask("Three")
    assert engine.last_request.messages[0] == ChatMessage(Role.USER, "One"), "the chat's own, which is empty"


@pytest.mark.parametrize("text", ["", "  \n\t"])
def test_an_empty_prompt_is_refused_with_a_reason(window: Window, text: str) -> None:
    window.send(text)
    assert window.seen.refused == [(text, "Type something to ask.")]
    assert window.titles == []


def test_a_prompt_sent_while_the_model_loads_waits_for_it(loading: Window, engine: ScriptedEngine) -> None:
    assert loading.replies.state is EngineState.LOADING
    assert loading.texts == ["Hi", ""]
    assert loading.chat.streaming_id == loading.last.id
    engine.load_gate.open()
    loading.wait_until_idle()
    assert (loading.last.text, loading.last.model) == ("Hello, you!", "tiny")


def test_reply_seeds_follow_the_persons_seed_turn_and_alternative(window: Window, engine: ScriptedEngine) -> None:
    window.settings.change_values(seed=0)
    window.ask("One")
    reply = window.ask("Two")
    assert reply.seed == engine.last_request.seed == reply_seed(0, 3, 0)
    window.regenerate(reply.id)
    assert engine.last_request.seed == window.last.seed == reply_seed(0, 3, 1)


# Stopping


def test_a_stopped_reply_keeps_its_text_and_can_be_continued(window: Window, engine: ScriptedEngine) -> None:
    reply_id = pause_midway(window, engine)
    window.stop_reply()
    window.wait_until_idle()
    reply = window.store.message(reply_id)
    assert (reply.text, reply.status, reply.finish_reason) == ("Hello,", MessageStatus.COMPLETE, FinishReason.CANCELLED)
    engine.replies = [Reply(tokens=(" dear", " you."))]
    engine.gate.open()
    window.continue_reply(reply_id)
    assert window.seen.changed[-1].status is MessageStatus.STREAMING
    window.wait_until_idle()
    assert window.store.message(reply_id).text == window.texts[-1] == "Hello, dear you."
    assert engine.last_request.continue_last
    assert engine.last_request.messages[-1] == ChatMessage(Role.ASSISTANT, "Hello,")
    assert engine.last_request.seed == reply.seed


def test_the_figures_of_a_continued_reply_are_marked_as_those_of_its_last_part(
    window: Window, engine: ScriptedEngine
) -> None:
    """A reply of 520 tokens said that it had 20."""
    first = window.ask("Hi")
    engine.replies = [Reply(tokens=(" And", " you?"))]
    window.continue_reply(first.id)
    window.wait_until_idle()
    continued = window.store.message(first.id)
    assert continued.statistics == Statistics(prompt_tokens=8, generated_tokens=2)
    assert (first.drafting, continued.drafting) == (Drafting(), Drafting(last_part=True))
    window.regenerate(first.id)
    assert window.last.drafting == Drafting()


def test_the_model_is_told_which_control_tokens_are_its_own_after_a_restart_too(
    window: Window, engine: ScriptedEngine
) -> None:
    engine.replies = [Reply(tokens=("<think>", "hm", "</think>"), control_offsets=(0, 9))]
    first = window.ask("Hi <think>")
    engine.replies = [Reply(tokens=(" so", "<think>"), control_offsets=(3,))]
    window.continue_reply(first.id)
    window.wait_until_idle()
    assert engine.last_request.messages[-1].own_control == (0, 9)
    assert window.store.message(first.id).control_offsets == (0, 9, 20)
    window.chat.start_new()
    window.chat.open_chat(first.conversation_id)
    window.ask("More")
    assert [message.own_control for message in engine.last_request.messages] == [(), (0, 9, 20), ()]
    window.regenerate(first.id)
    assert window.last.control_offsets == (3,)


def test_a_stop_during_prefill_leaves_an_empty_reply_that_continue_answers(
    window: Window, engine: ScriptedEngine
) -> None:
    pause_in_prefill(window, engine)
    window.stop_reply()
    window.wait_until_idle()
    reply = window.last
    assert (reply.text, reply.finish_reason) == ("", FinishReason.CANCELLED)
    engine.gate.open()
    window.continue_reply(reply.id)
    window.wait_until_idle()
    assert window.texts == ["Hi", "Hello, you!"]
    assert not engine.last_request.continue_last


def test_a_stop_while_the_model_loads_withdraws_the_prompt_from_the_queue(
    loading: Window, engine: ScriptedEngine
) -> None:
    loading.stop_reply()
    assert loading.last.finish_reason is FinishReason.CANCELLED
    engine.load_gate.open()
    loading.wait_until_idle()
    assert engine.requests == []


def test_closing_midway_keeps_what_was_written(window: Window, engine: ScriptedEngine) -> None:
    reply_id = pause_midway(window, engine)
    assert window.shut_down()
    reply = window.store.message(reply_id)
    assert (reply.text, reply.status) == ("Hello,", MessageStatus.COMPLETE)


def test_closing_while_a_prompt_waits_for_the_model_leaves_it_interrupted(
    loading: Window, engine: ScriptedEngine
) -> None:
    reply_id = loading.last.id
    engine.load_gate.allow(1)
    assert loading.shut_down()
    assert loading.store.message(reply_id).status is MessageStatus.INTERRUPTED


@pytest.mark.parametrize("stopped", [False, True])
def test_closing_while_the_prompt_is_read_leaves_the_reply_interrupted_or_stopped(
    window: Window, engine: ScriptedEngine, stopped: bool
) -> None:
    """It was told as stopped, as if the person had done so."""
    reply_id = pause_in_prefill(window, engine)
    if stopped:
        window.stop_reply()
    assert window.shut_down()
    reply = window.store.message(reply_id)
    assert (reply.text, reply.finish_reason) == ("", FinishReason.CANCELLED if stopped else None)
    assert (reply.status is MessageStatus.INTERRUPTED) is not stopped


# Alternatives


def test_an_edit_is_answered_and_keeps_the_old_branch(window: Window, engine: ScriptedEngine) -> None:
    window.ask("One")
    window.ask("Two")
    engine.replies = [Reply(tokens=("Uno!",))]
    window.edit_message(window.chat.path[0].id, "Uno")
    window.wait_until_idle()
    assert window.texts == ["Uno", "Uno!"]
    assert engine.last_request.messages == (ChatMessage(Role.USER, "Uno"),)
    window.chat.show_alternative(window.chat.path[0].id, -1)
    assert window.texts == ["One", "Hello, you!", "Two", "Hello, you!"]


@pytest.mark.parametrize("command", ["edit", "regenerate"])
def test_editing_or_regenerating_while_writing_stops_that_reply_first(
    window: Window, engine: ScriptedEngine, command: str
) -> None:
    reply_id = pause_midway(window, engine)
    engine.replies = [Reply(tokens=("New",))]
    prompt_id = window.chat.path[0].id
    if command == "edit":
        window.edit_message(prompt_id, "Hey")
    else:
        window.controller.regenerate(reply_id)
    engine.gate.open()
    window.wait_until_idle()
    assert window.texts == ["Hey" if command == "edit" else "Hi", "New"]
    stopped = window.store.message(reply_id)
    assert (stopped.text, stopped.finish_reason) == ("Hello,", FinishReason.CANCELLED)


def test_only_an_ended_reply_at_the_end_of_the_path_is_continued(window: Window, engine: ScriptedEngine) -> None:
    first = window.ask("One")
    streaming = pause_midway(window, engine, "Two")
    window.continue_reply(first.id)
    window.continue_reply(streaming)
    assert len(engine.requests) == 2


# Several conversations


def test_switching_back_shows_the_text_so_far_and_goes_on_live(window: Window, engine: ScriptedEngine) -> None:
    reply_id = pause_midway(window, engine, "First")
    first = window.stored_chat
    window.chat.start_new()
    engine.gate.allow(1)
    window.chat.open_chat(first.id)
    assert window.chat.streaming_id == reply_id
    assert window.texts[-1].startswith("Hello,")
    window.wait_until(lambda: window.texts[-1] == "Hello, you")
    engine.gate.open()
    window.wait_until_idle()
    assert window.texts[-1] == "Hello, you!"
    assert window.seen.changed[-1].id == reply_id


def test_deleting_the_conversation_that_is_written_stops_it_and_opens_its_neighbour(
    window: Window, engine: ScriptedEngine
) -> None:
    window.ask("Older")
    window.chat.start_new()
    reply_id = pause_midway(window, engine, "Newer")
    deleted = window.stored_chat
    window.chats.delete_conversation(deleted.id)
    assert window.titles == ["Older"]
    assert window.texts[0] == "Older"
    assert window.seen.removed == [deleted.id]
    window.wait_until_idle()
    window.chats.undo()
    assert window.titles == ["Newer", "Older"]
    assert window.texts == ["Newer", "Hello,"]
    assert window.last.id == reply_id
    window.chats.undo()
    assert len(window.titles) == 2


def test_conversations_are_searched(window: Window) -> None:
    window.ask("Trees and birds")
    window.chat.start_new()
    window.ask("Cars")
    window.chats.list_hits("bir")
    window.wait_until(lambda: window.titles == ["Trees and birds"])
    window.chats.list_hits("")
    assert len(window.titles) == 2


# Models


def test_a_model_that_does_not_load_fails_the_waiting_reply_and_another_mends_it(
    loading: Window, engine: ScriptedEngine, settings: SettingsStore
) -> None:
    engine.load_errors[None] = ModelError("The weights are cut short.", "Fetch them again.")
    engine.load_gate.open()
    window = loading
    window.wait_for(EngineState.NO_MODEL)
    failed = window.last
    assert (failed.status, failed.error) == (MessageStatus.FAILED, "The weights are cut short. Fetch them again.")
    assert window.slot.failure == Failure("The weights are cut short.", "Fetch them again.")
    assert window.slot.info is None

    window.continue_reply(failed.id)
    assert window.replies.state is EngineState.LOADING
    window.wait_for(EngineState.NO_MODEL)
    assert window.last.error == "The weights are cut short. Fetch them again."

    window.load("/models/good", Dtype.FLOAT16)
    assert window.slot.failure is None
    window.regenerate(failed.id)
    reply = window.last
    assert (reply.text, reply.model, reply.sibling) == ("Hello, you!", "/models/good", 1)
    assert (settings.settings.model, settings.settings.dtype) == ("/models/good", Dtype.FLOAT16)
    assert settings.settings.recent_models == ("/models/good",)


def test_another_model_stops_the_reply_and_recent_ones_are_remembered(
    window: Window, engine: ScriptedEngine, settings: SettingsStore
) -> None:
    reply_id = pause_midway(window, engine)
    window.load("a")
    stopped = window.store.message(reply_id)
    assert (stopped.finish_reason, stopped.error) == (FinishReason.CANCELLED, "Stopped: another model was loaded.")
    for name in ("b", "a"):
        window.load(name)
    assert settings.settings.recent_models == ("a", "b")
    assert window.slot.info is not None
    assert window.slot.info.name == "a"


def test_another_precision_is_for_the_model_that_did_not_load(
    window: Window, engine: ScriptedEngine, settings: SettingsStore
) -> None:
    """It loaded the default model: the one too large for memory was known nowhere."""
    engine.load_errors["/models/big"] = OutOfMemoryError("It needs 80 GB.", "Choose a smaller precision.")
    window.slot.load_model("/models/big")
    window.wait_for(EngineState.NO_MODEL)
    assert (settings.settings.model, settings.settings.recent_models) == ("/models/big", ())
    assert window.slot.failure == Failure("It needs 80 GB.", "Choose a smaller precision.")
    engine.load_errors.clear()
    window.slot.retry(Dtype.FOUR_BIT)
    window.wait_until_idle()
    assert engine.loads[-1] == ("/models/big", Dtype.FOUR_BIT)
    assert settings.settings.recent_models == ("/models/big",)
    assert settings.settings.dtype is Dtype.FOUR_BIT
    window.load("/models/small")  # in the precision that was chosen last
    assert engine.loads[-1] == ("/models/small", Dtype.FOUR_BIT)


def test_model_that_seems_too_large_is_loaded_anyway_on_request(
    window: Window, engine: ScriptedEngine, settings: SettingsStore
) -> None:
    engine.load_errors["/models/big"] = DoesNotFitError("It needs 80 GB.", "Choose a smaller precision.")
    window.slot.load_model("/models/big", Dtype.FLOAT16)
    window.wait_for(EngineState.NO_MODEL)
    slot = window.slot
    assert slot.failure == Failure("It needs 80 GB.", "Choose a smaller precision.", can_load_anyway=True)
    slot.retry()
    window.wait_for(EngineState.NO_MODEL)
    assert engine.loaded_anyway == []
    engine.warning = "It needs 80 GB; 20 GB are free."
    slot.load_anyway()
    window.wait_until_idle()
    assert engine.loaded_anyway == ["/models/big"]
    assert engine.loads[-1] == ("/models/big", Dtype.FLOAT16)
    assert window.seen.notices[-1] == Notice("Memory is tight", "It needs 80 GB; 20 GB are free.")
    assert settings.settings.recent_models == ("/models/big",)


def test_a_message_behind_a_waiting_one_loads_the_model_too(window: Window, engine: ScriptedEngine) -> None:
    window.ask("Hi")
    window.slot.unload_model()
    window.wait_for(EngineState.NO_MODEL)
    chat = window.chat
    chat.unsent.queue_message(chat.take_message("First"))
    window.send("Second")
    window.wait_until(lambda: len(engine.requests) == 3)
    assert not chat.unsent.waiting


def test_a_warning_of_a_models_files_is_not_one_of_memory(window: Window, engine: ScriptedEngine) -> None:
    engine.warning = "The tokenizer of other turns 'a' into 'b'."
    engine.may_differ = True
    window.load("/models/other")
    assert window.seen.notices[-1] == Notice("Replies can differ", "The tokenizer of other turns 'a' into 'b'.")


def test_model_that_does_not_load_is_not_added_to_the_recent_ones(
    window: Window, engine: ScriptedEngine, settings: SettingsStore
) -> None:
    """A folder without a model stood first among them for good."""
    for name in ("/models/a", "/models/b"):
        window.load(name)
    for name in ("/downloads", "/models/a"):
        engine.load_errors[name] = ModelError("There is no model.", "Choose another.")
        window.slot.load_model(name)
        window.wait_for(EngineState.NO_MODEL)
        assert settings.settings.recent_models == ("/models/b", "/models/a")


def test_a_choice_is_kept_only_once_its_outcome_is_known(
    window: Window, engine: ScriptedEngine, settings: SettingsStore
) -> None:
    """A model that takes the whole process down would do so at every start."""
    engine.load_gate.shut()
    window.slot.load_model("/models/deadly")
    window.wait_until(lambda: engine.load_gate.is_waiting)
    assert window.slot.chosen == "/models/deadly"
    assert settings.settings.model is None


def test_closing_again_does_not_wait_again_for_a_thread_that_hangs(window: Window, engine: ScriptedEngine) -> None:
    engine.load_gate.shut()
    window.slot.load_model("/models/other")
    window.wait_until(lambda: engine.load_gate.is_waiting)
    began = perf_counter()
    assert not window.shut_down(timeout_s=0.1)
    assert not window.shut_down()
    assert perf_counter() - began < 5  # the usual patience is ten seconds
    engine.load_gate.open()
    window.wait_until(window.shut_down)


def test_a_reply_that_breaks_off_keeps_its_text_and_can_be_continued(window: Window, engine: ScriptedEngine) -> None:
    engine.replies = [Reply(tokens=("Half",), error=ModelError("The device is gone.")), Reply(tokens=(" done",))]
    reply = window.ask("Hi")
    assert (reply.text, reply.status, reply.error) == ("Half", MessageStatus.FAILED, "The device is gone.")
    window.continue_reply(reply.id)
    window.wait_until_idle()
    continued = window.last
    assert (continued.id, continued.text, continued.error) == (reply.id, "Half done", "")
    assert continued.status is MessageStatus.COMPLETE


def test_a_reply_that_begins_in_a_thought_is_known_as_such_while_it_is_written(
    window: Window, engine: ScriptedEngine
) -> None:
    tokens = ("I wonder", ".</think>", "Hello", "!")
    engine.replies[:] = [Reply(tokens=tokens, in_thought=True)]
    reply = window.ask("Hi")
    assert reply.thinking.begun
    assert (reply.parts.thought, reply.parts.answer) == ("I wonder.", "Hello!")
    begun, *_ = window.seen.changed
    assert (begun.thinking.begun, begun.text) == (True, "")
    assert window.store.message(reply.id).thinking == reply.thinking


# Sampling


def test_a_models_own_sampling_holds_where_the_person_chose_none(window: Window, engine: ScriptedEngine) -> None:
    engine.sampling = SamplingDefaults(SamplingParams(temperature=0.2, top_k=20), frozenset({"temperature", "top_k"}))
    window.slot.load_model("/models/other")
    reply = window.ask("One")  # sent while the model loads
    assert engine.last_request.sampling == SamplingParams(temperature=0.2, top_k=20)
    assert reply.made_with == MadeWith(SamplingParams(temperature=0.2, top_k=20))
    assert window.store.message(reply.id).made_with == reply.made_with
    settings = window.settings
    settings.change_values(sampling=SamplingParams(temperature=0.9))
    window.ask("Two")
    assert engine.last_request.sampling == SamplingParams(temperature=0.9, top_k=20)
    window.chat.set_options(sampling=SamplingParams(temperature=0))
    window.ask("Three")
    assert engine.last_request.sampling == SamplingParams(temperature=0)


def test_a_start_opens_the_chat_viewed_last_also_after_a_crash(
    window: Window, window_on: Callable[[Path], Window], settings: SettingsStore
) -> None:
    """It was written at the end only, so a start after a crash opened the newest chat."""
    window.controller._opened.setInterval(0)
    window.ask("First")
    first = window.chat.id
    window.chat.start_new()
    window.ask("Second")
    assert first is not None
    window.chat.open_chat(first)
    window.wait_until(lambda: SettingsStore(settings.path).settings.last_chat == first)
    assert restarted(window, window_on).texts == ["First", "Hello, you!"]
