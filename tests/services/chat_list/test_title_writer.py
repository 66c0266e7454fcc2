"""Titles that the model writes while nothing else is to be done."""

from dataclasses import replace

import pytest

from rdchat.inference.api import FinishReason, Mode, Role
from rdchat.services.engine.engine_request import EngineState
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window

ANSWER = Reply(("Boil", " it."))


@pytest.fixture
def engine() -> ScriptedEngine:
    """A model that is large enough for titles."""
    return ScriptedEngine(parameters=1_500_000_000)


@pytest.fixture
def quick(window: Window) -> Window:
    """An app that does not wait for a quiet while."""
    window.title_writer.quiet.setInterval(0)
    return window


def _replies(engine: ScriptedEngine, title: Reply, answer: Reply = ANSWER) -> None:
    engine.replies = [answer, title, ANSWER]


def _title(*tokens: str, reason: FinishReason = FinishReason.EOS) -> Reply:
    return Reply(tokens, finish_reason=reason)


def _wait_for_title(window: Window) -> None:
    """Wait until the model was asked, and had its go."""
    engine_asked = lambda: not window.title_writer.writing and not window.store.organiser.without_title()  # noqa: E731
    window.wait_until(engine_asked)


def _ask_and_hold_the_title(window: Window, engine: ScriptedEngine) -> None:
    quiet = window.title_writer.quiet
    quiet.setInterval(60_000)
    window.ask("soup pls")
    engine.gate.shut()
    quiet.setInterval(0)
    window.title_writer.wait_for_calm()
    window.wait_until(lambda: engine.gate.is_waiting)


def test_the_first_exchange_gets_a_title(quick: Window, engine: ScriptedEngine) -> None:
    _replies(engine, _title('"', "Cooking", " soup", '."'))
    quick.ask("how do i cook soup pls")
    statistics = len(quick.seen.statistics)
    _wait_for_title(quick)
    assert quick.titles == ["Cooking soup"]
    assert quick.stored_chat.title == "Cooking soup"
    request = engine.last_request
    assert [message.role for message in request.messages] == [Role.USER, Role.ASSISTANT, Role.USER]
    assert [message.content for message in request.messages[:2]] == ["how do i cook soup pls", "Boil it."]
    assert (request.sampling.temperature, request.draft.mode) == (0.0, Mode.OFF)
    assert quick.texts == ["how do i cook soup pls", "Boil it."]  # nothing of it is in the chat
    assert len(quick.seen.statistics) == statistics  # nor in the panel
    quick.ask("And then?")
    assert len(engine.requests) == 3  # one title a chat


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        (_title("<think>\nA soup title.\n</think>\n", "Soup"), "Soup"),
        (_title("<think>\nThey ask about soup", reason=FinishReason.EOS), "soup pls"),
        (_title("They ask about soup, so", reason=FinishReason.LENGTH), "soup pls"),
        (_title("<|channel|>analysis<|message|>Soup, so"), "soup pls"),
        (_title("<|channel|>analysis<|message|>So<|end|><|channel|>final<|message|>Soup<|return|>"), "Soup"),
        (_title("**Title: “Soup”**"), "Soup"),
        (_title("Soup, "), "Soup"),
        (_title("\n\n"), "soup pls"),
        (_title("Here is a title for the chat you asked me to find one for, and more:"), "soup pls"),
    ],
)
def test_thoughts_and_chatter_are_no_titles(quick: Window, engine: ScriptedEngine, title: Reply, shown: str) -> None:
    _replies(engine, title)
    quick.ask("soup pls")
    _wait_for_title(quick)
    assert quick.titles == [shown]


def test_what_the_model_thought_is_not_told_and_a_thought_without_an_end_not_taken(
    quick: Window, engine: ScriptedEngine
) -> None:
    """The chat template wrote the opening tag, so that only the closing one is in the text."""
    title = replace(_title("A title about soup"), in_thought=True)
    _replies(engine, title, Reply(("They ask.\n", "</think>\n", "Boil it."), in_thought=True))
    quick.ask("soup pls")
    _wait_for_title(quick)
    assert engine.last_request.messages[1].content == "Boil it."
    assert quick.titles == ["soup pls"]


def test_a_prompt_goes_first_and_the_title_comes_later(quick: Window, engine: ScriptedEngine) -> None:
    engine.replies = [ANSWER, _title("Never", " seen"), ANSWER, _title("Soup")]
    _ask_and_hold_the_title(quick, engine)
    assert quick.title_writer.writing
    assert quick.replies.state is EngineState.IDLE  # one can send
    quick.send("And bread?")
    quick.wait_until(lambda: len(engine.requests) == 3)  # the gate is shut: it was stopped
    assert engine.last_request.messages[-1].content == "And bread?"
    engine.gate.open()
    quick.wait_until_idle()
    _wait_for_title(quick)
    assert quick.titles == ["Soup"]
    assert quick.texts[-1] == "Boil it."


def test_the_persons_own_title_stays(quick: Window, engine: ScriptedEngine) -> None:
    _replies(engine, _title("Never"))
    _ask_and_hold_the_title(quick, engine)
    quick.chats.rename_conversation(quick.stored_chat.id, "My soup")
    engine.gate.open()
    quick.wait_until(lambda: not quick.title_writer.writing)
    assert quick.titles == ["My soup"]


def test_titles_by_the_model_can_be_switched_off(quick: Window, engine: ScriptedEngine) -> None:
    settings = quick.settings
    settings.change_values(titles_by_model=False)
    _replies(engine, _title("Soup"))
    quick.ask("soup pls")
    assert not quick.title_writer.quiet.isActive()
    assert len(engine.requests) == 1
    settings.change_values(titles_by_model=True)
    _wait_for_title(quick)
    assert quick.titles == ["Soup"]


def test_a_model_that_fails_is_not_asked_again_and_again(quick: Window, engine: ScriptedEngine) -> None:
    engine.replies = [ANSWER, Reply(("So",), error=RuntimeError("out of order"))]
    quick.ask("soup pls")
    quick.wait_until(lambda: len(engine.requests) == 2)
    quick.wait_until(lambda: not quick.title_writer.writing)
    quick.wait_until(lambda: not quick.title_writer.quiet.isActive())
    assert len(engine.requests) == 2
    assert (quick.titles, quick.seen.notices) == (["soup pls"], [])


def test_a_small_model_writes_no_titles(quick: Window, engine: ScriptedEngine) -> None:
    """The default model repeated its answer: "The secret word of the report is: **marmalade"."""
    engine.parameters = 135_000_000
    quick.slot.retry()
    quick.wait_until_idle()
    quick.ask("What is the *secret* word?")
    with quick.qtbot.waitSignal(quick.title_writer.quiet.timeout):
        quick.title_writer.wait_for_calm()
    assert not quick.title_writer.writing
    assert quick.titles == ["What is the secret word?"]
