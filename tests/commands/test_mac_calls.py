"""What nobody has seen on a Mac is tried by `rdchat report`, or by a person with `docs/on-a-mac.md`."""

import ast
import io
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import rdchat
from rdchat import host, mac_desktop, machine
from rdchat.commands import mac_calls
from rdchat.files import cache_folders

ROOT = Path(rdchat.__file__).parents[1]
# What the programs of a Mac print, of an M2.
PRINTED = {
    "sysctl": "kern.osversion: 26B82\nhw.model: Mac14,2\niogpu.wired_limit_mb: 0\n",
    "ioreg": '+-o AGXAcceleratorG14G  <class AGXAcceleratorG14G, id 0x1>\n      "gpu-core-count" = 10\n',
    "pmset": 'pid 812(Python): [0x1] 00:00:01 NoIdleSleepAssertion named: "rdchat is working"\n',
    "tmutil": "[Excluded]  /private/tmp/folder\n",
}


def marked_functions() -> set[str]:
    """Return the names of functions, classes and modules that say that they were not tried on a Mac."""
    names = set()
    for path in ROOT.glob("rdchat/**/*.py"):
        if "ot yet tried on a Mac" in (text := path.read_text()):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                    doc = " ".join((ast.get_docstring(node) or "").split())
                    if "Not yet tried on a Mac" in doc:
                        names.add(path.stem if isinstance(node, ast.Module) else node.name)
    return names


def test_each_function_that_was_not_tried_is_called_or_on_the_owners_page() -> None:
    page = (ROOT / "docs" / "on-a-mac.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    marked = marked_functions()
    assert marked >= {"is_hot", "screenshot", "keychain", "MenuBarItem"}
    assert marked - mac_calls.CALLS.keys() - named == set()


@pytest.fixture
def _mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Mac on which all works."""

    def run(command: list[str], **_options: Any) -> Any:
        if command[0].endswith("sips"):
            Path(command[-1]).write_bytes(b"TIFF")
        return subprocess.CompletedProcess(command, 0, PRINTED.get(Path(command[0]).name, ""), "")

    monkeypatch.setattr(host, "MACOS", True)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(machine, "_free_on_macos", lambda: 2**30)
    monkeypatch.setattr(machine, "_begin_activity", lambda: lambda: None)
    monkeypatch.setattr(machine, "_process_info", lambda _selector: 0)
    monkeypatch.setattr(machine, "_read_footprint", lambda _pid: 4096)
    monkeypatch.setattr(cache_folders, "exclude_from_backups", lambda _folder: None)
    monkeypatch.setenv("MLX_ENABLE_TF32", "0")


@pytest.mark.usefixtures("_mac")
def test_each_call_works_on_a_mac() -> None:
    facts: dict[str, Any] = {}
    mac_calls.call_each(facts, None)
    assert facts.pop("calls") == dict.fromkeys(mac_calls.CALLS, "works")
    settings = {"kern.osversion": "26B82", "hw.model": "Mac14,2", "iogpu.wired_limit_mb": "0"}
    assert facts == {**settings, "gpu_cores": "10"}


@pytest.mark.usefixtures("_mac")
def test_a_call_that_fails_is_named_by_its_error_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> int:
        raise PermissionError(13, "Denied", "/Users/mary")

    monkeypatch.setattr(machine, "_read_footprint", fail)  # macOS refuses it: that is logged
    monkeypatch.setattr(host, "peer_user", fail)
    monkeypatch.setattr(mac_desktop, "convert_to_tiff", lambda *_paths: False)
    facts: dict[str, Any] = {}
    mac_calls.call_each(facts, None)
    failed = {name: outcome for name, outcome in facts["calls"].items() if outcome != "works"}
    assert failed == {
        "convert_to_tiff": "does not work", "peer_user": "PermissionError", "physical_footprint": "PermissionError",
    }  # fmt: skip


def test_elsewhere_they_are_left_out() -> None:
    facts: dict[str, Any] = {}
    if not host.MACOS:
        mac_calls.call_each(facts, None)
        assert facts == {"left_out": ["this is no Mac"]}


def test_the_picture_is_one() -> None:
    with Image.open(io.BytesIO(bytes.fromhex(mac_calls._PICTURE))) as picture:
        assert picture.size == (8, 8)
        picture.load()


def test_a_peer_of_ours_is_known() -> None:
    assert mac_calls._peer_is_known()
