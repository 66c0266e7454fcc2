"""The drafter picker: what was found on this machine, which of it fits, and what is known of the one that drafts."""

import threading
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject
from PySide6.QtGui import QAction
from pytestqt.qtbot import QtBot

from rdchat.inference.api import (
    DrafterFit,
    DraftOptions,
    DraftSettings,
    HeadKind,
    Mode,
    ModelCard,
    ModeOption,
    TargetMatch,
)
from rdchat.services.background.background_work import FolderSearch
from rdchat.ui.speed.draft_controls import DraftControls
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat

FITS = ModelCard("org/eagle", "org/eagle", "Hugging Face", kind=HeadKind.EAGLE3)
OTHERS = tuple(ModelCard(f"b{n}", f"/lm/b{n}", "LM Studio", kind=HeadKind.BLOCK) for n in range(500))
DAMAGED = ModelCard("cut", "/own/cut", "Your own", problem="It has no weights.")


def _entries(controls: DraftControls) -> dict[str, QAction]:
    menu = controls.drafter.menu()
    menu.aboutToShow.emit()
    return {action.text(): action for action in menu.actions()}


def test_drafters_that_fit_are_offered_and_the_others_say_why_not(
    qtbot: QtBot, chat: Chat, controls: DraftControls
) -> None:
    looked: list[tuple[object, int]] = []

    def find(model: Path) -> tuple[ModelCard, ...]:
        looked.append((model, threading.get_ident()))
        return (DAMAGED, FITS, *OTHERS)

    search = FolderSearch(find)
    chat.engine.fits = {FITS.model: DrafterFit(FITS.model, TargetMatch(True))}
    chat.engine.fits_at_once = 100
    drafting = chat.controller.drafting
    drafting.offer_drafters(search)
    chat.start()
    drafting.change(DraftSettings(Mode.DRAFTER))
    qtbot.waitUntil(lambda: len(drafting.drafters) == 502)
    assert {model for model, _ in looked} == {Path("tiny")}
    assert threading.get_ident() not in {thread for _, thread in looked}
    entries = _entries(controls)
    names = list(entries)
    assert names[names.index("Your own") :][:4] == [
        "Your own",
        "1 drafter that cannot be used here",
        "Hugging Face",
        "org/eagle  ·  EAGLE-3",
    ]
    assert entries["1 drafter that cannot be used here"].toolTip() == "cut: It has no weights."
    unfit = entries["500 drafters that cannot be used here"]
    assert not unfit.isEnabled()
    assert unfit.toolTip().splitlines()[0] == "b0: It is for another."
    assert unfit.toolTip().splitlines()[-1] == "and 480 more"
    entries["org/eagle  ·  EAGLE-3"].trigger()
    assert drafting.settings.drafter == "org/eagle"
    assert _entries(controls)["org/eagle  ·  EAGLE-3"].isChecked(), "it stays in its own place"
    search.finish_work()


def test_nothing_is_offered_of_which_nobody_knows_whether_it_fits(
    qtbot: QtBot, chat: Chat, controls: DraftControls
) -> None:
    search = FolderSearch(lambda _: (FITS, DAMAGED))
    chat.controller.drafting.offer_drafters(search)
    assert chat.controller.drafting.drafters == (), "no model is loaded"
    chat.start()
    qtbot.waitUntil(lambda: bool(search.results))
    assert "org/eagle  ·  EAGLE-3" not in _entries(controls)
    search.finish_work()


def test_the_last_of_several_searches_is_about_what_was_asked_last(qtbot: QtBot) -> None:
    go_on = threading.Event()
    about = []

    def find(model: str) -> tuple[str, ...]:
        about.append(model)
        go_on.wait(60)
        return (model,)

    search = FolderSearch(find)
    for model in ("a", "b", "c"):
        search.search_folders(model)
    go_on.set()
    qtbot.waitUntil(lambda: search.results == ("c",))
    assert about == ["a", "c"]
    search.finish_work()


@pytest.mark.parametrize(
    ("kind", "match", "words"),
    [
        (None, None, ""),
        (HeadKind.RECURRENT, TargetMatch(True), "Kind: Recurrent."),
        (HeadKind.EAGLE3, TargetMatch(False, "Its sizes fit tiny."), "Kind: EAGLE-3. Its sizes fit tiny."),
        (HeadKind.BLOCK, None, "Kind: Block."),
    ],
)  # fmt: skip
def test_what_is_known_of_the_drafter_stands_below_the_picker(
    qtbot: QtBot, chat: Chat, controls: DraftControls, kind: HeadKind | None, match: TargetMatch | None, words: str
) -> None:
    modes = tuple(ModeOption(mode, True, kind=kind, match=match) for mode in Mode)
    chat.engine.options = DraftOptions(Path(), modes)
    chat.start()
    drafting = chat.controller.drafting
    qtbot.waitUntil(lambda: drafting.option(Mode.AUTO) is not None)
    for mode, shown in ((Mode.DRAFTER, True), (Mode.AUTO, True), (Mode.LOOKUP, False)):
        drafting.change(DraftSettings(mode))
        assert controls.facts.text() == (words if shown else "")
        assert controls.facts.isVisible() == bool(words and shown)


@pytest.mark.parametrize(
    ("match", "words"),
    [
        (None, "The model's own"),
        ("none", "None for this model"),
        (TargetMatch(True), "Made for this model"),
        (TargetMatch(False, "Its sizes fit tiny."), "Fits this model"),
    ],
)
def test_a_drafter_is_made_for_the_model_only_where_there_is_one(
    qtbot: QtBot, chat: Chat, controls: DraftControls, match: TargetMatch | str | None, words: str
) -> None:
    found = match if isinstance(match, TargetMatch) else None
    modes = tuple(ModeOption(mode, mode is not Mode.DRAFTER or found is not None, match=found) for mode in Mode)
    drafting = chat.controller.drafting
    picker = controls.drafter
    if match is not None:
        chat.engine.options = DraftOptions(Path(), modes)
        chat.start()
        qtbot.waitUntil(lambda: drafting.option(Mode.AUTO) is not None)
    picker.resize(400, picker.height())
    assert picker.accessibleDescription() == picker.text() == words
    assert _entries(controls)[words].isChecked()


def test_an_open_menu_is_never_empty_while_it_is_filled_again(
    qtbot: QtBot, chat: Chat, controls: DraftControls
) -> None:
    """On X11 that closed it, as soon as the engine had answered."""
    go_on = threading.Event()

    def find(_: object) -> tuple[ModelCard, ...]:
        go_on.wait(60)
        return (FITS,)

    search = FolderSearch(find)
    chat.engine.fits = {FITS.model: DrafterFit(FITS.model, TargetMatch(True))}
    drafting = chat.controller.drafting
    drafting.offer_drafters(search)
    chat.start()
    menu = controls.drafter.menu()
    menu.popup(controls.mapToGlobal(controls.drafter.pos()))
    least: list[int] = []

    class Watch(QObject):
        def eventFilter(self, watched: QObject, event: QEvent) -> bool:
            if event.type() in (QEvent.Type.ActionRemoved, QEvent.Type.ActionAdded):
                least.append(len(menu.actions()))
            return False

    watch = Watch()
    menu.installEventFilter(watch)
    go_on.set()
    qtbot.waitUntil(lambda: "org/eagle  ·  EAGLE-3" in [action.text() for action in menu.actions()])
    assert least
    assert min(least) > 0
    assert [action.text() for action in menu.actions()] == [
        "Made for this model", "Hugging Face", "org/eagle  ·  EAGLE-3", "", "Find in Models…", "Choose Folder…",
    ]  # fmt: skip
    filled = len(least)
    drafting.changed.emit()
    assert len(least) == filled, "nothing has changed"
    menu.close()
    search.finish_work()


@pytest.mark.slow
def test_both_pickers_lead_to_where_others_are_found(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chat.start()
    drafting = window.panel.drafting
    models = window.windows.models
    for picker in (drafting.draft_model, drafting.drafter):
        models.show_page(models.installed)
        picker.menu().aboutToShow.emit()
        next(action for action in picker.menu().actions() if action.text() == "Find in Models…").trigger()
        qtbot.waitUntil(models.drafters.isVisible)
