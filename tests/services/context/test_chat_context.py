from rdchat.chat.context_cuts import cut_of
from rdchat.chat.conversation import MessageStatus
from rdchat.errors import PromptTooLongError
from rdchat.inference.api.requests import Role
from rdchat.services.context.chat_context import TOO_LONG, Doing
from rdchat.services.engine.engine_events import EngineState
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import WAIT_MS, Window

LONG = "word " * 9  # 10 tokens; "Hello, you!" has 3


def fill(window: Window, engine: ScriptedEngine) -> None:
    """Load a model of 48 tokens and have it answer three questions of 13 tokens, so that a fourth is too much."""
    engine.context_length = 48
    window.controller.load_model("/models/short")
    window.wait_for(EngineState.IDLE)
    for _ in range(3):
        window.ask(LONG)


def outgrow(window: Window, typed: str = LONG) -> None:
    context = window.controller.context
    context.meter.set_typed(typed)
    window.qtbot.waitUntil(
        lambda: (
            context.outgrown is not None
            and context.meter.current
            and context.meter.use is not None
            and context.meter.use.typed == typed.strip()
        ),
        timeout=WAIT_MS,
    )


def leave_out(window: Window) -> None:
    context = window.controller.context
    context.leave_out()
    assert context.doing is Doing.LEAVING_OUT
    window.qtbot.waitUntil(lambda: context.doing is Doing.NOTHING, timeout=WAIT_MS)


def asked(engine: ScriptedEngine) -> list[str]:
    return [message.content for message in engine.requests[-1].messages]


def test_what_does_not_fit_is_not_sent_and_nothing_is_cut(window: Window, engine: ScriptedEngine) -> None:
    fill(window, engine)
    outgrow(window)
    requests = len(engine.requests)
    window.controller.send(LONG)
    assert window.seen.refused == [(LONG, TOO_LONG)]
    assert (len(engine.requests), len(window.texts)) == (requests, 6)


def test_the_oldest_turns_are_left_out_kept_and_told_again(window: Window, engine: ScriptedEngine) -> None:
    fill(window, engine)
    outgrow(window)
    leave_out(window)
    window.ask(LONG)
    cut = cut_of(window.controller.messages)
    assert cut is not None
    assert cut.id == window.controller.messages[1].id  # 36 of 48: 12 for the reply
    assert (len(asked(engine)), len(window.texts)) == (5, 8)
    stored = window.store.messages(cut.conversation_id)
    assert cut_of(stored) == cut
    window.controller.context.undo(cut.id)
    assert cut_of(window.controller.messages) is None
    assert cut_of(window.store.messages(cut.conversation_id)) is None


def test_a_question_that_failed_is_answered_once_it_fits(window: Window, engine: ScriptedEngine) -> None:
    fill(window, engine)
    engine.replies = [Reply(refusal=PromptTooLongError("It has 49 tokens.")), Reply()]
    window.controller.send(LONG)  # before it was counted
    window.qtbot.waitUntil(lambda: window.controller.messages[-1].status is MessageStatus.FAILED, timeout=WAIT_MS)
    outgrow(window, "")
    leave_out(window)
    window.wait_for(EngineState.IDLE)
    last = window.controller.messages[-1]
    assert (last.text, last.status, last.siblings) == ("Hello, you!", MessageStatus.COMPLETE, 1)
    assert [message.role for message in engine.requests[-1].messages] == [Role.USER, Role.ASSISTANT] * 2 + [Role.USER]


def test_a_message_that_is_too_long_alone_leaves_the_chat_whole(window: Window, engine: ScriptedEngine) -> None:
    fill(window, engine)
    outgrow(window, "word " * 60)
    leave_out(window)
    assert [notice.title for notice in window.seen.notices][-1].startswith("The last message alone")
    assert cut_of(window.controller.messages) is None


def test_a_cut_that_another_chat_overtakes_is_not_made(window: Window, engine: ScriptedEngine) -> None:
    fill(window, engine)
    first = window.controller.desk.conversation
    assert first is not None
    outgrow(window)
    engine.count_gate.shut()
    window.controller.context.leave_out()
    window.controller.desk.new_chat()
    engine.count_gate.open()
    window.qtbot.waitUntil(lambda: window.controller.context.doing is Doing.NOTHING, timeout=WAIT_MS)
    assert cut_of(window.store.messages(first.id)) is None


def test_a_copy_keeps_the_cut(window: Window, engine: ScriptedEngine) -> None:
    fill(window, engine)
    outgrow(window)
    leave_out(window)
    chat = window.controller.desk.conversation
    assert chat is not None
    (*_, copy_id) = window.store.organiser.copying(chat.id, "Copy")
    copy = cut_of(window.store.messages(copy_id))
    assert copy is not None
    assert copy.context_cut == cut_of(window.controller.messages).context_cut  # type: ignore[union-attr]
