"""Refusals of the hub become messages. Tokens are found and stored, and go to the hub only."""

from dataclasses import asdict
from pathlib import Path

import keyring
import pytest

from rdchat.errors import InvalidSettingError
from rdchat.hub.downloads.download_record import records_of
from rdchat.hub.endpoint import (
    DEFAULT_ENDPOINT,
    HOST_VARIABLE,
    Endpoint,
    HubError,
    Token,
    Tokens,
    find_endpoint,
    wait_of,
)
from tests.hub.downloads.downloading import (
    NAME,
    WEIGHTS,
    cached,
    check_nothing_installed,
    check_whole,
    download,
    hub_api,
    small_files,
)
from tests.hub.hub_server import Fault, HubServer, sha256
from tests.hub.keychains import Keychain, Locked, PlainText


@pytest.fixture
def trusted(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    """The hub as a mirror that the person lets have the token."""
    monkeypatch.setenv(HOST_VARIABLE, find_endpoint().host)
    return hub


def test_a_gated_model_says_what_to_click(hub: HubServer) -> None:
    hub.add(NAME, small_files(), gated=True)
    with pytest.raises(HubError) as caught:
        download()
    page = f"{hub.url}/{NAME}"
    assert f'Open {page}, sign in and click "Agree and access repository"' in caught.value.hint
    assert f"create a token at {hub.url}/settings/tokens and run `rdchat models token`" in caught.value.hint
    check_nothing_installed()


def test_weights_that_mlx_lm_cannot_unpack_are_not_downloaded(hub: HubServer) -> None:
    """They were found out after the whole download."""
    files = small_files()
    config = {"model_type": "llama", "quantization_config": {"quant_method": "gptq", "bits": 4}}
    hub.add(NAME, files, config=config)
    with pytest.raises(HubError, match="cannot unpack weights of gptq for the architecture 'llama'") as caught:
        download()
    assert "Choose an MLX version" in caught.value.hint
    assert hub.starts(files[WEIGHTS]) == []
    check_nothing_installed()
    hub.add(NAME, files, config=config | {"quantization_config": {"quant_method": "awq"}})
    check_whole(download()[0], files)


def test_a_token_without_access_says_so(trusted: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    trusted.add(NAME, small_files(), gated=True)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(HubError, match="is gated") as caught:
        download()
    assert "Then try again" in caught.value.hint
    assert "hf_wrong" not in f"{caught.value!r} {caught.value} {caught.value.__cause__!r}"


def test_the_token_goes_to_the_hub_and_not_to_the_store(trusted: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    files = small_files()
    trusted.add(NAME, files, gated=True)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    check_whole(download()[0], files)
    store = trusted.store.removeprefix("http://")
    assert {request.token for request in trusted.requests if request.host == store} == {""}
    assert {request.token for request in trusted.requests if request.host != store} == {"hf_right"}


def test_a_mirror_is_sent_no_token_unless_its_host_is_named(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add(NAME, small_files())
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    download()
    hub_api().search_models("small")
    assert {request.token for request in hub.requests} == {""}
    monkeypatch.setenv(HOST_VARIABLE, "another.example")
    assert Tokens().access(find_endpoint()).token is None


def test_nothing_is_asked_that_was_not_asked_for(hub: HubServer) -> None:
    """No telemetry, and no look for a newer version."""
    hub.add(NAME, small_files())
    download()
    hub_api().search_models("small")
    paths = [request.path for request in hub.requests]
    assert all(
        path.startswith((f"/api/models/{NAME}/", f"/{NAME}/resolve/", "/blob/", "/api/models?")) for path in paths
    )


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "http://user@127.0.0.1/",
        "",
        "ftp://127.0.0.1/x",
        "http://[::1",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1:port/",
    ],
)
def test_redirects_to_what_is_no_server_are_refused(hub: HubServer, location: str) -> None:
    hub.add(NAME, small_files())
    hub.fault(WEIGHTS, Fault(redirect=location or " "))
    with pytest.raises(HubError, match="address that is not safe"):
        download()
    check_nothing_installed()


@pytest.mark.parametrize("host", ["x" * 64 + ".example", "a..example", "ex\xadample", "-", "%00"])
def test_redirects_to_hosts_that_cannot_be_are_said(hub: HubServer, host: str) -> None:
    hub.add(NAME, small_files())
    hub.fault(WEIGHTS, *[Fault(redirect=f"http://{host}/")] * 4)
    with pytest.raises(HubError, match=r"an address that|an invalid address|cannot be reached"):
        download()
    hub.api_faults = [Fault(status=302, headers={"Location": f"http://{host}/"})]
    with pytest.raises(HubError, match=r"an address that|an invalid address|cannot be reached"):
        hub_api().search_models("small")
    check_nothing_installed()


def test_redirects_in_circles_end(hub: HubServer) -> None:
    commit = hub.add(NAME, small_files())
    hub.fault(WEIGHTS, *[Fault(redirect=f"/{NAME}/resolve/{commit}/{WEIGHTS}")] * 50)
    with pytest.raises(HubError, match="redirects too often"):
        download()


def test_what_is_not_there_is_said(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HubError, match="is private or no longer on Hugging Face"):
        download("some-org/nothing")
    assert list(cached().folder.parent.iterdir()) == []
    hub.add(NAME, small_files())
    with pytest.raises(HubError, match="has no revision v9"):
        download(revision="v9")
    monkeypatch.setenv(HOST_VARIABLE, find_endpoint().host)
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    with pytest.raises(HubError, match="some-org/nothing is not on Hugging Face"):
        download("some-org/nothing")


def test_a_file_that_went_away_is_said_and_what_is_here_stays(hub: HubServer) -> None:
    hub.add(NAME, small_files())
    hub.fault("config.json", Fault(status=404))
    with pytest.raises(HubError, match="or no longer"):
        download()
    check_nothing_installed()
    check_whole(download()[0], small_files())


def test_too_many_requests_wait_as_long_as_the_hub_asks(hub: HubServer, files: dict[str, bytes]) -> None:
    hub.api_faults = [Fault(status=429, headers={"Retry-After": "0"})]
    hub.fault(WEIGHTS, Fault(status=429, headers={"Retry-After": "1"}))
    folder, running = download()
    check_whole(folder, files)
    assert "Hugging Face receives too many requests. Trying again in 1 s." in running.said


@pytest.mark.parametrize(
    ("asked", "when"),
    [
        ("3600", "in 60 minutes"),
        ("5400", "in 90 minutes"),
        ("86400", "in 24 hours"),
        ("99999999999", "later"),
        ("9" * 5000, "later"),
    ],
)
def test_a_wait_is_said_in_words_that_fit_it(hub: HubServer, asked: str, when: str) -> None:
    hub.add(NAME, small_files())
    hub.fault(WEIGHTS, Fault(status=429, headers={"Retry-After": asked}))
    with pytest.raises(HubError, match="too many requests") as caught:
        download()
    assert caught.value.hint == f"The downloaded part is kept. Resume the download {when}."
    assert records_of(cached())
    hub.api_faults = [Fault(status=429, headers={"Retry-After": asked})]
    with pytest.raises(HubError, match="too many requests") as caught:
        hub_api().search_models("small")
    assert caught.value.hint == f"Try again {when}."


def test_waits_are_read_in_all_their_forms() -> None:
    assert wait_of({"retry-after": "7"}) == 7
    assert wait_of({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}) is None
    assert wait_of({"ratelimit": '"api";r=0;t=55'}) == 55
    assert wait_of({"retry-after": "soon"}) is None
    assert wait_of({}) is None


def test_a_hub_in_trouble_is_asked_again_and_given_up(hub: HubServer, files: dict[str, bytes]) -> None:
    hub.api_faults = [Fault(status=503), Fault(status=500)]
    hub.fault("config.json", Fault(status=502))
    check_whole(download()[0], files)
    hub.api_faults = [Fault(status=503)] * 10
    with pytest.raises(HubError, match=r"a problem \(503\)"):
        download()


def test_an_answer_that_is_none_is_said(hub: HubServer) -> None:
    hub.add(NAME, small_files())
    hub.api_faults = [Fault(status=200)]
    with pytest.raises(HubError, match="an answer that rdchat does not understand"):
        download()


def test_a_link_to_the_store_that_ran_out_is_asked_for_anew(hub: HubServer, files: dict[str, bytes]) -> None:
    hub.fault(WEIGHTS, Fault(cut=50_000), Fault(status=403))
    check_whole(download()[0], files)
    assert hub.sent[sha256(files[WEIGHTS])] == len(files[WEIGHTS])


@pytest.mark.parametrize(
    "address",
    ["ftp://x", "nowhere", "http://", "https://me@x", "https://x/?y", "http://[::1", "http://x:abc", "http://x:99999"],
)
def test_an_endpoint_that_is_no_address_is_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", address)
    with pytest.raises(InvalidSettingError):
        find_endpoint()


def test_a_search_says_what_the_hub_says(hub: HubServer) -> None:
    hub.add(NAME, small_files())
    hub.add("../evil", small_files())
    hub.add("other-org/large-small", small_files(), gated=True)
    found = hub_api().search_models("small")
    assert [model.repository for model in found] == [NAME, "other-org/large-small"]
    first = found[0]
    assert (first.family, first.quantization, first.licence, first.changed) == (
        "llama",
        "4-bit",
        "apache-2.0",
        "2026-11-01",
    )
    assert (first.weight_bytes, first.gated, found[1].gated) == (420, False, True)


def test_a_proxy_of_the_environment_is_used(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.add(NAME, small_files())
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with pytest.raises(HubError, match="cannot be reached"):
        download()
    assert hub.requests == []


def test_a_token_shows_itself_to_nobody() -> None:
    token = Token("hf_secret")
    assert "secret" not in f"{token} {token!r} {[token]}"
    with pytest.raises(InvalidSettingError) as caught:
        Token("hf_sec ret\r\nX-Evil: 1")
    assert "sec" not in str(caught.value)
    assert "secret" not in str(asdict(Endpoint(DEFAULT_ENDPOINT, token)))


HUB = Endpoint(DEFAULT_ENDPOINT)
MIRROR = Endpoint("https://mirror.example")


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "RDCHAT_HUB_TOKEN_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))


def found(tokens: Tokens, endpoint: Endpoint = HUB) -> str | None:
    token = tokens.access(endpoint).token
    return token.text if token else None


@pytest.mark.usefixtures("surroundings")
def test_the_environment_comes_first_then_the_hubs_own_file_then_the_keychain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keyring.set_keyring(Keychain())
    assert found(Tokens()) is None
    assert Tokens().remember(Token("hf_keychain"), HUB)
    assert found(Tokens()) == "hf_keychain"
    (tmp_path / "token").write_text("hf_file\n")
    assert found(Tokens()) == "hf_file"
    monkeypatch.setenv("HF_TOKEN", "hf_environment")
    assert found(Tokens()) == "hf_environment"
    assert found(Tokens(), MIRROR) is None
    monkeypatch.setenv("RDCHAT_HUB_TOKEN_HOST", "mirror.example")
    assert found(Tokens(), MIRROR) == "hf_environment"


@pytest.mark.usefixtures("surroundings")
def test_a_token_is_kept_for_its_host_alone() -> None:
    keyring.set_keyring(keychain := Keychain())
    Tokens().remember(Token("hf_mirror"), MIRROR)
    assert (found(Tokens()), found(Tokens(), MIRROR)) == (None, "hf_mirror")
    assert Tokens().forget_token(MIRROR)
    assert not Tokens().forget_token(MIRROR)
    assert keychain.kept == {}


@pytest.mark.usefixtures("surroundings")
def test_a_token_given_for_https_is_not_sent_over_http() -> None:
    keyring.set_keyring(keychain := Keychain())
    tokens = Tokens()
    plain = Endpoint("http://mirror.example")
    tokens.remember(Token("hf_mirror"), MIRROR)
    assert (found(tokens, plain), found(Tokens(), plain)) == (None, None)
    assert not tokens.forget_token(plain)
    tokens.remember(Token("hf_plain"), plain)
    assert (found(Tokens(), plain), found(Tokens(), MIRROR)) == ("hf_plain", "hf_mirror")
    assert {host for _service, host in keychain.kept} == {"mirror.example", "http://mirror.example"}


@pytest.mark.usefixtures("surroundings")
@pytest.mark.parametrize("keychain", [PlainText, Locked])
def test_without_a_keychain_it_is_kept_until_the_app_quits(keychain: type[Keychain]) -> None:
    """Nor is a file of plain text a keychain."""
    keyring.set_keyring(backend := keychain())
    tokens = Tokens()
    assert not tokens.remember(Token("hf_given"), HUB)
    assert found(tokens) == "hf_given"
    assert found(Tokens()) is None
    assert backend.kept == {}
    assert tokens.forget_token(HUB)
    assert found(tokens) is None
