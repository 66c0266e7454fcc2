"""What a person does with the Discover page, and what it says."""

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from rdchat.ui.models.discover_page import DiscoverPage
from rdchat.ui.style import ThemedLabel
from tests.ui.models.page_steps import until


def said(page: QWidget) -> list[str]:
    """Return the texts of the page's visible labels."""
    return [label.text() for label in page.findChildren(ThemedLabel) if label.isVisible() and label.text()]


def search(qtbot: QtBot, page: DiscoverPage, text: str) -> None:
    """Type a search, press Return, and wait for the answer."""
    page.bar.field.clear()
    qtbot.keyClicks(page.bar.field, text)
    qtbot.keyClick(page.bar.field, Qt.Key.Key_Return)
    until(qtbot, lambda: not page._models.search.state.asking)


def click(qtbot: QtBot, page: DiscoverPage, repository: str) -> None:
    """Click a row, and wait for its details."""
    item = page.list.item(page.list.row_of(repository))
    page.list.scrollToItem(item)
    place = page.list.visualItemRect(item).center()
    qtbot.mouseClick(page.list.viewport(), Qt.MouseButton.LeftButton, pos=place)
    wait_for_details(qtbot, page)


def find(qtbot: QtBot, page: DiscoverPage, repository: str) -> None:
    """Search a model by its name, and click its row."""
    search(qtbot, page, repository.rpartition("/")[2])
    click(qtbot, page, repository)


def wait_for_details(qtbot: QtBot, page: DiscoverPage) -> None:
    """Wait until the model's facts and its card have arrived, or failed to."""

    def settled() -> bool:
        model = page._models.details.model
        return model is not None and bool(model.trouble or model.card is not None or model.card_trouble)

    until(qtbot, settled)
