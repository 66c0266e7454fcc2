"""No answer of the hub exceeds its limits of memory and time, and a SOCKS proxy leads to it."""

import gc
import gzip
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from rdchat.hub import hub_api
from rdchat.hub.endpoint import AnswerLimits, HubError, TemporaryHubError, Tokens, find_endpoint
from rdchat.hub.hub_api import HubApi
from tests.hub.downloads.downloading import NAME, check_whole, cut_off, download, small_files
from tests.hub.hostile_answers import (
    HEAD,
    SocksServer,
    endless_list,
    gzip_bomb,
    long_json,
    raw,
    slow,
    slow_headers,
)
from tests.hub.hub_server import Fault, HubServer
from tests.serving import in_background

COMMIT = "0" * 40
QUESTIONS: dict[str, Callable[[HubApi], object]] = {
    "search": lambda api: api.search_models("small"),
    "files": lambda api: api.look_at(NAME),
    "account": lambda api: api.account(),
}
_SOCKETS = 2**23  # bytes that may lie in buffers between the two
each_question = pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
# httpcore2 leaves a connection to the collector where a SOCKS proxy refuses.
left_connections = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


def api_of(**limits: float) -> HubApi:
    return HubApi(Tokens().access(find_endpoint()), AnswerLimits(**limits))  # type: ignore[arg-type]  # numbers


@contextmanager
def little_memory(most: int = 150_000_000) -> Iterator[None]:
    """Check that Python's objects never take more than so many bytes."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


@each_question
def test_gigabytes_of_json_are_given_up(hub: HubServer, question: Callable[[HubApi], object]) -> None:
    hub.api_faults = [long_json()]
    with little_memory(), pytest.raises(HubError, match="answers with more than 17 MB"):
        question(api_of())
    assert hub.sent[""] < AnswerLimits().bytes + _SOCKETS


@each_question
def test_what_unpacks_to_gigabytes_is_given_up(hub: HubServer, question: Callable[[HubApi], object]) -> None:
    hub.api_faults = [gzip_bomb()]
    with little_memory(), pytest.raises(HubError, match="answers with more than 17 MB"):
        question(api_of())


def test_json_of_more_values_than_any_answer_has_is_given_up(hub: HubServer) -> None:
    hub.api_faults = [Fault(status=200, body=b"[" + b"[]," * 1_000_000 + b"1]")]
    with little_memory(), pytest.raises(HubError, match="an answer that rdchat does not understand"):
        api_of().search_models("small")


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"a":' * 100_000, b"\xff", b"", b"[", b"NaN", b"1" * 10_000])
@each_question
def test_json_that_is_none_is_said(hub: HubServer, question: Callable[[HubApi], object], body: bytes) -> None:
    hub.api_faults = [Fault(status=200, body=body)]
    with pytest.raises(HubError, match="an answer that rdchat does not understand"):
        question(api_of())


@each_question
@pytest.mark.parametrize("fault", [slow, slow_headers])
def test_a_byte_a_second_ends(
    hub: HubServer, question: Callable[[HubApi], object], fault: Callable[[HubServer], Fault]
) -> None:
    hub.api_faults = [fault(hub)]
    with pytest.raises(TemporaryHubError, match="takes too long to answer"):
        question(api_of(seconds=0.2))


@pytest.mark.parametrize("itself", [True, False])
def test_a_next_page_is_not_followed(hub: HubServer, itself: bool) -> None:
    hub.api_faults = endless_list(hub, 1000, itself)
    assert api_of().search_models("small") == ()
    assert len(hub.requests) == 1


def test_a_list_is_read_as_far_as_it_is_wanted(hub: HubServer) -> None:
    hub.api_faults = [Fault(status=200, body=b'[{"id": "org/model-0"}, {"id": "org/other-0"}, {"id": "org/model-1"}]')]
    found = api_of().search_models("small", limit=2)
    assert [model.repository for model in found] == ["org/model-0", "org/other-0"]


@pytest.mark.parametrize("status", [b"302 Found\r\nLocation: /api/whoami-v2", b"404 Not Found", b"500 Oh"])
def test_what_comes_with_a_refusal_is_not_read(hub: HubServer, status: bytes) -> None:
    hub.api_faults = [long_json(status)]
    with little_memory(), pytest.raises(HubError):
        api_of().search_models("small")
    assert hub.sent[""] < _SOCKETS


@pytest.mark.parametrize("fault", [long_json, gzip_bomb])
def test_only_the_beginning_of_a_card_is_read(hub: HubServer, fault: Callable[[], Fault]) -> None:
    commit = hub.add(NAME, small_files())
    hub.fault("README.md", fault())
    with little_memory():
        assert len(api_of().card(NAME, commit)) == 200_000
    assert hub.sent[""] < _SOCKETS


def test_a_card_that_comes_a_byte_a_second_ends(hub: HubServer) -> None:
    commit = hub.add(NAME, small_files())
    hub.fault("README.md", slow(hub))
    with pytest.raises(TemporaryHubError, match="takes too long to answer"):
        api_of(seconds=0.2).card(NAME, commit)


@pytest.mark.parametrize("coding", [b"br", b"zstd", b"\xff"])
def test_a_form_that_was_not_asked_for_is_not_understood(hub: HubServer, coding: bytes) -> None:
    hub.api_faults = [raw(lambda: [HEAD, b"Content-Encoding: " + coding + b"\r\n\r\n\x28\xb5"])]
    with pytest.raises(HubError, match="an answer that rdchat does not understand"):
        api_of().search_models("small")


def test_an_answer_in_gzip_is_read(hub: HubServer) -> None:
    body = gzip.compress(b"[]" + b" " * 2_000)
    hub.api_faults = [raw(lambda: [HEAD + b"Content-Encoding: gzip\r\n\r\n", body])]
    assert api_of().search_models("small") == ()


def test_an_answer_that_is_not_the_gzip_it_says_is_said(hub: HubServer) -> None:
    hub.api_faults = [raw(lambda: [HEAD + b"Content-Encoding: gzip\r\n\r\n", b"[]" * 100])]
    with pytest.raises(TemporaryHubError, match="stopped answering"):
        api_of().search_models("small")


def test_headers_of_a_file_that_come_a_byte_a_second_end(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add(NAME, small_files())
    hub.fault("config.json", *[slow_headers(hub)] * 2)
    monkeypatch.setattr(hub_api, "_OPENING_S", 0.2)
    began = time.monotonic()
    with pytest.raises(HubError, match="takes too long to answer"):
        download(tries=2)
    assert time.monotonic() - began < 10


@pytest.fixture
def socks(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SocksServer]:
    """The only way to the hub."""
    hub.add(NAME, small_files())
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name)
    with in_background(SocksServer()) as server:
        monkeypatch.setenv("ALL_PROXY", server.url)
        yield server
        gc.collect(1)


@left_connections
def test_a_model_is_asked_for_and_fetched_through_it(hub: HubServer, socks: SocksServer) -> None:
    hub.fault("model.safetensors", Fault(cut=50_000))
    check_whole(download()[0], small_files())
    assert ("127.0.0.1", urlsplit(hub.url).port) in socks.wanted
    assert len(socks.wanted) > 1, "the bytes came by another way"


@left_connections
def test_a_proxy_of_another_kind_is_told_of_when_a_download_goes_on_too(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(NAME, small_files())
    cut_off(hub, 50_000)
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("ALL_PROXY", "socks4://127.0.0.1:1")
    with pytest.raises(HubError, match="does not support this kind of proxy"):
        download()


@left_connections
@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x05\xff", b"\x05", b""])
def test_what_is_no_socks_proxy_is_said(socks: SocksServer, greeting: bytes) -> None:
    socks.greeting = greeting
    with pytest.raises(HubError, match="cannot be reached") as caught:
        download()
    assert "proxy" in caught.value.hint


@left_connections
@pytest.mark.slow
def test_a_proxy_that_is_lost_on_the_way_is_said(
    hub: HubServer, socks: SocksServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.before_bytes["model.safetensors"] = lambda: setattr(socks, "greeting", b"no")
    hub.fault("model.safetensors", *[Fault(cut=9)] * 5)  # also on connections that were open before
    with pytest.raises(HubError, match="cannot be reached"):
        download()


@left_connections
@pytest.mark.parametrize("address", ["socks4://127.0.0.1:9", "socks://127.0.0.1:9", "ftp://127.0.0.1:9"])
def test_a_proxy_of_another_kind_is_refused_in_words(
    socks: SocksServer, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", address)
    with pytest.raises(HubError, match="does not support this kind of proxy"):
        download()
