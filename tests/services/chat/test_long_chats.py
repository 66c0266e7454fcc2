"""Chats that nearly fill the context, and are shortened by themselves."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rdchat import machine
from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.presets import LongChats
from rdchat.chat.summaries import ContextCut
from rdchat.errors import PromptTooLongError
from rdchat.inference.api import GenerationRequest, ReplyEnd, Role
from rdchat.services.chat.chat_context import Doing
from rdchat.services.chat.summary_requests import SUMMARY_WISH, text_of
from rdchat.tools.definitions import ToolResult
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.tool_chats import approve
from tests.services.tool_fakes import ScriptedServers, calling, read
from tests.services.window import Window, bring
from tests.stores import cut_of

CONTEXT = 4096
LONG = ("word " * 1030).strip()


@pytest.fixture
def summaries(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was to be summarised; summary number N is `Summary N.`."""
    asked: list[str] = []
    generate = engine.generate

    def answer(request: GenerationRequest, stopped: object) -> Iterator[object]:
        if SUMMARY_WISH in request.messages[-1].content:
            asked.append(text_of(request.messages))
            engine.replies.insert(0, Reply((f"Summary {len(asked)}.",)))
        return generate(request, stopped)  # type: ignore[arg-type,return-value]

    monkeypatch.setattr(engine, "generate", answer)
    return asked


@pytest.fixture
def on_battery(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "on_battery", lambda: True)


def choose(window: Window, engine: ScriptedEngine, what: LongChats = LongChats.COMPACT, context: int = CONTEXT) -> None:
    """Load a model of few tokens, and choose what happens to long chats."""
    engine.context_length = context
    window.load("/models/short")
    window.settings.change_values(long_chats=what)


def ask(window: Window, text: str) -> Message:
    """Ask a question, which may wait, and wait for its reply and until the chat is counted."""
    chat = window.chat
    before = len(chat.path)
    window.send(text)
    window.wait_until(lambda: len(chat.path) > before + 1 and not window.writing)
    window.wait_until_idle()
    window.counted()
    return chat.path[-1]


def fill(window: Window, engine: ScriptedEngine, what: LongChats = LongChats.COMPACT, context: int = CONTEXT) -> None:
    """Choose what happens to long chats, and have three questions answered that nearly fill the context."""
    choose(window, engine, what, context)
    for number in range(3):
        ask(window, f"{number} {LONG}")


def wait_for_cut(window: Window) -> Message:
    window.wait_until(lambda: cut_of(window.chat.path) is not None)
    return window.chat.path[window.chat.path.cut_index]


def wait_for_summary(window: Window) -> ContextCut:
    cut = wait_for_cut(window).context_cut
    assert cut is not None
    return cut


def rest(window: Window) -> None:
    """Wait until all that may begin by itself has begun and ended."""
    window.counted()
    window.qtbot.wait(150)
    window.wait_until(lambda: window.context.doing is Doing.NOTHING)


def test_a_chat_is_summarised_after_a_reply_while_nothing_happens(
    window: Window, engine: ScriptedEngine, summaries: list[str]
) -> None:
    fill(window, engine)
    cut = wait_for_summary(window)
    assert window.chat.path.cut_index == 3, "the last turn stays whole"
    assert (cut.summary, cut.model) == ("Summary 1.", "/models/short")
    assert cut.written_at is not None
    assert not window.seen.notices
    assert "Person: 0 word" in summaries[0]
    assert "Person: 1 word" in summaries[0]
    assert "up to the question that begins “2 word" in summaries[0]
    ask(window, "And now?")
    first, reply, question = engine.last_contents
    assert "Summary 1." in first
    assert first.endswith(f"2 {LONG}")
    assert (reply, question) == ("Hello, you!", "And now?")
    assert len(window.texts) == 8
    rest(window)
    assert len(summaries) == 1, "there is room again"
    assert window.store.messages(window.stored_chat.id)[3].context_cut == cut


def test_chats_ask_at_first(window: Window, engine: ScriptedEngine, summaries: list[str]) -> None:
    choose(window, engine, LongChats.ASK)
    for _ in range(4):
        ask(window, LONG)
    rest(window)
    assert not summaries
    assert cut_of(window.chat.path) is None
    assert window.context.outgrown is not None, "the person decides"


@pytest.mark.usefixtures("on_battery")
def test_on_battery_the_next_question_waits_for_the_summary(
    window: Window, engine: ScriptedEngine, summaries: list[str]
) -> None:
    fill(window, engine)
    rest(window)
    assert not summaries
    chat = window.chat
    chat.set_typed("And now?")
    chat.set_typed("")
    engine.gate.shut()
    window.send("And now?")
    window.wait_until(lambda: engine.gate.is_waiting)
    assert [each.text for each in chat.unsent.waiting] == ["And now?"]
    assert window.context.is_awaited
    assert len(chat.path) == 6
    engine.gate.open()
    window.wait_until(lambda: len(chat.path) == 8 and not window.writing)
    assert engine.last_contents[0].startswith("This is a summary of the conversation")
    assert engine.last_contents[-1].endswith("And now?")
    assert not chat.unsent.waiting


@pytest.mark.usefixtures("on_battery")
def test_a_summary_that_is_stopped_leaves_all_as_it_was(
    window: Window, engine: ScriptedEngine, summaries: list[str]
) -> None:
    fill(window, engine)
    chat = window.chat
    engine.gate.shut()
    chat.set_typed("And now?")
    window.counted()
    window.send("And now?")
    chat.set_typed("")
    window.wait_until(lambda: engine.gate.is_waiting)
    window.context.stop_work()
    engine.gate.open()
    assert chat.typed == "And now?"
    assert not chat.unsent.waiting
    rest(window)
    assert (len(chat.path), cut_of(chat.path), len(summaries)) == (6, None, 1)
    window.counted("And now?")
    ask(window, "And now?")
    assert (len(chat.path), len(engine.last_contents), len(summaries)) == (8, 7, 1), "asked again, it is sent"
    assert not window.seen.notices


@pytest.mark.usefixtures("on_battery")
def test_a_question_whose_summary_failed_is_typed_again(window: Window, engine: ScriptedEngine) -> None:
    fill(window, engine)
    chat = window.chat
    chat.set_typed(LONG)
    window.wait_until(lambda: window.context.wants_room)
    window.counted()
    engine.replies = [Reply(("<think>", "hm"))]
    window.send(LONG)
    chat.set_typed("")
    window.wait_until(lambda: bool(window.seen.notices))
    assert window.seen.notices[-1].title == "The model wrote no summary"
    assert (chat.typed, chat.unsent.waiting, len(chat.path)) == (LONG, [], 6)
    window.wait_until(lambda: window.context.outgrown is not None)


def test_a_chat_whose_summary_fails_by_itself_asks_until_another_model_is_loaded(
    window: Window, engine: ScriptedEngine
) -> None:
    choose(window, engine)
    engine.replies = [*[Reply()] * 3, *[Reply(("<think>", "hm"))] * 2, Reply(), Reply(), Reply(("It is short.",))]
    for _ in range(3):
        ask(window, LONG)
    window.wait_until(lambda: len(engine.requests) == 5)
    rest(window)
    # Its answer was no summary, so the text was tried as well.
    assert (len(engine.requests), window.seen.notices) == (5, [])
    ask(window, "Hm?")
    ask(window, LONG)
    rest(window)
    assert len(engine.requests) == 7, "it would take as long again, for nothing"
    assert window.context.outgrown is not None
    window.load("/models/better")
    cut = wait_for_summary(window)
    assert cut.summary == "It is short."


def test_a_cut_that_is_undone_stays_so_until_the_next_reply(
    window: Window, engine: ScriptedEngine, summaries: list[str]
) -> None:
    fill(window, engine)
    cut = wait_for_cut(window)
    window.context.undo_cut(cut.id)
    rest(window)
    assert (cut_of(window.chat.path), len(summaries)) == (None, 1)
    ask(window, "Hm?")
    assert len(engine.last_contents) == 7
    wait_for_cut(window)
    assert len(summaries) == 2


def test_the_oldest_turns_are_left_out_once_for_a_question_that_was_counted_while_typed(
    window: Window, engine: ScriptedEngine, summaries: list[str]
) -> None:
    fill(window, engine, LongChats.LEAVE_OUT)
    chat = window.chat
    rest(window)
    assert cut_of(chat.path) is None, "only a question makes it necessary"
    meter = window.context.meter
    chat.set_typed("And now?")
    window.wait_until(lambda: meter.use is not None and meter.use.typed == "And now?")
    window.counted()
    meter._timer.setInterval(60_000)  # the next count comes late
    window.send("And now?")
    chat.set_typed("")
    window.wait_until(lambda: len(chat.path) == 8 and not window.writing)
    assert engine.last_contents == [f"2 {LONG}", "Hello, you!", "And now?"]
    assert cut_of(chat.path) == chat.path[3]
    assert (chat.typed, window.seen.notices, summaries) == ("", [], [])


@pytest.mark.parametrize("edits", [True, False])
def test_a_summary_that_is_changed_ends_the_one_that_would_replace_it(
    window: Window, engine: ScriptedEngine, summaries: list[str], edits: bool
) -> None:
    fill(window, engine)
    cut = wait_for_cut(window)
    context = window.context
    ask(window, LONG)
    ask(window, LONG)
    engine.gate.shut()
    window.wait_until(lambda: len(summaries) == 2 and engine.gate.is_waiting)
    if edits:
        context.edit_summary(cut.id, "My own words.")
    else:
        context.undo_cut(cut.id)
    engine.gate.open()
    if edits:
        window.wait_until(lambda: len(summaries) == 3)
        assert "My own words." in summaries[2]
    rest(window)
    assert len(summaries) == 2 + edits
    assert (cut_of(window.chat.path) is None) is not edits


@pytest.mark.parametrize("what", [LongChats.LEAVE_OUT, LongChats.COMPACT])
@pytest.mark.usefixtures("on_battery")
def test_a_reply_that_failed_is_written_once_there_is_room(
    window: Window, engine: ScriptedEngine, summaries: list[str], what: LongChats
) -> None:
    fill(window, engine, what)
    engine.replies = [Reply(refusal=PromptTooLongError("It has 4900 tokens.")), Reply()]
    window.context.meter.use = None
    window.send(LONG)  # before it was counted
    chat = window.chat
    window.wait_until(lambda: len(chat.path) == 8 and chat.path[-1].text == "Hello, you!")
    assert chat.path[-1].status is MessageStatus.COMPLETE
    assert cut_of(chat.path) is not None
    assert bool(summaries) is (what is LongChats.COMPACT)


def test_a_chat_has_its_own_choice(window: Window, engine: ScriptedEngine, summaries: list[str]) -> None:
    choose(window, engine, LongChats.ASK)
    window.chat.set_options(long_chats=LongChats.COMPACT)
    for _ in range(3):
        ask(window, LONG)
    wait_for_cut(window)
    order = window.replies.order
    assert order.as_preset(window.chat.conversation, "Long", None).long_chats is LongChats.COMPACT
    window.settings.change_values(long_chats=LongChats.COMPACT)
    order = window.replies.order
    assert order.as_preset(window.chat.conversation, "Long", None).long_chats is None


def test_another_reply_goes_first_and_the_summary_is_written_later(
    window: Window, engine: ScriptedEngine, summaries: list[str]
) -> None:
    fill(window, engine)
    engine.gate.shut()
    window.wait_until(lambda: engine.gate.is_waiting and bool(summaries))
    window.slot.engine.submit(
        GenerationRequest(engine.requests[0].messages), lambda event: ended.append(isinstance(event, ReplyEnd))
    )
    ended: list[bool] = []
    engine.gate.open()
    cut = wait_for_summary(window)
    assert (cut.summary, any(ended)) == ("Summary 2.", True)
    assert not window.seen.notices


def test_a_remote_model_summarises_only_chats_that_it_answers(
    window: Window, engine: ScriptedEngine, summaries: list[str]
) -> None:
    fill(window, engine, context=100_000)
    engine.context_length = CONTEXT
    window.load("remote:studio/qwen")
    rest(window)
    assert (len(engine.requests), summaries) == (3, [])
    window.send("And you?")
    window.wait_until(lambda: bool(window.replies.live))
    assert len(engine.requests) == 3, "the person is asked first"
    window.replies.agree(window.replies.live[0], "https://studio.local")
    cut = wait_for_summary(window)
    assert (cut.model, cut.sources) == ("qwen on studio", ())
    for _ in range(3):
        ask(window, LONG)
    window.wait_until(lambda: len(summaries) > 1)
    rest(window)
    window.load("/models/short")
    cut = wait_for_summary(window)
    assert cut.sources == ("studio",), "text of the remote model is named"


def test_files_stay_whole_and_images_are_named(
    window: Window, engine: ScriptedEngine, summaries: list[str], tmp_path: Path
) -> None:
    choose(window, engine)
    (tmp_path / "prices.csv").write_text("apples,3")
    (tmp_path / "large.txt").write_text("large " * 1100)
    bring(window, tmp_path / "prices.csv")
    ask(window, LONG)
    bring(window, tmp_path / "large.txt")
    ask(window, "Hm?")
    ask(window, LONG)
    cut = wait_for_summary(window)
    assert [file.name for file in cut.files] == ["prices.csv"]
    assert "large large" in summaries[0]
    ask(window, "And now?")
    assert engine.last_contents[0].startswith('<file name="prices.csv">\napples,3\n</file>\n\nThis is a summary')
    for _ in range(3):
        ask(window, LONG)
    window.wait_until(lambda: len(summaries) > 1)
    rest(window)
    again = wait_for_summary(window)
    assert again != cut
    assert [file.name for file in again.files] == ["prices.csv"]


def test_long_results_are_shortened_before_turns_are_cut(
    window: Window, engine: ScriptedEngine, servers: ScriptedServers, summaries: list[str]
) -> None:
    choose(window, engine)
    window.chat.set_tools(("files",), ())
    servers.result = ToolResult("result " * 3500)
    engine.replies = [calling(read(call_id="a")), Reply()]
    window.ask("What is in it?")
    approve(window)
    chat = window.chat
    rest(window)
    assert not summaries, "the last turn stays whole"
    ask(window, "And now?")
    window.wait_until(lambda: chat.path.shortened_index == 3)
    ask(window, "Hm?")
    assert not summaries
    assert chat.path[3].context_cut == ContextCut(shortens=True)
    assert [message.role for message in engine.last_request.messages] == [
        Role.USER, Role.ASSISTANT, Role.TOOL, *[Role.ASSISTANT, Role.USER] * 2
    ]  # fmt: skip
    result = engine.last_contents[2]
    assert result.startswith("result result")
    assert "\n(left out: 23,900 characters)\n" in result
    assert result.endswith(servers.result.text[-200:]), "errors and exit codes stand at the end"
    assert window.store.messages(chat.conversation.id)[2].text == servers.result.text
    window.context.undo_cut(chat.path[3].id)
    assert chat.path.shortened_index == -1


def test_a_turn_of_many_calls_goes_on_with_shortened_results(
    window: Window, engine: ScriptedEngine, servers: ScriptedServers
) -> None:
    choose(window, engine)
    window.chat.set_tools(("files",), ())
    servers.result = ToolResult("result " * 2100)
    too_long = Reply(refusal=PromptTooLongError("It has 4500 tokens."))
    replies = [calling(read(call_id="a")), calling(read("b.txt", "b")), too_long, Reply(("Both.",))]
    engine.replies = replies
    window.ask("What is in them?")
    approve(window)
    approve(window)
    chat = window.chat
    window.wait_until(lambda: chat.path[-1].text == "Both.")
    results = [each.content for each in engine.last_request.messages if each.role is Role.TOOL]
    assert ["(left out: " in each for each in results] == [True, False]
    assert len(engine.requests) == 4


@pytest.mark.usefixtures("on_battery")
def test_a_summary_is_edited_and_goes_where_its_turns_change(
    window: Window, engine: ScriptedEngine, summaries: list[str]
) -> None:
    fill(window, engine)
    ask(window, "And now?")
    chat = window.chat
    cut = wait_for_cut(window)
    window.context.edit_summary(cut.id, " They spoke of words. \n")
    edited = window.store.message(cut.id).context_cut
    assert edited is not None
    assert (edited.summary, edited.edited, edited.model) == ("They spoke of words.", True, "/models/short")
    ask(window, "Hm?")
    assert "They spoke of words." in engine.last_contents[0]
    # An edit below its end keeps it, one before drops it.
    window.edit_message(chat.path[8].id, "Well?")
    window.wait_until_idle()
    assert cut_of(chat.path) is not None
    window.edit_message(chat.path[0].id, "Anew?")
    window.wait_until_idle()
    assert cut_of(chat.path) is None
    assert engine.last_contents == ["Anew?"]
    chat.show_alternative(chat.path[0].id, -1)
    assert cut_of(chat.path) is not None


def test_a_reply_that_is_continued_loses_the_cut_at_its_end(
    window: Window, engine: ScriptedEngine, summaries: list[str]
) -> None:
    fill(window, engine)
    cut = wait_for_cut(window)
    chat = window.chat
    window.delete_message(chat.path[chat.path.ids.index(cut.id) + 1].id)
    assert chat.path[-1].id == cut.id
    window.continue_reply(cut.id)
    window.wait_until_idle()
    assert (window.texts[-1], cut_of(chat.path)) == ("Hello, you!Hello, you!", None)


def test_each_turn_is_summarised_once_and_comes_back(
    window: Window, engine: ScriptedEngine, summaries: list[str]
) -> None:
    """Each summary stands in the next one; undone one after the other, the chat is whole again."""
    choose(window, engine)
    chat = window.chat
    questions = [f"Question-{number}" for number in range(7)]
    for question in questions:
        ask(window, f"{question} {LONG}")
        rest(window)
    read_of: list[str] = []
    for number, summary in enumerate(summaries, start=1):
        assert (f"Summary {number - 1}." in summary) is (number > 1)
        text, _, until = summary.rpartition("up to the question that begins “")
        read_of += [word for word in text.partition(until.split()[0])[0].split() if word.startswith("Question-")]
    replaced = (chat.path.cut_index + 1) // 2
    assert read_of == questions[:replaced]
    ask(window, "Last?")
    visible = [word for each in engine.last_contents for word in each.split() if word.startswith("Question-")]
    assert visible == questions[replaced:]
    ends: list[int] = []
    while (end := cut_of(chat.path)) is not None:
        assert not ends or end.id < ends[-1]
        ends.append(end.id)
        window.context.undo_cut(end.id)
    assert len(ends) == len(summaries) > 2
    assert len(chat.path) == 16


def test_a_summary_of_a_temporary_chat_goes_with_it(
    window: Window, engine: ScriptedEngine, summaries: list[str], tmp_path: Path
) -> None:
    choose(window, engine)
    chat = window.chat
    chat.start_temporary()
    for _ in range(3):
        ask(window, f"zeppelin {LONG}")
    wait_for_cut(window)
    ask(window, "And now?")
    assert "Summary 1." in engine.last_contents[0]
    chat.discard()
    chat.start_new()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not any(b"zeppelin" in path.read_bytes() or b"Summary 1." in path.read_bytes() for path in files)
    assert window.context._tried is None


def test_only_the_open_chat_is_shortened(window: Window, engine: ScriptedEngine, summaries: list[str]) -> None:
    fill(window, engine)
    chat = window.chat
    first = chat.conversation.id
    engine.gate.shut()
    window.wait_until(lambda: engine.gate.is_waiting)
    chat.start_new()
    engine.gate.open()
    window.qtbot.wait(200)
    assert window.context.doing is Doing.NOTHING
    assert cut_of(window.store.messages(first)) is None
    chat.open_chat(first)
    wait_for_cut(window)
    assert len(summaries) == 2


@pytest.mark.parametrize("command", ["cut_oldest", "summarise"])
def test_a_call_that_waits_is_never_cut(
    window: Window, engine: ScriptedEngine, servers: ScriptedServers, command: str
) -> None:
    """Its result had no call in the prompt then, and the model was asked with nothing."""
    choose(window, engine, LongChats.ASK)
    window.chat.set_tools(("files",), ())
    servers.result = ToolResult("result " * 4100)
    engine.replies = [calling(read(call_id="a")), calling(read("b.txt", "b"))]
    window.ask("What is in them?")
    approve(window)
    window.wait_until(lambda: len(engine.requests) == 2 and bool(window.calls.waiting))
    window.counted()
    getattr(window.context, command)()
    window.wait_until(lambda: window.context.doing is Doing.NOTHING)
    assert cut_of(window.chat.path) is None
    assert window.seen.notices[-1].title == "The last message alone is too long for this model"


def test_files_of_turns_that_are_left_out_stay(window: Window, engine: ScriptedEngine, tmp_path: Path) -> None:
    choose(window, engine, LongChats.LEAVE_OUT)
    (tmp_path / "contract.txt").write_text("The rent is due on Monday.")
    bring(window, tmp_path / "contract.txt")
    for number in range(5):
        ask(window, f"{number} {LONG}")
    cut = wait_for_cut(window).context_cut
    assert cut is not None
    assert [file.name for file in cut.files] == ["contract.txt"]
    assert "due on Monday" in engine.last_contents[0]
    assert "0 word" not in engine.last_contents[0]
