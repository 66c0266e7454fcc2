"""The drafters of a model: what is here for it, what is published for it, and a whole training by clicks."""

import re
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QMessageBox
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.files.atomic_file import write_json
from rdchat.hub import HubModel, PublishedKind, suggestion_of
from rdchat.inference.api import (
    DRAFTER,
    RESULT,
    ComparedGroup,
    Comparison,
    DrafterFit,
    DraftSettings,
    HeadKind,
    Mode,
    ModelCard,
    TargetMatch,
    TrainingOrder,
)
from rdchat.services.background_work import FolderSearch
from rdchat.services.models.model_services import Models
from rdchat.services.models.training_control import TrainingRecord, TrainingState, keep_training, training_folder
from rdchat.ui.models.drafters_section import DraftersSection
from rdchat.ui.models.installed_page import InstalledPage
from rdchat.ui.models.models_window import ModelsWindow
from rdchat.ui.models.training_page import TrainingForm
from tests.hub.hub_server import HubServer
from tests.services.models.library_samples import library_model
from tests.services.models.trainings import WAIT_MS, short_trainings, wait_for
from tests.ui.conftest import Chat
from tests.ui.models.conftest import Machine
from tests.ui.models.page_steps import answer, names, pick, press
from tests.ui.shown_widgets import press_key

__all__ = ["short_trainings"]
WEIGHTS = {"config.json": b"{}", "model.safetensors": b"w" * 100}


@pytest.fixture
def own(tmp_path: Path) -> ModelCard:
    """A drafter of the person's own, with the figures of its evaluation."""
    folder = tmp_path / "data" / "drafters" / "tiny-recurrent"
    folder.mkdir(parents=True)
    (folder / "card.md").write_text("| W1 L5 | 12 | 1.62 | 50% |\n| W4 L5 | 12 | 1.94 | 60% |\n")
    return ModelCard(
        folder.name, str(folder), "Your own", folder, is_drafter=True, kind=HeadKind.RECURRENT, disk_bytes=102_000
    )


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def here(models_window: ModelsWindow) -> InstalledPage:
    """The page whose details have the drafters."""
    return models_window.installed


@pytest.fixture
def page(qtbot: QtBot, models: Models, models_window: ModelsWindow) -> DraftersSection:
    models_window.show_page(models_window.drafters)
    qtbot.waitUntil(lambda: models.training.state is not TrainingState.LOOKING)
    return models_window.drafters


type Have = Callable[..., None]


@pytest.fixture
def have(qtbot: QtBot, chat: Chat, models: Models) -> Have:
    """Let drafters be on the machine, and all but damaged ones fit the loaded model."""

    def have(*drafters: ModelCard) -> None:
        chat.engine.fits = {each.model: DrafterFit(each.model, TargetMatch(True)) for each in drafters}
        search = FolderSearch(
            lambda _: tuple(each for each in drafters if not each.origin or Path(each.model).exists()), models
        )
        chat.controller.drafting.offer_drafters(search)
        qtbot.waitUntil(lambda: len(chat.controller.drafting.drafters) == len(drafters))

    return have


def test_a_drafter_that_is_here_says_what_it_is_and_is_raced_or_used_by_a_click(
    qtbot: QtBot, chat: Chat, models: Models, have: Have, page: DraftersSection, own: ModelCard
) -> None:
    have(own)
    row = page.list.rows[own.model]
    assert row.name.text() == "tiny-recurrent"
    assert row.facts.text() == "built for this model  ·  102 KB  ·  Your own"
    qtbot.waitUntil(lambda: row.figures.text().startswith("1.9 tokens per step"))
    assert row.badge.text() == ""
    with qtbot.waitSignal(models.library.race_requested) as requested:
        press(qtbot, row.other)
    assert requested.args == [DraftSettings(Mode.DRAFTER, drafter=own.model)]
    assert chat.controller.drafting.settings.drafter is None
    press(qtbot, row.main)
    assert chat.controller.drafting.settings.drafter == own.model
    assert chat.controller.drafting.settings.mode is Mode.AUTO
    assert row.badge.text() == "In use"
    assert not row.main.isEnabled()


def test_ones_own_drafter_is_deleted_after_a_question_and_comes_back(
    qtbot: QtBot, chat: Chat, have: Have, page: DraftersSection, here: InstalledPage, own: ModelCard, system_trash: Path
) -> None:
    have(own)
    chat.controller.drafting.change(DraftSettings(Mode.DRAFTER, drafter=own.model))
    row = page.list.rows[own.model]
    row.delete.trigger()
    answer(qtbot, page, "Cancel")
    assert Path(own.model).exists()
    qtbot.waitUntil(lambda: page.findChild(QMessageBox) is None)
    row.delete.trigger()
    assert "It is in use. Replies are then written without it." in answer(qtbot, page, "Delete")
    qtbot.waitUntil(lambda: not Path(own.model).exists())
    assert (system_trash / "tiny-recurrent" / "card.md").exists()
    assert chat.controller.drafting.settings.drafter is None, "it would be missed by the next reply"
    qtbot.waitUntil(lambda: not page.list.rows)
    assert here.result.label.text() == "Deleted tiny-recurrent."
    press(qtbot, here.result.link)
    qtbot.waitUntil(lambda: own.model in page.list.rows)
    assert (Path(own.model) / "card.md").exists()
    assert here.result.label.text() == "tiny-recurrent is back."
    assert not here.result.link.isVisible()


def test_what_cannot_be_deleted_says_why(
    qtbot: QtBot, have: Have, page: DraftersSection, here: InstalledPage, own: ModelCard
) -> None:
    have(own)
    page.list.rows[own.model].delete.trigger()
    shutil.rmtree(own.model)
    answer(qtbot, page, "Delete")
    qtbot.waitUntil(lambda: "tiny-recurrent cannot be deleted" in here.result.label.text())


def test_drafters_that_do_not_fit_say_why_when_asked(
    qtbot: QtBot, have: Have, page: DraftersSection, own: ModelCard
) -> None:
    damaged = ModelCard("cut", str(Path(own.model)) + "/..", "Your own", problem="It has no weights.")
    have(own, damaged)
    assert list(page.list.rows) == [own.model]
    assert page.unfit.text() == "1 drafter cannot be used with this model"
    assert not page.reasons.isVisible()
    press(qtbot, page.unfit)
    assert page.reasons.text() == "cut: It has no weights."


def test_another_installed_model_shows_the_drafters_that_name_it_and_can_be_loaded(
    qtbot: QtBot,
    chat: Chat,
    models: Models,
    have: Have,
    page: DraftersSection,
    here: InstalledPage,
    own: ModelCard,
    machine: Machine,
) -> None:
    have()
    machine.models = [ModelCard("org/big", "org/big", "Hugging Face", Path("org/big"))]
    machine.heads = (replace(own, match=TargetMatch(True)),)
    models.library.look_for_all()
    qtbot.waitUntil(lambda: "org/big" in names(here))
    pick(here, "org/big")
    qtbot.waitUntil(lambda: own.model in page.list.rows)
    row = page.list.rows[own.model]
    assert not row.main.isEnabled()
    assert row.main.toolTip() == "Load this model first."
    press(qtbot, here.details.row.main)
    qtbot.waitUntil(lambda: chat.slot.info is not None)
    qtbot.waitUntil(lambda: here.details.row.main.text() == "Unload")


def test_the_hub_is_asked_after_a_click_and_what_it_has_is_downloaded_and_used(
    qtbot: QtBot,
    hub: HubServer,
    chat: Chat,
    models: Models,
    have: Have,
    page: DraftersSection,
    opened: list[str],
) -> None:
    hub.add("a/tiny-eagle3", WEIGHTS)
    have()
    assert hub.requests == []
    assert hub.url.removeprefix("http://") in page.hub_text.text()
    press(qtbot, page.search)
    qtbot.waitUntil(lambda: "a/tiny-eagle3" in page.hub_list.rows)
    row = page.hub_list.rows["a/tiny-eagle3"]
    qtbot.waitUntil(lambda: not models.hub_drafters.searching)
    assert row.facts.text().startswith("EAGLE-3  ·  ")
    press(qtbot, row.other)
    assert opened == [f"{hub.url}/a/tiny-eagle3"]
    assert row.main.text().startswith("Download")
    press(qtbot, row.main)
    qtbot.waitUntil(lambda: row.badge.text() == "Installed")
    assert row.main.text() == "Use"
    press(qtbot, row.main)
    assert chat.controller.drafting.settings.drafter == "a/tiny-eagle3"


def test_a_hub_that_cannot_be_reached_is_told_of_in_words(
    qtbot: QtBot, models: Models, have: Have, page: DraftersSection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    have()
    press(qtbot, page.search)
    qtbot.waitUntil(lambda: not models.hub_drafters.searching)
    qtbot.waitUntil(lambda: "127.0.0.1:9 cannot be reached" in page.hub_text.text())
    assert page.search.isEnabled()


def test_a_training_is_chosen_in_a_form(qtbot: QtBot, have: Have, page: DraftersSection, here: InstalledPage) -> None:
    have()
    press(qtbot, page.train)
    order = here.training.form
    assert not order.chats.isChecked()
    assert here.training.main.text() == "Start Training"
    qtbot.waitUntil(here.training.main.isEnabled)
    for tokens, is_little in ((1_000_000, False), (5000, True)):
        chosen = order.order()
        assert (chosen.tokens, order.little.isVisible()) == (tokens, is_little)
        order.tokens.setValue(5000)
    press_key(here.training.back, "Space")
    assert page.train.isVisible()


def test_the_form_of_a_training_estimates_its_time(
    qtbot: QtBot, models: Models, have: Have, page: DraftersSection, here: InstalledPage
) -> None:
    """A million tokens was offered without a word on the day that it takes."""
    have()
    press(qtbot, page.train)
    form = here.training.form
    later = "The time left is shown once training has begun."
    assert form.time.text() == later
    models.library.pace = lambda: 50.0
    press_key(here.training.back, "Space")
    here.show_training()
    hours = [minutes / 60 for minutes in estimate(form)]
    assert 1 < hours[0] < hours[1] < 24
    models.library.pace = lambda: 21.7
    form.tokens.setValue(20_000)
    shortest, longest = estimate(form)
    assert shortest < 14 < 26 < longest, (
        "what docs/limits.md says of two cores, where plain decoding makes 21.7 tokens a second"
    )
    form.tokens.setValue(100_000_000)
    assert form.time.text() == "That takes more than a day."
    models.library.choose_model(library_model("other"))
    qtbot.waitUntil(lambda: form.time.text() == later)


def estimate(form: TrainingForm) -> list[float]:
    """Return the shortest and the longest time of a training, in minutes."""
    times = re.fullmatch(r"That takes (.*) to (.*)\.", form.time.text())
    units = {"s": 1 / 60, "min": 1, "h": 60}
    return [sum(int(n) * units[unit] for n, unit in re.findall(r"(\d+) (\w+)", text)) for text in times.groups()]


@pytest.mark.slow
@pytest.mark.timeout(1200)  # four processes that import MLX
def test_a_training_by_clicks_from_the_form_to_its_use(
    qtbot: QtBot,
    chat: Chat,
    models: Models,
    have: Have,
    page: DraftersSection,
    here: InstalledPage,
    short_trainings: None,
    small_model: Path,
) -> None:
    have()
    chat.slot.load_model(str(small_model))
    qtbot.waitUntil(lambda: models.library.loaded is not None and models.library.loaded.path == small_model)
    press(qtbot, page.train)
    view = here.training.form
    main = here.training.main
    view.tokens.setValue(1000)
    assert view.little.isVisible()
    press(qtbot, main)
    training, shown = models.training, here.training
    wait_for(qtbot, training, TrainingState.TRAINING)
    qtbot.waitUntil(lambda: shown.title.text() == "Writing answers to learn from", timeout=WAIT_MS)
    assert shown.notes.text().startswith("The answers take up to "), "disk and memory"
    press(qtbot, main)
    qtbot.waitUntil(lambda: shown.title.text() == "Paused", timeout=WAIT_MS)
    press(qtbot, main)
    assert training.state is TrainingState.STARTING
    wait_for(qtbot, training, TrainingState.FINISHED)
    qtbot.waitUntil(lambda: main.text() == "Use Drafter")
    assert shown.title.text().startswith("The new drafter brings")
    press(qtbot, main)
    qtbot.waitUntil(page.train.isVisible, timeout=WAIT_MS)
    drafter = chat.controller.drafting.settings.drafter
    assert Path(drafter).parent == paths.drafters_dir()


@pytest.fixture
def trained(request: pytest.FixtureRequest) -> None:
    """Leave a finished training behind, as an earlier run of the app does, with the tokens that it brings."""
    (training_folder() / DRAFTER).mkdir(parents=True)
    keep_training(TrainingRecord(TrainingOrder("/models/short", "short", tokens=1000)))
    write_json(
        training_folder() / RESULT, asdict(Comparison((ComparedGroup("all", request.param, 1.77),), "Model's own"))
    )


@pytest.mark.parametrize("trained", [1.03], indirect=True)
def test_a_new_drafter_that_is_worse_is_used_only_by_a_click(
    trained: None, qtbot: QtBot, page: DraftersSection, here: InstalledPage
) -> None:
    here.show_training()
    result = here.training
    qtbot.waitUntil(lambda: result.main.text() == "Use Drafter")
    assert result.title.text() == "The old drafter is better: 1.77 tokens per step, the new one 1.03."
    assert "with each drafter (4 beams of 5 tokens)." in result.notes.text()
    assert not result.main.isDefault()


@pytest.mark.parametrize("trained", [1.9], indirect=True)
def test_a_drafter_that_is_used_is_taken_before_the_rest_is_removed(
    trained: None, qtbot: QtBot, models: Models, page: DraftersSection, here: InstalledPage
) -> None:
    here.show_training()
    result = here.training
    qtbot.waitUntil(lambda: result.main.text() == "Use Drafter")
    assert result.main.isDefault()
    with qtbot.waitSignal(models.training.taken, timeout=WAIT_MS):
        press(qtbot, result.main)
    assert page.train.isVisible()
    wait_for(qtbot, models.training, TrainingState.NOTHING)
    assert page.note.text() == "short-recurrent is used from the next reply on."


@pytest.mark.parametrize("trained", [1.9], indirect=True)
def test_discarding_asks_first(trained: None, qtbot: QtBot, page: DraftersSection, here: InstalledPage) -> None:
    here.show_training()
    press(qtbot, here.training.discard)
    answer(qtbot, here.training, "Discard")
    qtbot.waitUntil(here.training.form.isVisible)
    assert not training_folder().exists()


def test_a_suggested_drafter_stays_first_during_a_search(
    have: Have, page: DraftersSection, models: Models, machine: Machine
) -> None:
    gemma = suggestion_of("mlx-community/gemma-4-12B-it-4bit")
    name = gemma.drafter.repository
    search = models.hub_drafters
    machine.models = [library_model(gemma.repository)]
    have()
    page.choose_model(machine.models[0])
    search._set(gemma.repository, searching=True)
    assert [row.name.text() for row in page.hub_list.rows.values()] == [name]
    search._set(gemma.repository, problem="The hub did not answer.")
    assert [row.name.text() for row in page.hub_list.rows.values()] == [name]
    answer = HubModel(name, licence="mit", kind=PublishedKind.ASSISTANT)
    search._set(gemma.repository, (HubModel("org/other", kind=PublishedKind.EAGLE3), answer))
    assert [model.id for model in models.published] == [name, "org/other"]
    assert models.published[0].hub is answer


@pytest.mark.slow
def test_a_suggested_drafter_is_offered_without_a_search(
    qtbot: QtBot, have: Have, page: DraftersSection, models: Models, machine: Machine, hub: HubServer
) -> None:
    gemma = suggestion_of("mlx-community/gemma-4-12B-it-4bit")
    name = gemma.drafter.repository
    hub.add(name, WEIGHTS)
    chosen = library_model(gemma.repository)
    other = library_model("org/other")
    machine.models = [chosen, other]
    have()
    page.choose_model(other)
    assert page.hub_list.rows == {}
    page.choose_model(chosen)
    (row,) = page.hub_list.rows.values()
    assert (row.name.text(), row.facts.text()) == (name, "Assistant  ·  850 MB  ·  apache-2.0")
    assert hub.requests == []
    press(qtbot, row.main)
    qtbot.waitUntil(lambda: models.downloads.find_download(name) is not None)
    qtbot.waitUntil(lambda: models.downloads.find_download(name).state == "finished", timeout=WAIT_MS)
