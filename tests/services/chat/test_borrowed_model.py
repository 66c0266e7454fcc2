"""One reply that is made in another way than the chat's others."""

import pytest

from rdchat.chat.conversation import USUAL_OPTIONS, MadeWith, MessageStatus
from rdchat.errors import ModelError
from rdchat.inference.api import Role, SamplingParams
from rdchat.services.chat.borrowed_model import Loan, OtherModel
from tests.services.fakes import ScriptedEngine
from tests.services.window import Window

HOT = SamplingParams(temperature=1.5)
OTHER = OtherModel("big", "Big")


def regenerate(window: Window, other: OtherModel | None, options: MadeWith = USUAL_OPTIONS) -> None:
    window.controller.regenerate(window.last.id, options, other)


def borrow_midway(window: Window, engine: ScriptedEngine) -> None:
    """Have another model write a reply again, and hold it at the prompt."""
    window.ask("Hi")
    engine.gate.shut()
    regenerate(window, OTHER)
    window.wait_until(lambda: engine.gate.is_waiting)


def wait_for_loads(window: Window, engine: ScriptedEngine, *models: str | None) -> None:
    window.wait_until(lambda: [model for model, _ in engine.loads] == list(models))
    window.wait_until_idle()


def test_options_hold_for_one_reply_and_the_chat_stays_as_it_is(window: Window, engine: ScriptedEngine) -> None:
    window.chat.set_options(system_prompt="Be brief.")
    window.ask("Hi")
    regenerate(window, None, MadeWith(HOT, "Rhyme."))
    window.wait_until_idle()
    request = engine.last_request
    assert (request.sampling, request.messages[0].content) == (HOT, "Rhyme.")
    assert window.last.made_with == MadeWith(HOT, "Rhyme.", once=True)
    assert window.last.siblings == 2
    window.ask("More")
    assert engine.last_request.sampling == SamplingParams()
    assert engine.last_request.messages[0].content == "Be brief."
    assert window.last.made_with == MadeWith(SamplingParams())
    assert window.chat.conversation.sampling is None


def test_continued_reply_keeps_its_own_options(window: Window, engine: ScriptedEngine) -> None:
    window.ask("Hi")
    regenerate(window, None, MadeWith(HOT, ""))
    window.wait_until_idle()
    window.continue_reply(window.last.id)
    window.wait_until_idle()
    assert engine.last_request.sampling == HOT
    assert engine.last_request.messages[0].role is Role.USER


def test_another_model_writes_one_reply_and_the_chats_own_comes_back(window: Window, engine: ScriptedEngine) -> None:
    window.ask("Hi")
    loans: list[Loan | None] = []
    borrowed = window.borrowed
    borrowed.changed.connect(lambda: loans.append(borrowed.loan))
    regenerate(window, OTHER)
    wait_for_loads(window, engine, None, "big", None)
    loan, none = loans
    assert none is None
    assert loan is not None
    assert (loan.borrowed.name, loan.own_name) == ("Big", "tiny")
    assert window.last.model == "big"
    assert (window.slot.info.name, window.settings.values.model) == ("tiny", None)
    assert window.settings.values.recent_models == ()


def test_borrowed_model_becomes_the_chosen_one_by_stay(window: Window, engine: ScriptedEngine) -> None:
    borrow_midway(window, engine)
    assert (window.slot.info.name, window.settings.values.model) == ("big", None)
    window.borrowed.stay()
    assert window.settings.values.model == "big"
    engine.gate.open()
    window.wait_until_idle()
    regenerate(window, OtherModel("other", "Other", stay=True))
    wait_for_loads(window, engine, None, "big", "other")
    assert window.settings.values.model == "other"


@pytest.mark.parametrize("while_loading", [True, False])
def test_stopping_brings_the_chats_own_model_back(window: Window, engine: ScriptedEngine, while_loading: bool) -> None:
    window.ask("Hi")
    gate = engine.load_gate if while_loading else engine.gate
    gate.shut()
    regenerate(window, OTHER)
    window.wait_until(lambda: gate.is_waiting)
    window.stop_reply()
    gate.open()
    wait_for_loads(window, engine, None, "big", None)


def test_a_model_that_does_not_load_leaves_a_failed_reply_and_the_chats_own(
    window: Window, engine: ScriptedEngine
) -> None:
    window.ask("Hi")
    engine.load_errors["big"] = ModelError("It is no model.")
    regenerate(window, OTHER)
    wait_for_loads(window, engine, None, "big", None)
    failed = window.last
    assert (failed.status, failed.error, failed.model) == (MessageStatus.FAILED, "It is no model.", "Big")
    assert window.settings.values.model is None


def test_a_model_that_is_chosen_meanwhile_stays(window: Window, engine: ScriptedEngine) -> None:
    borrow_midway(window, engine)
    window.slot.load_model("mine")
    engine.gate.open()
    wait_for_loads(window, engine, None, "big", "mine")
    assert window.borrowed.loan is None
    assert window.settings.values.model == "mine"


def test_regenerating_meanwhile_is_the_chats_own_models_work(window: Window, engine: ScriptedEngine) -> None:
    borrow_midway(window, engine)
    window.controller.regenerate(window.last.id)
    engine.gate.open()
    wait_for_loads(window, engine, None, "big", None)
    assert window.texts == ["Hi", "Hello, you!"]
    assert window.last.model == "tiny"


def test_a_second_loan_brings_the_first_own_model_back(window: Window, engine: ScriptedEngine) -> None:
    borrow_midway(window, engine)
    regenerate(window, OtherModel("huge", "Huge"))
    assert window.borrowed.loan is not None
    assert window.borrowed.loan.own_name == "tiny"
    engine.gate.open()
    wait_for_loads(window, engine, None, "big", "huge", None)
