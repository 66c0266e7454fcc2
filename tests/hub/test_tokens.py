"""Where the hub's token is found and stored."""

from pathlib import Path

import keyring
import pytest

from rdchat.hub.endpoint import DEFAULT_ENDPOINT, Endpoint, Token, Tokens
from tests.hub.keychains import Keychain, Locked, PlainText

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
