"""The tokens of the open chat with what is typed are counted on a thread."""

import threading

from rdchat.errors import ModelError, PromptTooLongError
from rdchat.services.chat.context_meter import ContextMeter, ContextUse
from rdchat.services.engine.engine_request import EngineState
from tests.services.fakes import MODEL, ScriptedEngine
from tests.services.window import Window, pause_midway


def wait_for(window: Window, tokens: int | None) -> ContextUse:
    meter = window.context.meter
    window.wait_until(lambda: meter.use is not None and meter.use.tokens == tokens)
    assert meter.use is not None
    return meter.use


def test_the_chat_is_counted_with_what_is_typed_on_a_thread_of_its_own(window: Window, engine: ScriptedEngine) -> None:
    wait_for(window, 0)
    window.ask("one two")  # 3 tokens; "Hello, you!" has 3
    wait_for(window, 6)
    window.chat.set_typed("three four five")
    use = wait_for(window, 10)
    assert (use.limit, use.typed, use.fits) == (MODEL.context_length, "three four five", True)
    window.chat.set_options(system_prompt="Be brief")
    wait_for(window, 13)
    assert not engine.counting_threads & (engine.threads | {threading.get_ident()})


def test_it_counts_while_a_reply_is_written_and_stops_none(window: Window, engine: ScriptedEngine) -> None:
    pause_midway(window, engine)
    window.chat.set_typed("a b c")
    wait_for(window, 8)  # "Hi", "Hello," and what is typed
    assert window.replies.state is EngineState.WRITING
    engine.gate.open()
    window.wait_until_idle()
    assert window.texts[-1] == "Hello, you!"
    wait_for(window, 9)


def test_a_count_that_takes_long_is_not_joined_by_others(window: Window, engine: ScriptedEngine) -> None:
    wait_for(window, 0)
    engine.count_gate.shut()
    window.chat.set_typed("a")
    window.wait_until(lambda: engine.count_gate.is_waiting)
    engine.counting_threads.clear()
    window.chat.set_typed("a b")
    window.qtbot.wait(300)
    assert not engine.counting_threads
    engine.count_gate.open()
    wait_for(window, 3)


def test_count_of_another_chat_is_not_shown(window: Window, engine: ScriptedEngine) -> None:
    """A count that took long held the next one back, and the new chat was called too long meanwhile."""
    wait_for(window, 0)
    window.ask("one two")
    wait_for(window, 6)
    meter: ContextMeter = window.context.meter
    engine.count_gate.shut()
    window.chat.set_typed("a")
    window.wait_until(lambda: engine.count_gate.is_waiting)
    window.qtbot.wait(300)
    window.chat.start_new()
    window.chat.set_typed("a")
    assert meter.use is None
    seen: list[ContextUse | None] = []
    meter.changed.connect(lambda: seen.append(meter.use))
    engine.count_gate.open()
    wait_for(window, 2)  # what is typed, in the new chat
    assert [use.tokens for use in seen if use] == [2]


def test_more_than_the_context_is_said_without_a_number(window: Window, engine: ScriptedEngine) -> None:
    engine.count_error = PromptTooLongError("Too long.")
    window.chat.set_typed("x")
    assert not wait_for(window, None).fits


def test_a_template_that_refuses_leaves_no_count(window: Window, engine: ScriptedEngine) -> None:
    wait_for(window, 0)
    engine.count_error = ModelError("The template refuses.")
    with window.qtbot.waitSignal(window.context.meter.changed):
        window.chat.set_typed("x")
    assert window.context.meter.use is None


def test_another_model_counts_anew(window: Window, engine: ScriptedEngine) -> None:
    wait_for(window, 0)
    engine.context_length = 64
    window.slot.load_model("/models/other")
    assert window.context.meter.use is None
    window.wait_until(lambda: window.context.meter.use is not None)
    assert window.context.meter.use == ContextUse(0, 64, "", None)
