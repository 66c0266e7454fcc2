"""The pages of the Models window, and what the guide says of them."""

import re

from rdchat.ui.models.window import ModelsWindow
from tests.project.scripts import ROOT

NUMBERS = {4: "four", 5: "five", 6: "six", 7: "seven"}


def test_the_guide_names_every_page(models_window: ModelsWindow) -> None:
    """It had four of six."""
    titles = [models_window.tabs.tabText(index) for index in range(models_window.tabs.count())]
    part = re.search(r"has (\w+) pages:\n((?:[-*] .*\n(?:  .*\n)*)+)", (ROOT / "docs/guide.md").read_text())
    assert part is not None
    assert part[1] == NUMBERS[len(titles)]
    assert re.findall(r"\*([A-Z][a-z]+)\*", part[2]) == titles
