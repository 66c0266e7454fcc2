"""What a person does on the pages of the Models window, and what the pages say."""

from PySide6.QtWidgets import QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from rdchat.errors import StorageLockedError
from rdchat.hub import CachedRepository
from rdchat.inference.api import ModelCard
from rdchat.services.models.model_services import Models
from rdchat.ui.models.discover_page import DiscoverPage
from rdchat.ui.models.installed_page import InstalledPage
from rdchat.ui.style import ThemedLabel
from tests.ui.models.conftest import Machine
from tests.ui.shown_widgets import answer_question, click_on, press_key


def press(qtbot: QtBot, button: QWidget) -> None:
    """Click a button with the mouse, once it can be clicked."""
    qtbot.waitUntil(button.isEnabled)
    click_on(button)


def is_free(repository: CachedRepository) -> bool:
    """Return whether the process of downloads has let go of a repository."""
    try:
        with repository.locked():
            return True
    except StorageLockedError:
        return False


def names(page: InstalledPage) -> list[str]:
    return [entry.item.name for entry in page.list.entries if isinstance(entry.item, ModelCard)]


def pick(page: InstalledPage, name: str) -> None:
    """Select a model, a computer or the downloads."""
    rows = [getattr(entry.item, "name", entry.title) if entry.key else "" for entry in page.list.entries]
    page.list.setCurrentRow(rows.index(name))


def refresh(qtbot: QtBot, models: Models) -> None:
    models.library.search_again()
    qtbot.waitUntil(lambda: not models.library._search.busy)


def pick_new(qtbot: QtBot, page: InstalledPage, machine: Machine, card: ModelCard) -> None:
    """Put a model onto the machine, and pick it on the page."""
    machine.models.append(card)
    refresh(qtbot, page._models)
    pick(page, card.name)


def answer(qtbot: QtBot, parent: QWidget, button: str) -> str:
    """Press a button of the question that comes; return what it says."""
    qtbot.waitUntil(lambda: any(box.isVisible() for box in parent.findChildren(QMessageBox)))
    return answer_question(parent, button)


def all_text(widget: QWidget) -> str:
    return "\n".join(
        label.text() for label in widget.findChildren(QWidget) if hasattr(label, "text") and label.isVisible()
    )


def said(page: QWidget) -> list[str]:
    """Return the texts of the page's visible labels."""
    return [label.text() for label in page.findChildren(ThemedLabel) if label.isVisible() and label.text()]


def search(qtbot: QtBot, page: DiscoverPage, text: str) -> None:
    """Type a search, press Return, and wait for the answer."""
    page.bar.field.clear()
    qtbot.keyClicks(page.bar.field, text)
    press_key(page.bar.field, "Return")
    qtbot.waitUntil(lambda: not page._models.search.state.asking)


def click(qtbot: QtBot, page: DiscoverPage, repository: str) -> None:
    """Click a row, and wait for its details."""
    item = page.list.item(page.list.row_of(repository))
    page.list.scrollToItem(item)
    place = page.list.visualItemRect(item).center()
    click_on(page.list.viewport(), place)
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

    qtbot.waitUntil(settled)
