"""The Discover page as a person uses it: keys, clicks and a hub on this machine."""

from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint
from pytestqt.qtbot import QtBot

from rdchat.hub import HubModel
from rdchat.hub.downloads.download import Download
from rdchat.services.models.hub_search import ModelDetails
from rdchat.services.models.model_services import Models
from rdchat.ui.models.discover_page import DiscoverPage
from rdchat.ui.models.models_window import ModelsWindow, TokenSheet
from rdchat.ui.style import TextButton
from rdchat.ui.style.formatting import MACHINE
from tests.hub.downloads.downloading import random_bytes, small_files
from tests.hub.hub_server import Fault, HubServer
from tests.ui.models.page_steps import answer, click, find, press, said, search, wait_for_details
from tests.ui.shown_widgets import click_on, press_key

GEMMA = "mlx-community/gemma-4-12B-it-4bit"  # on the list for newcomers, for 16 GB
ASSISTANT = "google/gemma-4-12B-it-assistant"
FACTS = {
    "config": {"model_type": "qwen3", "quantization_config": {"bits": 4}},
    "safetensors": {"parameters": {"U32": 1_150_000_000}, "total": 1},
}
MODEL = "org/small-model-4bit"
CARD = b"---\nlicense: mit\n---\n<h1>Small</h1>\n![A plot](https://x.example/p.png) and [a link](https://x.example/)\n"


def titles(page: DiscoverPage) -> list[str]:
    return [entry.title for entry in page.list.entries]


def test_the_list_for_newcomers_is_there_before_anything_is_asked(
    qtbot: QtBot, hub: HubServer, page: DiscoverPage
) -> None:
    qtbot.waitUntil(lambda: titles(page)[0] == f"Best for {MACHINE}")
    assert titles(page)[1:4] == ["Gemma 4 12B", "LFM2.5 8B-A1B", "Gemma 4 E4B"]
    assert titles(page)[4] == f"Also fits {MACHINE}"
    assert page.bar.field.hasFocus()
    assert hub.requests == []
    host = hub.url.removeprefix("http://")
    assert f"Searches go to {host} (set by HF_ENDPOINT)." in said(page)


@pytest.mark.slow
def test_typing_finds_and_a_click_tells(qtbot: QtBot, hub: HubServer, page: DiscoverPage) -> None:
    hub.add("org/small-4bit", small_files() | {"README.md": CARD, "run.py": b"x"}, **FACTS)
    hub.add("org/other", {})
    search(qtbot, page, "small")
    assert titles(page) == ["small-4bit"]
    click(qtbot, page, "org/small-4bit")
    assert page.details.source.text().endswith("  ·  apache-2.0")
    press(qtbot, page.details.fold)
    words = said(page)
    assert {"4-bit", "qwen3", "apache-2.0"} <= set(words)
    assert any(word.startswith("Fits: ") for word in words)
    qtbot.waitUntil(lambda: page.details.card.body.toPlainText() == "Small\nA plot and a link")
    press(qtbot, page.details.files.fold)
    files = page.details.files
    qtbot.waitUntil(files.isVisible)
    listed = files.text().split("\n")
    assert "model.safetensors: 400 KB" in listed
    assert any(line.startswith("config.json: ") for line in listed)
    assert listed[-1] == "Not downloaded, as rdchat never reads code or pickles: run.py."


@pytest.mark.slow
def test_a_very_long_card_is_cut_and_says_so(qtbot: QtBot, hub: HubServer, page: DiscoverPage) -> None:
    hub.add("org/small", small_files() | {"README.md": b"Some words.\n\n" * 10_000})
    find(qtbot, page, "org/small")
    qtbot.waitUntil(page.details.cut.isVisible)
    qtbot.waitUntil(lambda: 10_000 < len(page.details.card.body.toPlainText()) < 30_000)


def test_keys_alone_lead_to_the_download(qtbot: QtBot, hub: HubServer, page: DiscoverPage) -> None:
    for name in ("a", "b", "c"):
        hub.add(f"org/small-{name}", small_files())
    search(qtbot, page, "small")
    press_key(page.bar.field, "Down")
    assert page.list.hasFocus()
    press_key(page.list, "Down")
    press_key(page.list, "Down")
    chosen = page.list.current.key
    wait_for_details(qtbot, page)
    press_key(page.list, "Return")
    assert page.details.row.main.hasFocus()
    looked_at = [request.path for request in hub.requests if request.path.startswith("/api/models/")]
    assert len(looked_at) == 1  # what was passed on the way was not asked for
    assert chosen in looked_at[0]
    press_key(page.bar.field, "Esc")
    assert page.bar.field.text() == ""
    assert page.isVisible()


@pytest.mark.slow
def test_filters_narrow_what_was_found(qtbot: QtBot, hub: HubServer, page: DiscoverPage) -> None:
    large = {**FACTS, "safetensors": {"parameters": {"U32": 10_000_000_000}, "total": 1}}
    hub.add("org/some-4bit", {}, **FACTS)
    hub.add("org/some-large", {}, **large)
    hub.add("org/some-mit", {}, **FACTS | {"tags": ["mlx", "license:mit"], "config": {"model_type": "llama"}})
    search(qtbot, page, "some")
    assert len(titles(page)) == 3
    click_on(page.bar.fitting, QPoint(8, page.bar.fitting.height() // 2))
    assert sorted(titles(page)) == ["some-4bit", "some-mit"]
    page.bar.licence.setCurrentIndex(page.bar.licence.findData("mit"))
    assert titles(page) == ["some-mit"]
    assert "1 of 3 models" in said(page)
    page.bar.quantization.setCurrentIndex(page.bar.quantization.findData("4-bit"))
    assert {"The filters hide all models", "They hide 3 models."} <= set(said(page))
    press(qtbot, page.notice.action)
    assert len(titles(page)) == 3


@pytest.mark.slow
def test_scrolling_asks_for_more(qtbot: QtBot, hub: HubServer, page: DiscoverPage) -> None:
    for number in range(520):
        hub.add(f"org/model-{number:03}", {}, downloads=1000 - number)
    search(qtbot, page, "model")
    assert len(titles(page)) == 60
    page.list.setCurrentRow(3)
    for shown in (200, 500):
        bar = page.list.verticalScrollBar()
        bar.setValue(bar.maximum())
        qtbot.waitUntil(lambda shown=shown: len(titles(page)) == shown)
        assert page.list.currentRow() == 3
    bar.setValue(bar.maximum())
    assert "500 of the first 500 models" in said(page)
    assert len([request for request in hub.requests if "search=" in request.path]) == 3


@pytest.mark.slow
def test_nothing_found_and_trouble_say_what_to_do(qtbot: QtBot, hub: HubServer, page: DiscoverPage) -> None:
    search(qtbot, page, "nothing")
    assert {"Nothing found", "No MLX models match your search. Try other words."} <= set(said(page))
    hub.api_faults = [Fault(status=429, headers={"Retry-After": "40"})]
    search(qtbot, page, "busy")
    assert "Hugging Face receives too many requests." in said(page)
    assert "Try again in a few minutes." in said(page)
    hub.add("org/busy", {})
    press(qtbot, page.notice.retry)
    qtbot.waitUntil(lambda: titles(page) == ["busy"])


@pytest.mark.slow
def test_a_gated_model_leads_to_its_page_and_to_the_token(
    qtbot: QtBot, hub: HubServer, page: DiscoverPage, models: Models, opened: list[str]
) -> None:
    hub.add("org/secret", small_files(), gated=True)
    find(qtbot, page, "org/secret")
    assert "org/secret is gated: you need access from its authors." in said(page)
    press(qtbot, page.details.notice.page)
    assert opened == [f"{hub.url}/org/secret"]
    press(qtbot, page.details.notice.token)
    (sheet,) = page.window().findChildren(TokenSheet)
    qtbot.waitUntil(lambda: sheet.isVisible() and not models.account.busy)


def files_of_drafter() -> dict[str, bytes]:
    return {"config.json": b'{"backbone_hidden_size": 64}', "model.safetensors": random_bytes(200_000, 7)}


def test_a_size_is_not_said_to_be_unknown_before_the_hub_has_answered(page: DiscoverPage) -> None:
    details = page.details
    details.show_published(ModelDetails("org/mystery"))
    assert details.memory.isHidden()
    listed = ModelDetails("org/mystery", hub=HubModel("org/mystery", commit="c" * 40))
    details.show_published(listed)
    assert not details.memory.isHidden()
    assert details.memory.verdict.text() == "Not known: Hugging Face has not given its size."
    details.show_published(replace(listed, here=True))
    assert details.memory.isHidden()


@pytest.mark.slow
def test_a_suggested_model_and_its_drafter_are_one_download(
    qtbot: QtBot, hub: HubServer, page: DiscoverPage, models_window: ModelsWindow
) -> None:
    hub.add(GEMMA, small_files(), **FACTS)
    hub.add(ASSISTANT, files_of_drafter())
    hub.holds_at = 100_000
    click(qtbot, page, GEMMA)
    details = page.details
    models = page._models
    row = details.row
    words = f"Drafter: {ASSISTANT} (Assistant, 850 MB). It is downloaded with the model, and Auto uses it."
    assert words in said(page)
    assert any(each.endswith("Not tried with rdchat.") for each in said(page))
    assert row.main.text() == "Download 850 MB"
    assert not details.suggestion.download.isVisible()
    press(qtbot, row.main)
    qtbot.waitUntil(lambda: bool(models.downloads.all()))
    hub.holds_at = 500_000  # in the drafter
    qtbot.waitUntil(lambda: models.downloads.find_download(ASSISTANT) is not None)
    qtbot.waitUntil(lambda: "603 KB" in row.state.text())
    assert (row.main.text(), row.other.text()) == ("Pause", "Cancel")
    models_window.show_page(models_window.downloads)
    (shown,) = models_window.downloads.list.rows.values()
    assert shown.name.text() == f"{GEMMA}  ·  with its drafter"
    models_window.show_page(page)
    hub.holds_at = None
    qtbot.waitUntil(lambda: row.main.text() == "Load")
    qtbot.waitUntil(lambda: "It is installed, and Auto uses it." in details.suggestion.drafter.text())


@pytest.mark.slow
def test_a_drafter_that_fails_leaves_the_model_and_can_be_fetched_later(
    qtbot: QtBot, hub: HubServer, page: DiscoverPage
) -> None:
    hub.add(GEMMA, small_files(), **FACTS)
    click(qtbot, page, GEMMA)
    details = page.details
    row = details.row
    box = details.suggestion
    press(qtbot, row.main)
    qtbot.waitUntil(lambda: row.main.text() == "Load")
    gone = f"Its drafter could not be downloaded. {ASSISTANT} is private or no longer on Hugging Face."
    qtbot.waitUntil(lambda: row.problem.text() == gone)
    assert row.hint.text() == "The model works without it. Get it later in the details of the model."
    assert row.state.text() == "Installed."
    hub.add(ASSISTANT, files_of_drafter())
    qtbot.waitUntil(box.download.isVisible)
    assert "It is not installed." in box.drafter.text()
    # It is shown before it is laid out, and then has no height that a click could hit.
    qtbot.waitUntil(lambda: not box.download.main.size().isEmpty())
    details.area.ensureWidgetVisible(box.download.main)
    press(qtbot, box.download.main)
    qtbot.waitUntil(lambda: "It is installed, and Auto uses it." in box.drafter.text())
    assert not box.download.isVisible()
    qtbot.waitUntil(lambda: not row.problem.isVisible())


@pytest.mark.slow
def test_a_pair_is_paused_resumed_and_cancelled_as_one(qtbot: QtBot, hub: HubServer, page: DiscoverPage) -> None:
    hub.add(GEMMA, small_files(), **FACTS)
    hub.add(ASSISTANT, files_of_drafter())
    hub.holds_at = 100_000
    click(qtbot, page, GEMMA)
    row = page.details.row
    models = page._models
    press(qtbot, row.main)
    qtbot.waitUntil(lambda: hub.sent.total() > 40_000 and row.main.text() == "Pause")
    press(qtbot, row.main)  # Pause
    qtbot.waitUntil(lambda: row.main.text() == "Resume")
    hub.holds_at = 550_000  # in the drafter, also where the first part was sent twice
    press(qtbot, row.main)
    qtbot.waitUntil(lambda: models.downloads.find_download(ASSISTANT) is not None)
    drafter = files_of_drafter()["model.safetensors"]
    qtbot.waitUntil(lambda: bool(hub.starts(drafter)))
    press(qtbot, row.other)  # Cancel
    words = answer(qtbot, page.window(), "Remove")
    assert f"{ASSISTANT}. The model stays." in words
    qtbot.waitUntil(lambda: row.main.text() == "Load")
    assert models.downloads.find_download(ASSISTANT) is None
    (finished,) = models.downloads.all()
    assert (finished.companion, finished.problem, finished.state) == ("", "", "finished")


@pytest.mark.slow
def test_the_focus_stays_while_a_download_goes_on(qtbot: QtBot, hub: HubServer, page: DiscoverPage) -> None:
    """Each report of progress showed the notice for a moment, which took the focus from the details."""
    hub.add("org/small", small_files())
    find(qtbot, page, "org/small")
    page.details.files.fold.setFocus()
    page._models.downloads.changed.emit(Download("org/other"))
    assert page.details.files.fold.hasFocus()


@pytest.mark.slow
def test_the_files_are_listed_once_while_they_download(qtbot: QtBot, hub: HubServer, page: DiscoverPage) -> None:
    """The row's link to the files, with their progress, stood above that of the page."""

    def links() -> list[str]:
        buttons = page.details.findChildren(TextButton)
        return [button.text() for button in buttons if button.isVisible() and "file" in button.text()]

    hub.add("org/small", small_files())
    hub.holds_at = 100_000
    page.open_model("org/small")
    wait_for_details(qtbot, page)
    row = page.details.row
    own = page.details.files.fold
    assert links() == [own.text()]
    press(qtbot, row.main)
    qtbot.waitUntil(row.files.fold.isVisible)
    assert links() == [row.files.fold.text()]
    (download,) = page._models.downloads.all()
    page._models.downloads.discard(download.id)
    qtbot.waitUntil(own.isVisible)
    assert links() == [own.text()]


@pytest.mark.slow
def test_a_suggestion_shows_what_is_known_while_the_hub_does_not_answer(
    qtbot: QtBot, hub: HubServer, page: DiscoverPage
) -> None:
    hub.api_faults = [Fault(status=503)] * 9
    page.open_model(GEMMA)
    wait_for_details(qtbot, page)
    details = page.details
    assert details.currentWidget() is details.area
    assert details.problem.isVisible()
    assert not details.row.isVisible()
    hub.api_faults = []
    hub.add(GEMMA, small_files(), **FACTS)
    press(qtbot, details.again)
    qtbot.waitUntil(details.row.isVisible)
    assert page.list.current.key == GEMMA
    assert not details.again.isVisible()
