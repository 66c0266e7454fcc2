"""Who the person is to the hub: asked only when they want it, kept in the keychain, shown to nobody."""

import logging
from collections.abc import Iterator

import keyring
import pytest
from pytestqt.qtbot import QtBot

from rdchat.hub.endpoint import HOST_VARIABLE, Tokens, TokenSource
from rdchat.services.models.downloads import HubAccount
from tests.hub.hub_server import HubServer
from tests.hub.keychains import Keychain, SlowKeychain


@pytest.fixture
def account(hub: HubServer, qtbot: QtBot) -> Iterator[HubAccount]:
    account = HubAccount(Tokens())
    yield account
    account.drop_requests()


def wait(qtbot: QtBot, account: HubAccount) -> None:
    qtbot.waitUntil(lambda: not account.busy)


def test_a_token_is_checked_and_kept_by_the_keychain(
    hub: HubServer, qtbot: QtBot, account: HubAccount, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    keyring.set_keyring(keychain := Keychain())
    account.look_up_token()
    assert account.busy == "Reading the token…"
    wait(qtbot, account)
    assert account.source is None
    assert hub.requests == [], "nobody asked for it"
    account.give(" hf_right\n")
    wait(qtbot, account)
    assert (account.name, account.source) == ("mia", TokenSource.KEYCHAIN)
    assert list(keychain.kept.values()) == ["hf_right"]
    assert "hf_right" not in caplog.text + repr(vars(account))
    account.forget_token()
    wait(qtbot, account)
    assert (account.source, account.name, keychain.kept) == (None, "", {})


def test_without_a_keychain_it_is_kept_until_the_app_quits(hub: HubServer, qtbot: QtBot, account: HubAccount) -> None:
    account.give("hf_right")
    wait(qtbot, account)
    assert (account.name, account.source) == ("mia", TokenSource.THIS_RUN)
    account.look_up_token()
    wait(qtbot, account)
    assert account.source is TokenSource.THIS_RUN


@pytest.mark.parametrize("token", ["hf_wrong", "two words", "hf_\N{GREEK SMALL LETTER ALPHA}"])
def test_a_wrong_token_is_not_kept(hub: HubServer, qtbot: QtBot, account: HubAccount, token: str) -> None:
    keyring.set_keyring(keychain := Keychain())
    account.give(token)
    wait(qtbot, account)
    known = "does not know this token" if token == "hf_wrong" else "This is not a token"
    assert known in account.problem
    assert token not in account.problem
    assert (account.source, keychain.kept) == (None, {})


def test_a_hub_that_does_not_answer_keeps_nothing(
    hub: HubServer, qtbot: QtBot, account: HubAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    account.give("hf_right")
    wait(qtbot, account)
    assert account.problem.startswith("The token could not be checked. 127.0.0.1:9 cannot be reached.")
    assert account.source is None
    monkeypatch.setenv("HF_ENDPOINT", "gopher://x")
    account.look_up_token()
    wait(qtbot, account)
    assert account.problem.startswith("HF_ENDPOINT is not a web address: gopher://x")


def test_owner_of_the_token_is_looked_up_on_demand(
    hub: HubServer, qtbot: QtBot, account: HubAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOST_VARIABLE, hub.url.removeprefix("http://"))
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    account.look_up_token()
    wait(qtbot, account)
    assert (account.source, account.name) == (TokenSource.ENVIRONMENT, "")
    assert hub.requests == []
    account.ask_account()
    wait(qtbot, account)
    assert account.name == "mia"
    assert [request.path for request in hub.requests] == ["/api/whoami-v2"]


def test_a_keychain_that_asks_the_person_holds_up_nothing(hub: HubServer, qtbot: QtBot, account: HubAccount) -> None:
    keyring.set_keyring(keychain := SlowKeychain())
    account.look_up_token()
    assert keychain.asked.wait(60)
    account.look_up_token()
    account.give("hf_right")
    assert keychain.times_asked == 1, "one thing at a time"
    assert account.busy
    keychain.answer.set()
    wait(qtbot, account)
    assert keychain.times_asked == 1, "whoever refused is not asked again at once"
