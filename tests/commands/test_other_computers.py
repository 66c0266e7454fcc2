"""`rdchat models remote` with its kin, `rdchat cluster`, and `rdchat ask` with a model of another computer."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from rdchat import paths
from rdchat.chat.settings import stored_settings
from rdchat.cli import main
from rdchat.commands import other_computers
from rdchat.files.atomic_file import FileLock, make_folder
from rdchat.inference.api import Host, facts_text
from rdchat.server.credentials import fingerprint, own_certificate
from rdchat.server.server import Server
from rdchat.server.server_settings import ServerSettings
from tests.commands.running import Console
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
def studio(address: str, monkeypatch: pytest.MonkeyPatch, console: Console) -> str:
    monkeypatch.setenv("RDCHAT_KEY_STUDIO", KEY)
    shown = fingerprint(paths.server_certificate_path()).lower()
    report = console.json("models", "add-remote", "studio", address, "--fingerprint", shown)
    assert report == {"name": "studio", "models": [MODEL]}
    return address


def test_a_server_is_listed_asked_and_removed(studio: str, console: Console) -> None:
    listed = console.json("models", "remote")["servers"]
    assert listed == [{"name": "studio", "address": studio, "models": [MODEL], "problem": ""}]
    shown = console.runs("ask", "--model", MODEL, "Hi", "--max-tokens", "9")
    assert shown.out == "Hello, you!\n"
    assert "tiny/model runs on studio (https://127.0.0.1:" in shown.err
    report = console.json("ask", "--model", MODEL, "Hi")
    assert (report["text"], report["stats"]["drafted"], report["model_path"]) == ("Hello, you!", 4, MODEL)
    console.refuses(["models", "add-remote", "studio", studio], "There is a server named studio", 2)
    console.refuses(["ask", "--model", "remote:studio/other", "Hi"], "studio has no model other now", 1)
    console.refuses(["serve", "--model", MODEL], "cannot be served from here", 2)
    console.refuses(["bench", "--model", MODEL], "cannot be measured from here", 2)
    assert console.json("models", "remove-remote", "studio") == {"name": "studio"}
    console.refuses(["models", "remove-remote", "studio"], "no remote server named studio", 1)
    console.refuses(["ask", "--model", MODEL, "Hi"], "no remote server named studio", 1)


def test_what_is_not_safe_is_not_added(address: str, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    add = ["models", "add-remote", "studio"]
    console.refuses([*add, "http://10.0.0.1"], "or add --unencrypted if that is meant.", 2)
    console.refuses([*add, address], f"add --fingerprint {fingerprint(own_certificate())}", 2)
    trusted = [*add, address, "--fingerprint", fingerprint(own_certificate())]
    console.refuses(trusted, "needs a key", 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO("wrong-key\n"))
    console.refuses([*trusted, "--key-from-stdin"], "refused the key", 1)
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{KEY}\n"))
    console.refuses([*trusted, "--key-from-stdin"], "Set RDCHAT_KEY_STUDIO", 1)
    assert stored_settings().remote_servers == ()


def test_an_open_window_keeps_its_settings(studio: str, console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(paths.data_dir())
    lock = FileLock(paths.data_dir() / "instance.lock")
    console.refuses(["models", "remove-remote", "studio"], "Use Models in its window", 1)
    lock.release()
    kept = json.loads(paths.settings_path().read_text())["remote_servers"]
    assert [each["name"] for each in kept] == ["studio"]
    monkeypatch.setenv("RDCHAT_KEY_STUDIO", "another-key")
    assert "refused the key" in console.runs("models", "remote", status=1).out


STUDIO = {"ssh": "studio.local", "ips": ["192.168.1.5"]}
FACTS = {"versions": {}, "free_bytes": 12 * 10**9, "limit_bytes": 11 * 10**9, "latency_ms": 0.25, "bytes_per_s": 1e9}


@pytest.fixture
def added_mac(console: Console) -> None:
    assert console.json("cluster", "add", "studio.local", "--address", "192.168.1.5") == STUDIO


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_macs_are_listed_as_a_host_file_of_mlx(added_mac: None, console: Console) -> None:
    from mlx._distributed_utils.common import Hostfile

    console.runs("cluster", "add", "attic.local", "--address", "10.0.0.2")
    main(["cluster", "list", "--json"])
    path = paths.data_dir() / "macs.json"
    path.write_text(console.printed().out)
    assert [(host.ssh_hostname, host.ips) for host in Hostfile.from_file(path).hosts] == [
        ("studio.local", ["192.168.1.5"]),
        ("attic.local", ["10.0.0.2"]),
    ]
    assert json.loads(paths.settings_path().read_text())["hosts"][0] == STUDIO


def test_another_address_replaces_the_first_and_a_mac_is_removed(added_mac: None, console: Console) -> None:
    console.runs("cluster", "add", "studio.local", "--address", "169.254.1.2")
    assert stored_settings().hosts == (Host("studio.local", ("169.254.1.2",)),)
    assert console.json("cluster", "remove", "studio.local") == {"ssh": "studio.local"}
    assert not stored_settings().hosts
    console.refuses(["cluster", "remove", "studio.local"], "no studio.local in the list", 2)


def test_a_check_reports_each_mac(added_mac: None, monkeypatch: pytest.MonkeyPatch, console: Console) -> None:
    def check(host: Host) -> dict[str, Any]:
        if host.ssh == "attic.local":
            return {"problem": "ssh cannot reach attic.local: Permission denied."}
        return FACTS

    monkeypatch.setattr(other_computers, "check_mac", check)
    console.runs("cluster", "add", "attic.local", "--address", "10.0.0.2")
    assert console.runs("cluster", "check", status=1).out.splitlines() == [
        "studio.local: ready, 12.0 GB of memory free, 0.25 ms and 8 Gbit/s to this Mac",
        "attic.local: ssh cannot reach attic.local: Permission denied.",
    ]
    console.runs("cluster", "remove", "attic.local")
    assert console.json("cluster", "check") == [{"ssh": "studio.local"} | FACTS]


@pytest.mark.parametrize(("hosts", "words"), [
    ("studio.local", "The first Mac must be this one. Name it localhost: localhost,studio.local."),
    ("localhost,unknown", "unknown is not in the list of Macs. Add it: rdchat cluster add unknown"),
])  # fmt: skip
def test_hosts_that_make_no_ring(added_mac: None, console: Console, hosts: str, words: str) -> None:
    console.refuses(["ask", "--hosts", hosts, "hello"], words, 2)


def test_a_slow_link_advises_a_cable() -> None:
    assert "Gbit/s to this Mac (a cable would be faster)" in facts_text(FACTS | {"bytes_per_s": 1.2e8})
    assert "cable" not in facts_text(FACTS)
