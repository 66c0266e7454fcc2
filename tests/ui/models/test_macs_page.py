"""The Macs page: what is known of each Mac, which models fit, and where one is loaded."""

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot
from shiboken6 import isValid

from rdchat.inference.rank_processes.hosts import Host
from rdchat.services.models import macs
from rdchat.ui.models.models_window import ModelsWindow
from rdchat.ui.models.place_page import MacSheet, MacsPage
from rdchat.ui.style import model_label
from tests.services.models.library_samples import GB, library_model
from tests.ui.models.conftest import Machine

FACTS = {"versions": {}, "free_bytes": 12 * GB, "limit_bytes": 11 * GB, "latency_ms": 0.2, "bytes_per_s": 1.2e9}


@pytest.fixture
def machine() -> Machine:
    sizes = (("org/Alpha-8B-4bit", 8), ("org/Beta-30B-4bit", 30), ("org/Gamma-70B-4bit", 70))
    return Machine([library_model(name, size * 10**9) for name, size in sizes])


@pytest.fixture
def page(models_window: ModelsWindow, monkeypatch: pytest.MonkeyPatch) -> MacsPage:
    """The page with checks that find every Mac but one ready."""

    def check(host: Host) -> dict[str, object]:
        if host.ssh == "attic.local":
            return {"problem": "ssh cannot reach attic.local: Permission denied. Check your keys."}
        return FACTS

    monkeypatch.setattr(macs, "checked", check)
    models_window.show_page(models_window.macs)
    return models_window.macs


def add(qtbot: QtBot, page: MacsPage, name: str, address: str) -> MacSheet:
    (page.add if page.list.entries else page.notice.action).click()
    (sheet,) = [each for each in page.window().findChildren(MacSheet) if each.isVisible()]
    sheet.name.setText(name)
    sheet.address.setText(address)
    qtbot.keyClick(sheet.address, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: not page._macs._work.busy)
    return sheet


def facts(page: MacsPage) -> list[str]:
    return [row.facts.text().partition("  ·  ")[2] for row in page.rows.rows.values()]


def test_a_mac_is_added_checked_and_removed(qtbot: QtBot, page: MacsPage) -> None:
    assert page.notice.isVisible()
    assert any("stay awake" in label.text() for label in page.notice.findChildren(QLabel)), "before ranks are joined"
    sheet = add(qtbot, page, "studio.local", "192.168.1.5")
    qtbot.waitUntil(lambda: not isValid(sheet))
    assert page._macs._settings.values.hosts == (Host("studio.local", ("192.168.1.5",)),)
    (entry,) = page.list.entries
    assert (entry.title, entry.marks) == ("studio.local", (("Ready", "success"),))
    assert (page.name.text(), page.source.text()) == ("studio.local", "192.168.1.5")
    assert "12.9 GB of memory free, 0.2 ms and 9.6 Gbit/s" in page.state.text()
    add(qtbot, page, "attic.local", "169.254.3.4")
    assert "ssh cannot reach attic.local" in page.list.entries[1].facts
    assert page.list.entries[1].marks == ()
    page.list.setCurrentRow(0)
    qtbot.keyClick(page.list, Qt.Key.Key_Delete)
    assert [host.ssh for host in page._macs.hosts] == ["attic.local"]
    assert "ssh cannot reach attic.local" in page.state.text()
    page.check.click()
    assert page.state.text() == "Checking…"
    qtbot.waitUntil(lambda: "ssh cannot reach" in page.state.text())
    page.remove.click()
    assert page.notice.isVisible()
    assert any("stay awake" in label.text() for label in page.notice.findChildren(QLabel)), "before ranks are joined"


@pytest.mark.parametrize(("name", "address", "problem"), [
    ("-oProxyCommand=x", "10.0.0.2", "is not the name of a Mac"),
    ("studio.local", "8.8.8.8", "not an address of a private network"),
    ("localhost", "", "This Mac is always there"),
])  # fmt: skip
def test_what_cannot_be_added_is_said(qtbot: QtBot, page: MacsPage, name: str, address: str, problem: str) -> None:
    sheet = add(qtbot, page, name, address)
    assert problem in sheet.status.text()
    assert sheet.buttons[-1].isEnabled()
    assert not page._macs.hosts


def test_models_say_where_they_fit_and_load_there(qtbot: QtBot, page: MacsPage) -> None:
    slot = page._models.slot
    add(qtbot, page, "attic.local", "169.254.3.4")
    assert facts(page) == [], "no Mac is ready"
    add(qtbot, page, "studio.local", "192.168.1.5")
    assert facts(page) == ["fits this Mac", "fits these Macs together", "too large for these Macs"]
    row = page.rows.rows["org/Beta-30B-4bit"]
    assert (row.main.text(), row.state.text()) == ("Load", "")
    row.main.click()
    assert slot.chosen == "ranks:localhost,studio.local:org/Beta-30B-4bit"
    assert model_label(slot.chosen) == "Beta-30B-4bit  ·  on 2 Macs"
    qtbot.waitUntil(lambda: (row.main.text(), row.state.text()) == ("Unload", "In use now."))
