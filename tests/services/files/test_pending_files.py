"""Files on their way from the message field into the prompt."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.errors import PromptTooLongError
from rdchat.inference.api import ChatMessage, Role
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.files.part_choice import TokenCount, tokens_of
from tests.chat.attachments.documents import pdf
from tests.listed_chats import listed
from tests.services.fakes import ScriptedEngine
from tests.services.window import Window, bring, collected


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    path = tmp_path / "prices.csv"
    path.write_text("apples,3\npears,4\n")
    return path


@pytest.mark.slow
def test_a_file_stands_before_the_question_and_stays_the_same_for_the_next_one(
    window: Window, engine: ScriptedEngine, prices: Path
) -> None:
    (file,) = bring(window, prices)
    assert (file.name, file.count) == ("prices.csv", TokenCount(5))  # words, in the scripted engine
    window.ask("How much?")
    told = '<file name="prices.csv">\napples,3\npears,4\n\n</file>\n\nHow much?'
    assert engine.last_contents == [told]
    assert window.chat.files.files == ()
    window.ask("And both?")
    assert engine.last_contents == [told, "Hello, you!", "And both?"]
    assert window.texts[0] == "How much?"
    assert window.chat.path[0].files[0].name == "prices.csv"


@pytest.mark.slow
def test_the_meter_counts_files_before_and_after_they_are_sent(window: Window, prices: Path) -> None:
    window.chat.set_typed("How much?")
    assert window.counted("How much?").tokens == 3
    bring(window, prices)
    assert window.counted().tokens == 8
    window.chat.set_typed("")
    window.ask("How much?")
    assert window.counted("").tokens == 8 + 3


def test_a_message_waits_for_its_files(window: Window, tmp_path: Path) -> None:
    (tmp_path / "long.pdf").write_bytes(pdf(["page"] * 30))
    window.chat.files.add_files([str(tmp_path / "long.pdf")])
    window.send("Well?")
    assert window.seen.refused == [("Well?", "long.pdf is still being read. Wait a moment, or remove it.")]
    assert window.texts == []


def test_unreadable_file_is_reported_and_removed(window: Window, tmp_path: Path, prices: Path) -> None:
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    refusals = collected(window.chat.files.refused)
    bring(window, tmp_path / "photo.png", prices)
    window.wait_until(lambda: bool(refusals))
    assert [file.name for file in window.chat.files.files] == ["prices.csv"]
    assert [each.partition(",")[0] for each in refusals] == ["photo.png is damaged"]


@pytest.mark.slow
def test_file_removed_while_it_is_read_stays_removed(window: Window, tmp_path: Path, prices: Path) -> None:
    (tmp_path / "long.pdf").write_bytes(pdf(["page"] * 400))
    files = window.chat.files
    files.add_files([str(tmp_path / "long.pdf")])
    files.remove_file(files.files[0].id)
    assert [file.name for file in bring(window, prices)] == ["prices.csv"]
    window.ask("How much?")
    assert len(window.chat.path[0].files) == 1


def test_each_chat_has_its_own_pending_files(window: Window, prices: Path) -> None:
    window.ask("Hi")
    bring(window, prices)
    window.chat.start_new()
    assert window.chat.files.files == ()
    window.chat.open_chat(listed(window.chats)[0].id)
    assert [file.name for file in window.chat.files.files] == ["prices.csv"]


def test_the_tokens_of_a_remote_model_are_estimates_that_refuse_nothing_that_might_fit(
    window: Window, engine: ScriptedEngine, tmp_path: Path
) -> None:
    engine.context_length = 150
    slot = window.slot
    slot.load_model("/models/short")
    window.wait_until_idle()
    assert slot.info is not None
    slot.info = replace(slot.info, server="Studio")
    files = window.chat.files
    for words, is_refused in ((200, False), (400, True)):
        (tmp_path / f"{words}.txt").write_text("word " * words)
        *_, file = bring(window, tmp_path / f"{words}.txt")
        assert file.count is not None
        assert file.count.description.startswith("about ")
        assert bool(files.excess) == is_refused
    choice = files.part_choice(file.id)
    assert choice is not None
    beginning = choice.choose_beginning(0)
    assert beginning.part is not None
    assert beginning.count is not None
    assert not beginning.count.exact
    whole = choice.tokens
    files.choose_part(file.id, beginning.part)
    window.wait_until(lambda: file.count is not None)
    again = files.part_choice(file.id)
    assert again is not None
    assert again.tokens == whole, "the file had another size with each part"


@pytest.mark.slow
def test_files_go_with_what_is_typed_into_a_chat_that_goes_on_anew(
    window: Window, engine: ScriptedEngine, prices: Path
) -> None:
    window.ask("Hi")
    bring(window, prices)
    before = window.chat.stored_conversation
    window.chat.set_typed("How much?")
    window.context.start_anew()
    window.wait_until(lambda: window.chat.stored_conversation != before)
    assert [file.name for file in window.chat.files.files] == ["prices.csv"]
    window.ask("How much?")
    assert '<file name="prices.csv">' in engine.last_contents[-1]


def test_another_model_counts_anew(window: Window, engine: ScriptedEngine, prices: Path) -> None:
    bring(window, prices)
    engine.load_gate.shut()
    window.slot.load_model("/models/other")
    window.wait_for(EngineState.LOADING)
    assert window.chat.files.tokens is None
    window.send("How much?")
    assert "when the model is loaded" in window.seen.refused[-1][1]
    engine.load_gate.open()
    window.wait_until(lambda: window.chat.files.tokens is not None)


def test_far_too_many_tokens_are_reckoned_from_a_sample() -> None:
    def count(messages: Sequence[ChatMessage]) -> int:
        assert messages[0].role is Role.USER
        tokens = len(messages[0].content) // 4 + 9
        if tokens > 5000:
            raise PromptTooLongError("too long")
        return tokens

    assert tokens_of("x" * 400, count) == TokenCount(100 - 0 + 1, exact=True)
    far = tokens_of("x" * 1_000_000, count)
    assert not far.exact
    assert abs(far.tokens - 250_000) < 1000
    assert far.description == "about 250,000 tokens"
