from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.summaries import SUMMARY_NOTE, ContextCut
from rdchat.errors import PromptTooLongError
from rdchat.inference.api import ChatMessage, FinishReason, Role, SamplingParams, ThinkingChoice
from rdchat.services.chat import cut_plan
from rdchat.services.chat.chat_context import TOO_LONG, Doing, SummaryProgress
from rdchat.services.chat.summary_requests import asked_of_piece, pieces_of
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window, collected
from tests.stores import cut_of

LONG = "word " * 9  # 10 tokens; "Hello, you!" has 3
LONGER = "word " * 99


def fill(window: Window, engine: ScriptedEngine, context: int = 48, question: str = LONG) -> None:
    """Load a model of few tokens and have it answer three questions, so that a fourth is too much."""
    engine.context_length = context
    window.load("/models/short")
    for _ in range(3):
        window.ask(question)


def outgrow(window: Window, typed: str = LONG) -> None:
    window.chat.set_typed(typed)
    window.counted(typed.strip())
    assert window.context.outgrown is not None


def wait_for_end(window: Window) -> None:
    window.wait_until(lambda: window.context.doing is Doing.NOTHING)


def leave_out(window: Window) -> None:
    window.context.cut_oldest()
    assert window.context.doing is Doing.LEAVING_OUT
    wait_for_end(window)


def summarise(window: Window) -> None:
    window.context.summarise()
    wait_for_end(window)


def outgrown(window: Window, engine: ScriptedEngine) -> None:
    """Fill a chat that a summary can shorten, and type a question that is too much."""
    fill(window, engine, 400, LONGER)
    outgrow(window, LONGER)


def test_what_does_not_fit_is_not_sent_and_nothing_is_cut(window: Window, engine: ScriptedEngine) -> None:
    fill(window, engine)
    outgrow(window)
    requests = len(engine.requests)
    window.send(LONG)
    assert window.seen.refused == [(LONG, TOO_LONG)]
    assert (len(engine.requests), len(window.texts)) == (requests, 6)


def test_the_oldest_turns_are_left_out_kept_and_told_again(window: Window, engine: ScriptedEngine) -> None:
    fill(window, engine)
    outgrow(window)
    leave_out(window)
    window.ask(LONG)
    cut = cut_of(window.chat.path)
    assert cut is not None
    assert cut.id == window.chat.path[1].id  # 36 of 48: 12 for the reply
    assert (len(engine.last_contents), len(window.texts)) == (5, 8)
    stored = window.store.messages(cut.conversation_id)
    assert cut_of(stored) == cut
    window.context.undo_cut(cut.id)
    assert cut_of(window.chat.path) is None
    assert cut_of(window.store.messages(cut.conversation_id)) is None


def test_a_chat_whose_last_reply_is_too_long_is_cut_before_the_next_question(
    window: Window, engine: ScriptedEngine
) -> None:
    window.ask("Hi")
    engine.context_length = 4
    window.load("/models/short")
    outgrow(window, "")
    use = window.context.outgrown
    assert use is not None
    assert use.can_cut
    leave_out(window)
    assert cut_of(window.chat.path) == window.last


def test_a_question_that_failed_is_answered_once_it_fits(window: Window, engine: ScriptedEngine) -> None:
    fill(window, engine)
    engine.replies = [Reply(refusal=PromptTooLongError("It has 49 tokens.")), Reply()]
    window.send(LONG)  # before it was counted
    window.wait_until(lambda: window.last.status is MessageStatus.FAILED)
    outgrow(window, "")
    leave_out(window)
    window.wait_until_idle()
    last = window.last
    assert (last.text, last.status, last.siblings) == ("Hello, you!", MessageStatus.COMPLETE, 1)
    assert [message.role for message in engine.last_request.messages] == [Role.USER, Role.ASSISTANT] * 2 + [Role.USER]


def test_a_message_that_is_too_long_alone_leaves_the_chat_whole(window: Window, engine: ScriptedEngine) -> None:
    fill(window, engine)
    outgrow(window, "word " * 60)
    leave_out(window)
    assert [notice.title for notice in window.seen.notices][-1].startswith("The last message alone")
    assert cut_of(window.chat.path) is None


def test_a_cut_that_another_chat_overtakes_is_not_made(window: Window, engine: ScriptedEngine) -> None:
    fill(window, engine)
    first = window.stored_chat
    outgrow(window)
    engine.count_gate.shut()
    window.context.cut_oldest()
    window.chat.start_new()
    engine.count_gate.open()
    wait_for_end(window)
    assert cut_of(window.store.messages(first.id)) is None


def test_a_summary_stands_for_the_oldest_turns(window: Window, engine: ScriptedEngine) -> None:
    outgrown(window, engine)
    engine.replies = [Reply(tokens=("<think>", "hm", "</think>", "They said", " words."))]
    context = window.context
    told = collected(context.summary_progressed)
    context.summarise()
    window.wait_until(lambda: cut_of(window.chat.path) is not None)
    cut = cut_of(window.chat.path)
    assert cut is not None
    assert cut.context_cut is not None
    assert replace(cut.context_cut, written_at=None) == ContextCut("They said words.", "/models/short")
    assert (told[0].part, told[0].to_read, told[0].written) == (1, 8, 0)
    assert (told[-1].part, told[-1].written) == (told[-1].parts, 5)
    assert "Person: word" in engine.requests[3].messages[0].content
    window.chat.set_typed("")
    assert len(window.texts) == 6, "what it replaces stays in the chat"
    window.ask("And now?")
    assert engine.last_contents[0].endswith("They said words.\n\nAnd now?")
    assert engine.last_request.messages[0].role is Role.USER


def test_a_summary_that_is_stopped_or_empty_leaves_the_chat_as_it_was(window: Window, engine: ScriptedEngine) -> None:
    outgrown(window, engine)
    engine.replies = [Reply(tokens=("<think>", "hm"))]
    context = window.context
    summarise(window)
    assert window.seen.notices[-1].title == "The model wrote no summary"
    engine.gate.shut()
    context.summarise()
    window.wait_until(lambda: engine.gate.is_waiting)
    context.cancel_work()
    engine.gate.open()
    window.wait_until(lambda: context.doing is Doing.NOTHING)
    window.qtbot.wait(100)  # what comes late changes nothing
    assert (context.doing, cut_of(window.chat.path)) == (Doing.NOTHING, None)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(tokens=("They", " said."), finish_reason=FinishReason.LENGTH),
        Reply(tokens=("They", " said."), finish_reason=FinishReason.CONTEXT_FULL),
        Reply(tokens=("Hm,", " wait"), in_thought=True),
    ],
)
def test_a_summary_that_is_cut_off_early_or_a_thought_is_none(
    window: Window, engine: ScriptedEngine, reply: Reply
) -> None:
    outgrown(window, engine)
    engine.replies = [reply] * 3
    summarise(window)
    assert (cut_of(window.chat.path), window.seen.notices[-1].title) == (None, "The model wrote no summary")


def test_a_summary_that_does_not_end_is_kept_up_to_its_last_sentence(window: Window, engine: ScriptedEngine) -> None:
    """A small model goes on until its limit; all that it wrote in minutes was thrown away."""
    outgrown(window, engine)
    whole = "They spoke of prices. " * 8
    engine.replies = [Reply(tokens=(whole, "They spoke of"), finish_reason=FinishReason.LENGTH)] * 3
    summarise(window)
    cut = cut_of(window.chat.path)
    assert cut is not None
    assert cut.context_cut is not None
    assert cut.context_cut.summary == whole.strip()


@pytest.mark.parametrize(
    ("choices", "markers", "replies", "thinking", "tokens"),
    [
        ((ThinkingChoice.ON, ThinkingChoice.OFF), {"<think>"}, Reply(), ThinkingChoice.OFF, 200),
        ((ThinkingChoice.LOW, ThinkingChoice.HIGH), {}, Reply(), None, 200),
        ((), {"<think>", "</think>"}, Reply(), None, 200),
        ((), {"</answer>"}, Reply(), None, 100),
        ((), {}, Reply(("<think>", "hm", "</think>", "Hello")), None, 200),
    ],
    ids=["with a switch", "with effort alone", "with markers", "without thoughts", "with a thought in the chat"],
)
def test_a_summary_has_room_for_thoughts_only_of_a_model_that_may_think(
    window: Window,
    engine: ScriptedEngine,
    choices: tuple[ThinkingChoice, ...],
    markers: Collection[str],
    replies: Reply,
    thinking: ThinkingChoice | None,
    tokens: int,
) -> None:
    engine.thinking = choices
    engine.token_markers = frozenset(markers)
    engine.replies = [replies]
    outgrown(window, engine)
    summarise(window)
    assert (engine.last_request.thinking, engine.last_request.sampling.max_tokens) == (thinking, tokens)


def test_the_parts_of_a_long_text_are_counted(
    window: Window, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    outgrown(window, engine)
    monkeypatch.setattr(cut_plan, "pieces_of", lambda *_: ["one", "two"])
    context = window.context
    told = collected(context.summary_progressed)
    context.summarise()
    window.wait_until(lambda: cut_of(window.chat.path) is not None)
    first = told.index(SummaryProgress(1, 2, 8, 8, 4))
    assert (told[first + 1].part, told[first + 1].written) == (2, 0)
    assert told[-1] == SummaryProgress(2, 2, 8, 8, 4)


def test_a_new_chat_begins_with_a_summary_and_what_was_asked(window: Window, engine: ScriptedEngine) -> None:
    outgrown(window, engine)
    engine.replies = [Reply(tokens=("All", " of it."))]
    old = window.stored_chat
    with window.qtbot.waitSignal(window.chat.opened):
        window.context.start_anew()
    new = window.stored_chat
    assert new != old
    assert window.chat.typed == LONGER.strip()
    assert new.title == f"{old.title} (continued)"
    assert window.store.conversation(new.id).system_prompt == window.chat.conversation.system_prompt
    assert new.system_prompt == old.system_prompt, "a summary is no instruction"
    mark = window.store.messages(new.id)[0].context_cut
    assert mark is not None
    assert mark.summary == "All of it."
    assert window.chat.values.sampling == SamplingParams()
    assert len(window.store.messages(old.id)) == 6
    window.ask("And now?")
    assert engine.last_contents == [f"{SUMMARY_NOTE}\n\nAll of it.\n\nAnd now?"]


@pytest.mark.slow
def test_a_new_chat_takes_the_files_of_the_unanswered_question(
    window: Window, engine: ScriptedEngine, tmp_path: Path
) -> None:
    fill(window, engine, 400, LONG)
    files = window.chat.files
    (tmp_path / "prices.csv").write_text("apples,3")
    files.add_files([str(tmp_path / "prices.csv")])
    window.wait_until(lambda: all(file.count for file in files.files))
    engine.replies = [Reply(tokens=(), refusal=PromptTooLongError("Too long.")), Reply(tokens=("All", " of it."))]
    window.ask("How much?")
    assert files.files == ()
    with window.qtbot.waitSignal(window.chat.opened):
        window.context.start_anew()
    assert window.chat.typed == "How much?"
    window.wait_until(lambda: all(file.count for file in files.files))
    window.ask("How much?")
    assert engine.last_contents[-1].endswith('All of it.\n\n<file name="prices.csv">\napples,3\n</file>\n\nHow much?')


def test_a_text_longer_than_the_context_is_summarised_in_pieces() -> None:
    def count(messages: Sequence[ChatMessage]) -> int:
        return sum(len(message.content.split()) for message in messages)

    text = "<turn>Person: " + " ".join(f"w{number}" for number in range(1000))
    asking = count(asked_of_piece("", ""))
    pieces = pieces_of(text, count, asking + 300)
    assert "".join([pieces[0], *(piece.removeprefix("<turn>Person: ") for piece in pieces[1:])]) == text
    assert len(pieces) > 3
    assert all(count(asked_of_piece(piece, "")) <= asking + 300 for piece in pieces)
    with pytest.raises(PromptTooLongError):
        pieces_of(text, count, asking)
