"""`rdchat models add-remote`, `remote` and `remove-remote`, and `rdchat ask` with a remote model."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from rdchat import paths
from rdchat.chat.settings import stored_settings
from rdchat.cli import main
from rdchat.files.atomic_file import FileLock, make_folder
from rdchat.server.credentials import fingerprint, own_certificate
from rdchat.server.server import Server
from rdchat.server.server_settings import ServerSettings
from tests.commands.running import check_refused, printed_json
from tests.server.fakes import KEY, ScriptedGate

MODEL = "remote:studio/tiny/model"


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("NO_PROXY", "*")
    with closing(ScriptedGate()) as gate:
        server = Server(ServerSettings(KEY, port=0, certificate=own_certificate()), gate)
        server.listen()
        yield server.address
        assert server.stop_server(60)


@pytest.fixture
def studio(address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("RDCHAT_KEY_STUDIO", KEY)
    shown = fingerprint(paths.server_certificate_path()).lower()
    report = printed_json(capsys, "models", "add-remote", "studio", address, "--fingerprint", shown)
    assert report == {"name": "studio", "models": [MODEL]}
    return address


def test_a_server_is_listed_asked_and_removed(studio: str, capsys: pytest.CaptureFixture[str]) -> None:
    listed = printed_json(capsys, "models", "remote")["servers"]
    assert listed == [{"name": "studio", "address": studio, "models": [MODEL], "problem": ""}]
    assert main(["ask", "--model", MODEL, "Hi", "--max-tokens", "9"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "Hello, you!\n"
    assert "tiny/model runs on studio (https://127.0.0.1:" in shown.err
    report = printed_json(capsys, "ask", "--model", MODEL, "Hi")
    assert (report["text"], report["stats"]["drafted"], report["model_path"]) == ("Hello, you!", 4, MODEL)
    check_refused(capsys, ["models", "add-remote", "studio", studio], "There is a server named studio", 2)
    check_refused(capsys, ["ask", "--model", "remote:studio/other", "Hi"], "studio has no model other now", 1)
    check_refused(capsys, ["serve", "--model", MODEL], "cannot be served from here", 2)
    check_refused(capsys, ["bench", "--model", MODEL], "cannot be measured from here", 2)
    assert printed_json(capsys, "models", "remove-remote", "studio") == {"name": "studio"}
    check_refused(capsys, ["models", "remove-remote", "studio"], "no remote server named studio", 1)
    check_refused(capsys, ["ask", "--model", MODEL, "Hi"], "no remote server named studio", 1)


def test_what_is_not_safe_is_not_added(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    add = ["models", "add-remote", "studio"]
    check_refused(capsys, [*add, "http://10.0.0.1"], "or add --unencrypted if that is meant.", 2)
    check_refused(capsys, [*add, address], f"add --fingerprint {fingerprint(own_certificate())}", 2)
    trusted = [*add, address, "--fingerprint", fingerprint(own_certificate())]
    check_refused(capsys, trusted, "needs a key", 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO("wrong-key\n"))
    check_refused(capsys, [*trusted, "--key-from-stdin"], "refused the key", 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\n"))
    check_refused(capsys, [*trusted, "--key-from-stdin"], "Set RDCHAT_KEY_STUDIO", 1)
    assert stored_settings().remote_servers == ()


def test_an_open_window_keeps_its_settings(
    studio: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(paths.data_dir())
    lock = FileLock(paths.data_dir() / "instance.lock")
    check_refused(capsys, ["models", "remove-remote", "studio"], "Use Models in its window", 1)
    lock.release()
    kept = json.loads(paths.settings_path().read_text())["remote_servers"]
    assert [each["name"] for each in kept] == ["studio"]
    monkeypatch.setenv("RDCHAT_KEY_STUDIO", "another-key")
    assert main(["models", "remote"]) == 1
    assert "refused the key" in capsys.readouterr().out
