"""Searching the hub from the window's side: the last question counts, and every refusal has words."""

import threading
from collections.abc import Callable, Iterator

import pytest
from pytestqt.qtbot import QtBot

from rdchat.hub.endpoint import Tokens
from rdchat.services.models.hub_search import STEPS, HubQuery, HubSearch
from tests.hub.hub_server import Fault, HubServer

UNREACHABLE = "Check the network connection, and the proxy, if you use one."


@pytest.fixture
def search(qtbot: QtBot, hub: HubServer) -> Iterator[HubSearch]:
    search = HubSearch(Tokens())
    yield search
    search.drop_requests()


def asked(hub: HubServer) -> list[str]:
    return [request.path.partition("search=")[2].partition("&")[0] for request in hub.requests]


def settled(qtbot: QtBot, search: HubSearch) -> None:
    qtbot.waitUntil(lambda: not search.state.asking)


def names(search: HubSearch) -> list[str]:
    return [model.repository for model in search.state.results]


def test_typing_fast_asks_once_and_shows_only_the_last(qtbot: QtBot, hub: HubServer, search: HubSearch) -> None:
    hub.add("org/one", {})
    hub.add("org/other", {})
    for typed in ("o", "ot", "oth"):
        search.search(HubQuery(typed))
    assert search.state.asking
    settled(qtbot, search)
    assert names(search) == ["org/other"]
    assert asked(hub) == ["oth"]


def test_a_late_answer_to_what_was_asked_before_is_dropped(qtbot: QtBot, hub: HubServer, search: HubSearch) -> None:
    hub.add("org/slow", {})
    hub.add("org/quick", {})
    answer = threading.Event()
    hub.before_api = lambda path: "search=slow" in path and answer.wait(60)
    search.search(HubQuery("slow"), at_once=True)
    qtbot.waitUntil(lambda: asked(hub) == ["slow"])
    search.search(HubQuery("quick"), at_once=True)
    settled(qtbot, search)
    answer.set()
    qtbot.wait(50)
    assert names(search) == ["org/quick"]


def test_nothing_typed_asks_nothing(qtbot: QtBot, hub: HubServer, search: HubSearch) -> None:
    search.search(HubQuery("  "), at_once=True)
    assert not search.state.asking
    search.search(HubQuery("some"))
    search.search(HubQuery(""))
    qtbot.wait(400)
    assert hub.requests == []


def test_more_is_asked_for_in_steps_until_there_is_no_more(qtbot: QtBot, hub: HubServer, search: HubSearch) -> None:
    for number in range(150):
        hub.add(f"org/model-{number:03}", {}, downloads=1000 - number)
    search.search(HubQuery("model"), at_once=True)
    settled(qtbot, search)
    assert (len(search.state.results), search.state.complete) == (STEPS[0], False)
    search.more()
    settled(qtbot, search)
    assert (len(search.state.results), search.state.complete) == (150, True)
    search.more()
    assert not search.state.asking
    assert names(search) == [f"org/model-{number:03}" for number in range(150)]


def test_order_and_format_go_to_the_hub(qtbot: QtBot, hub: HubServer, search: HubSearch) -> None:
    hub.add("org/a-liked", {}, likes=9)
    hub.add("org/a-loved", {}, likes=90)
    hub.add("org/a-file", {}, tags=["gguf"])
    search.search(HubQuery("a", sort="likes"), at_once=True)
    settled(qtbot, search)
    assert names(search) == ["org/a-loved", "org/a-liked"]


def _no_server(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")


def _no_proxy(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("http_proxy", "http://somebody:secret@127.0.0.1:1")


def _offline(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def _no_address(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "hub.example")


def _trouble(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.api_faults = [Fault(status=500)]


def _no_hub(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.api_faults = [Fault(cut=0)]


@pytest.mark.parametrize(
    ("arrange", "message", "hint"),
    [
        (
            _no_server,
            "127.0.0.1:1 cannot be reached.",
            UNREACHABLE,
        ),
        (
            _no_proxy,
            "hub.example cannot be reached.",
            UNREACHABLE,
        ),
        (_offline, "rdchat is offline because HF_HUB_OFFLINE is set.", "Unset HF_HUB_OFFLINE to go online."),
        (_no_address, "HF_ENDPOINT is not a web address: hub.example.", "Give one such as https://huggingface.co."),
        (_trouble, "Hugging Face has a problem (500).", "Try again in a few minutes."),
        (_no_hub, "cannot be reached.", ""),
    ],
)
def test_every_refusal_says_what_to_do(
    qtbot: QtBot,
    hub: HubServer,
    search: HubSearch,
    monkeypatch: pytest.MonkeyPatch,
    arrange: Callable[[HubServer, pytest.MonkeyPatch], None],
    message: str,
    hint: str,
) -> None:
    hub.add("org/one", {})
    arrange(hub, monkeypatch)
    search.search(HubQuery("one"), at_once=True)
    settled(qtbot, search)
    trouble = search.state.trouble
    assert trouble is not None
    assert trouble.message.endswith(message)
    assert trouble.hint.startswith(hint)
    assert "secret" not in str(trouble)


def test_a_retry_asks_for_the_same(
    qtbot: QtBot, hub: HubServer, search: HubSearch, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/one", {})
    hub.api_faults = [Fault(status=500)]
    search.search(HubQuery("one"), at_once=True)
    settled(qtbot, search)
    search.retry()
    settled(qtbot, search)
    assert (names(search), search.state.trouble) == (["org/one"], None)
