"""How soon text is stored, by a clock that the test moves."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Message, MessageStatus, Thinking
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import FinishReason, PartsReader, Piece, ReplyEnd, Role, Statistics, TokenEvent
from rdchat.services.chat.chat_prompt import ChatPrompt
from rdchat.services.chat.reply_recorder import Reply, ReplyRecorder
from rdchat.services.chat.rescue_file import RescueFile, rescued_notice
from rdchat.services.storage_watch import StorageWatch
from tests.clocks import ManualClock
from tests.disks import SmallDisk, small_disk
from tests.processes import held_by_another_process
from tests.split_replies import told

NO_PROMPT = ChatPrompt((), "")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def recorder(qtbot: QtBot, store: ConversationStore, clock: ManualClock) -> Iterator[ReplyRecorder]:
    recorder = ReplyRecorder(store, StorageWatch())
    recorder.clock = clock
    yield recorder
    recorder.end_replies()


def begin(store: ConversationStore, recorder: ReplyRecorder) -> Reply:
    """Begin a reply in a chat."""
    chat = store.create_conversation("Sea story")
    message = store.add_message(chat.id, None, Role.ASSISTANT, "", status=MessageStatus.STREAMING)
    return recorder.begin_reply(message, NO_PROMPT, chat)


@pytest.fixture
def reply(store: ConversationStore, recorder: ReplyRecorder) -> Reply:
    return begin(store, recorder)


def end(text: str, reason: FinishReason) -> ReplyEnd:
    return ReplyEnd(0, text, (), "", reason, Statistics(), told=told(text, ended=reason is FinishReason.EOS))


def token(text: str, *pieces: Piece, is_thought: bool = False) -> TokenEvent:
    return TokenEvent(0, 0, 0, text, pieces=pieces or (Piece(text, is_thought),))


def stored(store: ConversationStore, reply: Reply) -> Message:
    return store.message(reply.message.id)


def test_text_is_stored_as_soon_as_the_first_of_it_is_old_without_a_timer(
    recorder: ReplyRecorder, store: ConversationStore, clock: ManualClock, reply: Reply
) -> None:
    """The event loop does not run here: under load a timer of 400 ms came after 750 ms."""
    written: list[float] = []
    for _ in range(200):
        clock.now += 0.033
        written.append(clock.now)
        recorder.append_text(reply, [token("x")], recorder.clock())
        lost = written[len(stored(store, reply).text) :]  # by a kill now
        assert not lost or clock.now - lost[0] < 0.31


def test_text_counts_from_when_it_was_written_not_from_when_it_arrived(
    recorder: ReplyRecorder, store: ConversationStore, clock: ManualClock, reply: Reply
) -> None:
    recorder.append_text(reply, [token("late")], clock.now - 0.31)
    assert stored(store, reply).text == "late"
    recorder.append_text(reply, [token(", new")], clock.now - 0.01)
    assert stored(store, reply).text == "late"
    clock.now += 0.31
    recorder.append_text(reply, [token(" text")], clock.now)
    assert stored(store, reply).text == "late, new text"


def test_the_last_text_is_stored_though_no_more_comes(
    recorder: ReplyRecorder, store: ConversationStore, reply: Reply, qtbot: QtBot
) -> None:
    recorder.append_text(reply, [token("the last word")], recorder.clock())
    assert stored(store, reply).text == ""
    qtbot.waitUntil(lambda: stored(store, reply).text == "the last word")


def test_a_store_that_is_locked_is_not_tried_with_every_token(
    recorder: ReplyRecorder,
    store: ConversationStore,
    clock: ManualClock,
    reply: Reply,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each attempt waits a quarter of a second for the other program, in which the window stands still."""
    attempts: list[str] = []
    save_text = store.save_text
    monkeypatch.setattr(
        store, "save_text", lambda id_, text, *more: (attempts.append(text), save_text(id_, text, *more))
    )
    with held_by_another_process(store.path):
        for _ in range(30):
            clock.now += 0.1
            recorder.append_text(reply, [token("x")], recorder.clock())
        assert len(attempts) == 1
    assert recorder.trouble is not None
    recorder.save_texts()
    assert stored(store, reply).text == "x" * 30


def test_missing_text_is_counted_in_characters(
    recorder: ReplyRecorder, store: ConversationStore, clock: ManualClock, reply: Reply
) -> None:
    recorder.append_text(reply, [token("x" * 34)], clock.now - 1)
    assert recorder.unsaved == []
    with held_by_another_process(store.path):
        recorder.append_text(reply, [token("y" * 606)], recorder.clock())
        assert not recorder.save_texts()
        assert [(each.missing, len(each.message.text)) for each in recorder.unsaved] == [(606, 640)]
        reply.end_reply(end("x" * 30, FinishReason.STOP_STRING))
        recorder.save_texts()
        assert recorder.unsaved == []  # a stop string took away what the store lacked
    assert recorder.save_texts()


def test_unsaved_text_is_kept_in_a_rescue_file_until_the_store_takes_it(
    recorder: ReplyRecorder, store: ConversationStore, reply: Reply
) -> None:
    folder = store.path.parent
    rescue_file = RescueFile(recorder, folder)
    recorder.append_text(reply, [token("Once upon a time\n")], recorder.clock())
    store.rename_conversation(reply.message.conversation_id, "Land story")
    with held_by_another_process(store.path):
        recorder.end_replies()
        file = rescue_file.write_replies()
        assert file is not None
        assert file.read_text() == "# Land story\n\nOnce upon a time\n"
        notice = rescued_notice(folder)
        assert notice is not None
        assert str(file) in notice.detail
        assert rescue_file.write_replies() == file
    recorder.end_replies()
    assert rescue_file.write_replies() is None
    assert rescued_notice(folder) is None
    assert stored(store, reply).status is MessageStatus.INTERRUPTED


def test_what_the_disk_of_the_chats_has_no_room_for_goes_elsewhere(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_folder = tmp_path / "disk"
    home = tmp_path / "home"
    disk_folder.mkdir()
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with small_disk(disk_folder, kibibytes=4096) as disk:
        _fill_and_close(disk, home)


def _fill_and_close(disk: SmallDisk, home: Path) -> None:
    store = ConversationStore(disk.folder / "conversations.db")
    recorder = ReplyRecorder(store, StorageWatch())
    reply = begin(store, recorder)
    disk.fill()
    recorder.append_text(reply, [token("word " * 50_000)], recorder.clock())
    recorder.end_replies()
    file = RescueFile(recorder, store.path.parent).write_replies()
    assert file is not None
    assert file.parent == home
    assert file.read_text().count("word") == 50_000
    assert not list(disk.folder.glob("*.md*"))
    disk.free()
    recorder.save_texts()
    store.close()


def test_the_time_of_thinking_is_kept_and_that_of_the_answer_not_counted(
    recorder: ReplyRecorder, store: ConversationStore, clock: ManualClock, reply: Reply
) -> None:
    pieces = ("<thi", "nk>\n", "I wonder", " <b>much</b>", ".</think>", "\nHello", " you")
    reader = PartsReader()
    for piece in pieces:
        clock.now += 1.0
        recorder.append_text(reply, [token(piece, *reader.add_text(piece))], recorder.clock())
    assert replace(reply.message.thinking, parts=()) == Thinking(begun=False, ms=3000.0, paired=True)
    reply.end_reply(end("".join(pieces), FinishReason.EOS))
    recorder.save_texts()
    assert stored(store, reply).thinking.ms == 3000.0


def test_a_thought_that_the_template_began_is_timed_from_its_first_word_and_survives_a_crash(
    recorder: ReplyRecorder, store: ConversationStore, clock: ManualClock, reply: Reply
) -> None:
    reply.begin_thought()
    clock.now += 60.0  # reading the prompt
    for piece in ("I", " wonder"):
        recorder.append_text(reply, [token(piece, is_thought=True)], recorder.clock())
        clock.now += 1.0
    recorder.save_texts()
    assert replace(stored(store, reply).thinking, parts=()) == Thinking(begun=True, ms=1000.0, paired=True)
    assert stored(store, reply).parts.thought == "I wonder"


def test_a_continued_thought_does_not_count_the_pause(
    recorder: ReplyRecorder, store: ConversationStore, clock: ManualClock, reply: Reply
) -> None:
    reply.begin_thought()
    recorder.append_text(reply, [token("I", is_thought=True)], recorder.clock())
    clock.now += 1.0
    recorder.append_text(reply, [token(" wonder", is_thought=True)], recorder.clock())
    whole = told("I wonder", begun=True, ended=False)
    reply.end_reply(replace(end("I wonder", FinishReason.CANCELLED), told=whole))
    recorder.save_texts()
    clock.now += 3600.0
    again = recorder.begin_reply(store.reopen_message(reply.message.id), NO_PROMPT, reply.conversation)
    reader = PartsReader(begun=True, before="I wonder")
    for piece in (" on", ".</think>Hello"):
        recorder.append_text(again, [token(piece, *reader.add_text(piece))], recorder.clock())
        clock.now += 2.0
    assert replace(again.message.thinking, parts=()) == Thinking(begun=True, ms=3000.0, paired=True)
    assert again.message.parts.answer == "Hello"
