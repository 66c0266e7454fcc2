"""The hub is reached through a SOCKS proxy; a proxy that does not work gives a message."""

import gc
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from rdchat.hub.endpoint import HubError
from tests.hub.downloads.downloading import NAME, check_whole, cut_off, download, small_files
from tests.hub.hub_server import Fault, HubServer
from tests.hub.socks_server import SocksServer
from tests.serving import in_background

# httpcore2 leaves a connection to the collector where a SOCKS proxy refuses
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def socks(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[SocksServer]:
    """The only way to the hub."""
    hub.add(NAME, small_files())
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name)
    with in_background(SocksServer()) as server:
        monkeypatch.setenv("ALL_PROXY", server.url)
        yield server
        gc.collect()


def test_a_model_is_asked_for_and_fetched_through_it(hub: HubServer, socks: SocksServer) -> None:
    hub.fault("model.safetensors", Fault(cut=50_000))
    check_whole(download()[0], small_files())
    assert ("127.0.0.1", urlsplit(hub.url).port) in socks.wanted
    assert len(socks.wanted) > 1, "the bytes came by another way"


def test_a_proxy_of_another_kind_is_told_of_when_a_download_goes_on_too(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(NAME, small_files())
    cut_off(hub, 50_000)
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("ALL_PROXY", "socks4://127.0.0.1:1")
    with pytest.raises(HubError, match="does not support this kind of proxy"):
        download()


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x05\xff", b"\x05", b""])
def test_what_is_no_socks_proxy_is_said(socks: SocksServer, greeting: bytes) -> None:
    socks.greeting = greeting
    with pytest.raises(HubError, match="cannot be reached") as caught:
        download()
    assert "proxy" in caught.value.hint


@pytest.mark.slow
def test_a_proxy_that_is_lost_on_the_way_is_said(
    hub: HubServer, socks: SocksServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.before_bytes["model.safetensors"] = lambda: setattr(socks, "greeting", b"no")
    hub.fault("model.safetensors", *[Fault(cut=9)] * 5)  # also on connections that were open before
    with pytest.raises(HubError, match="cannot be reached"):
        download()


@pytest.mark.parametrize("address", ["socks4://127.0.0.1:9", "socks://127.0.0.1:9", "ftp://127.0.0.1:9"])
def test_a_proxy_of_another_kind_is_refused_in_words(
    socks: SocksServer, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("ALL_PROXY", address)
    with pytest.raises(HubError, match="does not support this kind of proxy"):
        download()
