"""The pages of the Models window, and what the guide says of them."""

import re

from PySide6.QtWidgets import QTabWidget

from rdchat import host
from rdchat.ui.models.models_window import ModelsWindow
from tests.project.scripts import ROOT

NUMBERS = {4: "four", 5: "five", 6: "six", 7: "seven"}


def test_the_guide_names_every_page(models_window: ModelsWindow) -> None:
    """It had four of six."""
    titles = [models_window.tabs.tabText(index) for index in range(models_window.tabs.count())]
    titles += [] if host.MACOS else ["Macs"]
    part = re.search(r"has (\w+) pages:\n((?:[-*] .*\n(?:  .*\n)*)+)", (ROOT / "docs/guide.md").read_text())
    assert part is not None
    assert part[1] == NUMBERS[len(titles)]
    assert re.findall(r"\*([A-Z][a-z]+)\*", part[2]) == titles


def test_macs_are_a_part_of_remote_except_on_a_mac(models_window: ModelsWindow) -> None:
    titles = [models_window.tabs.tabText(index) for index in range(models_window.tabs.count())]
    assert titles[4:] == (["Remote", "Macs"] if host.MACOS else ["Remote"])
    for page in (models_window.macs, models_window.installed, models_window.remote):
        models_window.show_page(page)
        assert page.isVisible()
    if not host.MACOS:
        places = models_window.remote.parentWidget().parentWidget()
        assert isinstance(places, QTabWidget)
        assert [places.tabText(index) for index in range(places.count())] == ["Computers", "Macs"]
