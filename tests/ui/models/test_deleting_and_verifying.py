"""Models are deleted, put back, verified and mended on the Installed page, against a hub on this machine."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QCheckBox, QMessageBox
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.hub.downloads.download import Download
from rdchat.hub.verifying_and_deleting import Verdict
from rdchat.inference.api import DraftSettings, Mode
from rdchat.inference.models.safetensors_file import target_hash
from rdchat.services.models.model_services import Models
from rdchat.ui.models.installed_page import InstalledPage
from rdchat.ui.models.model_texts import verdict_text
from tests.hub.downloads.downloading import NAME, HeldVerification, cached, download, small_files
from tests.hub.hub_server import HubServer
from tests.inference.vision.seeing_models import seeing_folder, without_tower
from tests.services.models.library_samples import library_model
from tests.ui.conftest import Chat
from tests.ui.models.conftest import Machine
from tests.ui.models.page_steps import answer, names, pick, pick_new, refresh
from tests.ui.shown_widgets import press_key, shown_child


@pytest.fixture
def downloaded(qtbot: QtBot, hub: HubServer, machine: Machine, page: InstalledPage) -> Path:
    """A model of the hub's cache, picked."""
    hub.add(NAME, small_files())
    folder = download()[0]
    pick_new(qtbot, page, machine, library_model(NAME, path=folder, disk_bytes=sum(map(len, small_files().values()))))
    return folder


@pytest.fixture
def tower(qtbot: QtBot, machine: Machine, page: InstalledPage) -> Path:
    """A tower that was fetched for a model, which is picked."""
    folder = without_tower(seeing_folder(paths.models_dir() / "blind", "qwen3_vl"))
    tower = paths.towers_dir() / f"blind-vision-{target_hash(folder)[:6]}"
    tower.mkdir(parents=True)
    (tower / "config.json").write_text("{}" + " " * 99_998)
    blind = library_model("blind", path=folder, repository="", model="blind", origin="rdchat")
    pick_new(qtbot, page, machine, blind)
    return tower


@pytest.mark.parametrize("with_tower", [True, False])
def test_a_tower_is_deleted_with_its_model_and_comes_back(
    qtbot: QtBot,
    machine: Machine,
    page: InstalledPage,
    tower: Path,
    system_trash: Path,
    *,
    with_tower: bool,
) -> None:
    model = machine.models.pop()
    page.details.row.delete.trigger()
    qtbot.waitUntil(lambda: any(box.isVisible() for box in page.findChildren(QMessageBox)))
    option = shown_child(page, QCheckBox)
    assert (option.text(), option.isChecked()) == ("Also delete its vision (100 KB)", True)
    option.setChecked(with_tower)
    answer(qtbot, page, "Delete")
    qtbot.waitUntil(lambda: page.result.link.text() == "Undo" and not model.path.exists())
    assert tower.exists() is not with_tower
    machine.models.append(model)
    page.result.link.click()
    qtbot.waitUntil(lambda: page.result.label.text() == "blind is back.")
    assert model.path.exists()
    assert (tower / "config.json").exists()


def test_without_a_trash_it_is_asked_again(
    qtbot: QtBot, machine: Machine, page: InstalledPage, downloaded: Path
) -> None:
    press_key(page.list, "Del")
    words = answer(qtbot, page, "Delete")
    assert "Delete small-4bit? It takes 403 KB of disk space. It is in the Hugging Face cache" in words
    assert words.endswith("It goes to the Trash.")
    qtbot.waitUntil(lambda: any("for good" in box.text() for box in page.findChildren(QMessageBox) if box.isVisible()))
    assert downloaded.is_dir()
    machine.models.pop()
    words = answer(qtbot, page, "Delete")
    assert words.startswith("Delete small-4bit for good?")
    assert words.endswith("It cannot be moved to the Trash, so this cannot be undone.")
    qtbot.waitUntil(lambda: not cached().folder.exists())
    qtbot.waitUntil(lambda: page.result.label.text() == "Deleted small-4bit.")
    assert page.result.link.isHidden()
    qtbot.waitUntil(lambda: NAME not in names(page))


@pytest.mark.slow
def test_the_loaded_model_is_unloaded_before_it_is_deleted(
    qtbot: QtBot,
    chat: Chat,
    machine: Machine,
    page: InstalledPage,
    models: Models,
    downloaded: Path,
    system_trash: Path,
) -> None:
    chat.load(str(downloaded))
    machine.models[-1] = replace(machine.models[-1], model=str(downloaded))
    refresh(qtbot, models)
    page.details.row.delete.trigger()
    assert "It is loaded and will be unloaded first." in answer(qtbot, page, "Unload and Delete")
    qtbot.waitUntil(lambda: not cached().folder.exists())
    assert chat.engine.loaded is None


def test_a_smaller_model_that_is_deleted_drafts_no_more(
    qtbot: QtBot, chat: Chat, page: InstalledPage, downloaded: Path, system_trash: Path
) -> None:
    drafting = chat.controller.drafting
    drafting.change(DraftSettings(Mode.SPECULATIVE, draft_model=NAME))
    page.details.row.delete.trigger()
    answer(qtbot, page, "Delete")
    qtbot.waitUntil(lambda: not downloaded.exists())
    assert drafting.settings == DraftSettings(Mode.SPECULATIVE)


def test_other_programs_models_cannot_be_deleted_here(qtbot: QtBot, machine: Machine, page: InstalledPage) -> None:
    pick_new(qtbot, page, machine, library_model("theirs/model", origin="LM Studio", repository=""))
    assert not page.details.row.delete.isEnabled()
    assert "delete it there" in page.details.row.delete.toolTip()
    press_key(page.list, "Del")
    assert not page.findChildren(QMessageBox)


@pytest.mark.slow
def test_a_model_is_verified_and_mended_by_the_version_that_is_damaged(
    qtbot: QtBot, hub: HubServer, page: InstalledPage, models: Models, downloaded: Path
) -> None:
    weights = downloaded / "model.safetensors"
    page.details.row.verify.trigger()
    qtbot.waitUntil(lambda: page.result.label.text() == "Verified: 4 files intact.")
    weights.write_bytes(b"x" * 400_000)
    page.details.row.verify.trigger()
    qtbot.waitUntil(lambda: "Damaged: model.safetensors." in page.result.label.text())
    hub.repositories[NAME].commits["f" * 40] = small_files() | {"model.safetensors": b"newer"}
    hub.repositories[NAME].branches["main"] = "f" * 40
    assert page.result.link.text() == "Repair"
    with qtbot.waitSignal(models.downloads.finished):
        page.result.link.click()
    assert weights.read_bytes() == small_files()["model.safetensors"]


@pytest.mark.slow
def test_a_verification_can_be_stopped_and_is_seen_on_its_own_model_only(
    qtbot: QtBot, page: InstalledPage, models: Models, downloaded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldVerification(monkeypatch)
    page.details.row.verify.trigger()
    qtbot.waitUntil(lambda: models.verification.done_bytes > 0)
    assert page.result.link.text() == "Stop"
    pick(page, "org/Beta-1B-4bit")
    assert page.result.label.isHidden()
    pick(page, NAME)
    assert page.result.link.isVisible()
    page.result.link.click()
    held.let_go.set()
    assert models.verification.model is None
    assert page.result.label.isHidden()


def test_verdicts_in_words() -> None:
    verdict = Verdict("org/model", "c", missing=("a", "b", "c", "d"), intact=("x",), hub_problem="No network.")
    assert verdict_text(verdict)[0] == ("Not intact. Missing: a, b, c and 1 more. No network.")
    assert verdict_text(Verdict("org/model", "c", unknown=("x",)))[1] == "danger"
    assert verdict_text(Verdict("org/model", "c", intact=("x",)))[0] == "Verified: 1 file intact."
    older = verdict_text(Verdict("org/model", "c", damaged=("x",), in_cache=False))[0]
    assert older == ("Not intact. Damaged: x. It was compared with the newest version. An older version differs too.")


@pytest.mark.slow
def test_a_removed_download_leaves_the_list(
    qtbot: QtBot, hub: HubServer, machine: Machine, page: InstalledPage, models: Models
) -> None:
    """It stayed until the page was shown again."""
    hub.add(NAME, small_files())
    hub.holds_at = 100_000
    models.downloads.start_download(Download(NAME))
    qtbot.waitUntil(lambda: models.downloads.all()[0].done_bytes > 0)
    pick_new(
        qtbot, page, machine, library_model(NAME, model="", sizes=None, path=cached().folder, download_bytes=400_000)
    )
    row = page.details.row
    assert not row.verify.isEnabled()
    assert row.main.text() == "Pause"
    row.main.click()
    qtbot.waitUntil(lambda: row.other.text() == "Remove")
    machine.models.pop()
    row.other.click()
    answer(qtbot, row, "Remove ")
    qtbot.waitUntil(lambda: NAME not in names(page))
