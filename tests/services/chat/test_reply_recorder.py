"""How soon text is stored, by a clock that the test moves."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import Message, MessageStatus, Thinking
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import FinishReason, PartsReader, Piece, ReplyEnd, Role, Statistics, TokenEvent
from rdchat.services.chat.chat_prompt import ChatPrompt
from rdchat.services.chat.reply_recorder import ReplyRecorder
from rdchat.services.chat.rescue_file import RescueFile, rescued_notice
from rdchat.services.storage_watch import StorageWatch
from tests.clocks import ManualClock
from tests.disks import small_disk
from tests.processes import held_by_another_process
from tests.split_replies import told


class Recording:
    """A reply that is being written in a chat, by a clock that the test moves."""

    def __init__(self, store: ConversationStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.recorder = ReplyRecorder(store, StorageWatch())
        self.recorder.clock = self.clock
        chat = store.create_conversation("Sea story")
        message = store.add_message(chat.id, None, Role.ASSISTANT, "", status=MessageStatus.STREAMING)
        self.reply = self.recorder.begin_reply(message, ChatPrompt((), ""), chat)

    def write(self, text: str, *pieces: Piece, is_thought: bool = False, ago: float = 0.0) -> None:
        """Write a token of the reply, some seconds ago."""
        token = TokenEvent(0, 0, 0, text, pieces=pieces or (Piece(text, is_thought),))
        self.recorder.append_text(self.reply, [token], self.clock.now - ago)

    @property
    def stored(self) -> Message:
        return self.store.message(self.reply.message.id)


@pytest.fixture
def recording(qtbot: QtBot, store: ConversationStore) -> Iterator[Recording]:
    recording = Recording(store)
    yield recording
    recording.recorder.end_replies()


def end(text: str, reason: FinishReason) -> ReplyEnd:
    return ReplyEnd(0, text, (), "", reason, Statistics(), told=told(text, ended=reason is FinishReason.EOS))


def test_text_is_stored_as_soon_as_the_first_of_it_is_old_without_a_timer(recording: Recording) -> None:
    """The event loop does not run here: under load a timer of 400 ms came after 750 ms."""
    written: list[float] = []
    for _ in range(60):
        recording.clock.now += 0.033
        written.append(recording.clock.now)
        recording.write("x")
        lost = written[len(recording.stored.text) :]  # by a kill now
        assert not lost or recording.clock.now - lost[0] < 0.31


def test_text_counts_from_when_it_was_written_not_from_when_it_arrived(recording: Recording) -> None:
    recording.write("late", ago=0.31)
    assert recording.stored.text == "late"
    recording.write(", new", ago=0.01)
    assert recording.stored.text == "late"
    recording.clock.now += 0.31
    recording.write(" text")
    assert recording.stored.text == "late, new text"


def test_the_last_text_is_stored_though_no_more_comes(recording: Recording, qtbot: QtBot) -> None:
    recording.write("the last word")
    assert recording.stored.text == ""
    qtbot.waitUntil(lambda: recording.stored.text == "the last word")


def test_a_store_that_is_locked_is_not_tried_with_every_token(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt waits a quarter of a second for the other program, in which the window stands still."""
    save_text = Mock(wraps=recording.store.save_text)
    monkeypatch.setattr(recording.store, "save_text", save_text)
    with held_by_another_process(recording.store.path):
        for _ in range(30):
            recording.clock.now += 0.1
            recording.write("x")
        assert save_text.call_count == 1
    assert recording.recorder.trouble is not None
    recording.recorder.save_texts()
    assert recording.stored.text == "x" * 30


def test_missing_text_is_counted_in_characters(recording: Recording) -> None:
    recording.write("x" * 34, ago=1)
    assert recording.recorder.unsaved == []
    with held_by_another_process(recording.store.path):
        recording.write("y" * 606)
        assert not recording.recorder.save_texts()
        assert [(each.missing, len(each.message.text)) for each in recording.recorder.unsaved] == [(606, 640)]
        recording.reply.end_reply(end("x" * 30, FinishReason.STOP_STRING))
        recording.recorder.save_texts()
        assert recording.recorder.unsaved == []  # a stop string took away what the store lacked
    assert recording.recorder.save_texts()


def test_unsaved_text_is_kept_in_a_rescue_file_until_the_store_takes_it(recording: Recording) -> None:
    folder = recording.store.path.parent
    rescue_file = RescueFile(recording.recorder, folder)
    recording.write("Once upon a time\n")
    recording.store.rename_conversation(recording.reply.message.conversation_id, "Land story")
    with held_by_another_process(recording.store.path):
        recording.recorder.end_replies()
        file = rescue_file.write_replies()
        assert file is not None
        assert file.read_text() == "# Land story\n\nOnce upon a time\n"
        notice = rescued_notice(folder)
        assert notice is not None
        assert str(file) in notice.detail
        assert rescue_file.write_replies() == file
    recording.recorder.end_replies()
    assert rescue_file.write_replies() is None
    assert rescued_notice(folder) is None
    assert recording.stored.status is MessageStatus.INTERRUPTED


def test_what_the_disk_of_the_chats_has_no_room_for_goes_elsewhere(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_folder = tmp_path / "disk"
    home = tmp_path / "home"
    disk_folder.mkdir()
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    with small_disk(disk_folder, kibibytes=4096) as disk:
        recording = Recording(ConversationStore(disk.folder / "conversations.db"))
        disk.fill()
        recording.write("word " * 50_000)
        recording.recorder.end_replies()
        file = RescueFile(recording.recorder, disk.folder).write_replies()
        assert file is not None
        assert file.parent == home
        assert file.read_text().count("word") == 50_000
        assert not list(disk.folder.glob("*.md*"))
        disk.free()
        recording.recorder.save_texts()
        recording.store.close()


def test_the_time_of_thinking_is_kept_and_that_of_the_answer_not_counted(recording: Recording) -> None:
    pieces = ("<thi", "nk>\n", "I wonder", " <b>much</b>", ".</think>", "\nHello", " you")
    reader = PartsReader()
    for piece in pieces:
        recording.clock.now += 1.0
        recording.write(piece, *reader.add_text(piece))
    assert replace(recording.reply.message.thinking, parts=()) == Thinking(begun=False, ms=3000.0, paired=True)
    recording.reply.end_reply(end("".join(pieces), FinishReason.EOS))
    recording.recorder.save_texts()
    assert recording.stored.thinking.ms == 3000.0


def test_a_thought_that_the_template_began_is_timed_from_its_first_word_and_survives_a_crash(
    recording: Recording,
) -> None:
    recording.reply.begin_thought()
    recording.clock.now += 60.0  # reading the prompt
    for piece in ("I", " wonder"):
        recording.write(piece, is_thought=True)
        recording.clock.now += 1.0
    recording.recorder.save_texts()
    assert replace(recording.stored.thinking, parts=()) == Thinking(begun=True, ms=1000.0, paired=True)
    assert recording.stored.parts.thought == "I wonder"


def test_a_continued_thought_does_not_count_the_pause(recording: Recording) -> None:
    recording.reply.begin_thought()
    recording.write("I", is_thought=True)
    recording.clock.now += 1.0
    recording.write(" wonder", is_thought=True)
    whole = told("I wonder", begun=True, ended=False)
    recording.reply.end_reply(replace(end("I wonder", FinishReason.CANCELLED), told=whole))
    recording.recorder.save_texts()
    recording.clock.now += 3600.0
    opened = recording.store.reopen_message(recording.reply.message.id)
    recording.reply = recording.recorder.begin_reply(opened, ChatPrompt((), ""), recording.reply.conversation)
    reader = PartsReader(begun=True, before="I wonder")
    for piece in (" on", ".</think>Hello"):
        recording.write(piece, *reader.add_text(piece))
        recording.clock.now += 2.0
    message = recording.reply.message
    assert replace(message.thinking, parts=()) == Thinking(begun=True, ms=3000.0, paired=True)
    assert message.parts.answer == "Hello"
