"""`rdchat cluster`, and the Macs of `rdchat ask --hosts`."""

import json
from typing import Any

import pytest

from rdchat import paths
from rdchat.chat.settings import stored_settings
from rdchat.cli import main
from rdchat.commands import other_computers
from rdchat.files.atomic_file import FileLock, make_folder
from rdchat.inference.rank_processes.hosts import Host
from rdchat.inference.rank_processes.processes import facts_text
from tests.commands.running import check_refused, printed_json

STUDIO = {"ssh": "studio.local", "ips": ["192.168.1.5"]}
FACTS = {"versions": {}, "free_bytes": 12 * 10**9, "limit_bytes": 11 * 10**9, "latency_ms": 0.25, "bytes_per_s": 1e9}


@pytest.fixture
def studio(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_json(capsys, "cluster", "add", "studio.local", "--address", "192.168.1.5") == STUDIO


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_macs_are_listed_as_a_host_file_of_mlx(studio: None, capsys: pytest.CaptureFixture[str]) -> None:
    from mlx._distributed_utils.common import Hostfile

    main(["cluster", "add", "attic.local", "--address", "10.0.0.2"])
    capsys.readouterr()
    main(["cluster", "list", "--json"])
    path = paths.data_dir() / "macs.json"
    path.write_text(capsys.readouterr().out)
    assert [(host.ssh_hostname, host.ips) for host in Hostfile.from_file(path).hosts] == [
        ("studio.local", ["192.168.1.5"]),
        ("attic.local", ["10.0.0.2"]),
    ]
    assert json.loads(paths.settings_path().read_text())["hosts"][0] == STUDIO


def test_another_address_replaces_the_first(studio: None, capsys: pytest.CaptureFixture[str]) -> None:
    main(["cluster", "add", "studio.local", "--address", "169.254.1.2"])
    assert stored_settings().hosts == (Host("studio.local", ("169.254.1.2",)),)


def test_a_mac_is_removed(studio: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed_json(capsys, "cluster", "remove", "studio.local") == {"ssh": "studio.local"}
    assert not stored_settings().hosts
    check_refused(capsys, ["cluster", "remove", "studio.local"], "no studio.local in the list", 2)


def test_a_check_reports_each_mac(
    studio: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def check(host: Host) -> dict[str, Any]:
        if host.ssh == "attic.local":
            return {"problem": "ssh cannot reach attic.local: Permission denied."}
        return FACTS

    monkeypatch.setattr(other_computers, "checked", check)
    main(["cluster", "add", "attic.local", "--address", "10.0.0.2"])
    capsys.readouterr()
    assert main(["cluster", "check"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "studio.local: ready, 12.0 GB of memory free, 0.25 ms and 8 Gbit/s to this Mac",
        "attic.local: ssh cannot reach attic.local: Permission denied.",
    ]
    main(["cluster", "remove", "attic.local"])
    capsys.readouterr()
    assert printed_json(capsys, "cluster", "check") == [{"ssh": "studio.local"} | FACTS]


def test_the_list_is_not_changed_under_an_open_window(capsys: pytest.CaptureFixture[str]) -> None:
    make_folder(paths.data_dir())
    lock = FileLock(paths.data_dir() / "instance.lock", "the settings", "")
    try:
        check_refused(capsys, ["cluster", "add", "b", "--address", "10.0.0.2"], "Models in its window", 1)
    finally:
        lock.release()


@pytest.mark.parametrize(("hosts", "words"), [
    ("studio.local", "The first Mac must be this one. Name it localhost: localhost,studio.local."),
    ("localhost,unknown", "unknown is not in the list of Macs. Add it: rdchat cluster add unknown"),
])  # fmt: skip
def test_hosts_that_make_no_ring(studio: None, capsys: pytest.CaptureFixture[str], hosts: str, words: str) -> None:
    check_refused(capsys, ["ask", "--hosts", hosts, "hello"], words, 2)


def test_a_slow_link_advises_a_cable() -> None:
    assert "Gbit/s to this Mac (a cable would be faster)" in facts_text(FACTS | {"bytes_per_s": 1.2e8})
    assert "cable" not in facts_text(FACTS)
