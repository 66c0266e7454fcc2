"""The draft controls, and the drafter picker: which drafters are here and fit."""

import threading
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject, QPoint, QPointF, Qt
from PySide6.QtGui import QHelpEvent
from PySide6.QtWidgets import QApplication, QToolTip
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
from rdchat.services.background_work import FolderSearch
from rdchat.ui.speed.draft_controls import DraftControls
from rdchat.ui.style import MODES
from rdchat.ui.window.main_window import MainWindow
from tests.grids import share
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import choose_files, entries_of, turn_wheel


def _choose(controls: DraftControls, mode: Mode) -> None:
    box = controls.mode
    box.setCurrentIndex(box.findData(mode))
    box.activated.emit(box.currentIndex())


def _shown(controls: DraftControls) -> set[str]:
    return {field.name for field in controls._fields if field.widget.isVisible() and field.widget.isEnabled()}


def _offer(chat: Chat, *options: ModeOption) -> None:
    chat.engine.options = DraftOptions(Path(), options)


def test_each_mode_shows_what_it_uses_and_no_dead_row(chat: Chat, controls: DraftControls) -> None:
    assert not controls.mode.isEnabled()
    chat.start()
    for mode, used in {
        Mode.OFF: set(),
        Mode.AUTO: {"Drafter", "Draft model"},
        Mode.SPECULATIVE: {"Draft model", "Draft tokens"},
        Mode.DRAFTER: {"Drafter", "Beams", "Beam length", "Lookup too"},
        Mode.LOOKUP: {"Draft tokens"},
    }.items():
        _choose(controls, mode)
        assert chat.controller.drafting.settings.mode is mode
        assert controls.explanation.text() == MODES[mode]
        assert _shown(controls) == used
        assert controls.mode.currentData() == mode
        assert controls.exact.isVisible()


def test_exact_times_are_switched_there(chat: Chat, controls: DraftControls) -> None:
    chat.start()
    for exact in (True, False):
        controls.exact.click()
        assert chat.controller.drafting.exact_times == exact


def test_a_remote_model_has_one_sentence_instead_of_dead_controls(chat: Chat, controls: DraftControls) -> None:
    chat.start()
    assert controls.mode.isVisible()
    chat.load("remote:studio/qwen")
    assert controls.explanation.text() == "The other computer decides how it drafts."
    assert not controls.mode.isVisible()
    assert not _shown(controls)
    assert not controls.exact.isVisible()
    controls.fold(True)
    assert controls.brief.text() == controls.explanation.text()
    controls.fold(False)
    chat.load(None)
    assert controls.mode.isVisible()
    assert controls.explanation.text() == MODES[Mode.AUTO]


def test_changes_are_applied_and_width_times_length_stays_within_its_limit(chat: Chat, controls: DraftControls) -> None:
    chat.start()
    _choose(controls, Mode.DRAFTER)
    controls.width_.setValue(32)
    assert controls.length.maximum() == 8
    controls.length.setValue(100)
    assert chat.controller.drafting.settings.beam_length == 8
    assert controls.width_.maximum() == 32
    controls.lookup_branch.click()
    assert not chat.controller.drafting.settings.lookup_branch


def test_another_models_settings_are_shown_without_changing_them(chat: Chat, controls: DraftControls) -> None:
    chat.start()
    wide = DraftSettings(mode=Mode.DRAFTER, beam_width=64, beam_length=4)
    long = DraftSettings(mode=Mode.DRAFTER, beam_width=2, beam_length=100)
    for settings in (wide, long, wide):
        chat.controller.drafting.change(settings)
        assert (controls.width_.value(), controls.length.value()) == (settings.beam_width, settings.beam_length)
        assert chat.controller.drafting.settings == settings


@pytest.mark.parametrize(
    ("options", "problem", "color"),
    [
        ((ModeOption(Mode.DRAFTER, False, "None."),), "None. Until then drafting is off.", "warning"),
        (
            tuple(ModeOption(mode, False, "tiny cannot check drafts.") for mode in (Mode.DRAFTER, Mode.LOOKUP)),
            "tiny cannot check drafts. This model cannot draft.",
            "warning",
        ),
        ((ModeOption(Mode.DRAFTER, True, "tiny verifies a single path."),), "tiny verifies a single path.", "muted"),
    ],
)
def test_why_a_mode_cannot_run_or_has_a_limit(
    chat: Chat, controls: DraftControls, options: tuple[ModeOption, ...], problem: str, color: str
) -> None:
    _offer(chat, *options)
    chat.start()
    _choose(controls, Mode.DRAFTER)
    chat.qtbot.waitUntil(lambda: controls.problem.text() == problem)
    assert controls.problem._color == color


def test_sizes_of_a_mode_that_is_not_to_be_had_are_not_shown(qtbot: QtBot, chat: Chat, controls: DraftControls) -> None:
    _offer(chat, ModeOption(Mode.DRAFTER, False, "There is no drafter."))
    chat.start()
    _choose(controls, Mode.DRAFTER)
    qtbot.waitUntil(lambda: _shown(controls) == {"Drafter"})
    _offer(chat, ModeOption(Mode.DRAFTER, True))
    chat.controller.drafting.refresh_options()
    qtbot.waitUntil(lambda: controls.width_.isVisible() and controls.lookup_branch.isVisible())


@pytest.mark.parametrize("looked", share(["box", "mode", "application"], 3))
def test_a_drafter_trained_in_a_terminal_is_found(qtbot: QtBot, chat: Chat, window: MainWindow, looked: str) -> None:
    """The panel said that there was none until another drafter was picked."""
    _offer(chat, ModeOption(Mode.DRAFTER, False, "There is no drafter."))
    chat.start()
    controls = window.panel.drafting
    controls.fold(False)
    _choose(controls, Mode.DRAFTER)
    qtbot.waitUntil(controls.problem.isVisible)
    if looked == "mode":
        _choose(controls, Mode.LOOKUP)
    with qtbot.waitSignal(chat.controller.drafting.changed):  # no other answer is still to come
        chat.controller.drafting.refresh_options()
    _offer(chat, ModeOption(Mode.DRAFTER, True))
    if looked == "box":
        controls.mode.showPopup()
        controls.mode.hidePopup()
    elif looked == "mode":
        _choose(controls, Mode.DRAFTER)
    else:
        QApplication.instance().applicationStateChanged.emit(Qt.ApplicationState.ApplicationActive)
    qtbot.waitUntil(lambda: not controls.problem.isVisible())


@pytest.mark.parametrize("trees", [True, False])
def test_a_model_that_verifies_a_single_path_has_no_beam_width(
    chat: Chat, controls: DraftControls, trees: bool
) -> None:
    _offer(chat, ModeOption(Mode.DRAFTER, True, trees=trees))
    chat.start()
    _choose(controls, Mode.DRAFTER)
    chat.qtbot.waitUntil(lambda: controls.length.isVisible() and controls.width_.isVisible() == trees)


def test_what_waits_for_the_next_reply_says_so(chat: Chat, controls: DraftControls) -> None:
    chat.start()
    chat.pause_reply("Hello")
    assert not controls.applies.isVisible()
    _choose(controls, Mode.LOOKUP)
    assert controls.applies.text() == "Applies from the next reply."
    chat.engine.gate.open()
    chat.qtbot.waitUntil(lambda: not controls.applies.isVisible())


def test_a_draft_model_is_picked_from_recent_ones_or_a_folder(
    chat: Chat, controls: DraftControls, tmp_path: Path
) -> None:
    chat.start()
    chat.settings.change_values(recent_models=("/models/small",))
    _choose(controls, Mode.SPECULATIVE)
    entries = entries_of(controls.draft_model.menu())
    assert list(filter(None, entries)) == ["None", "Recent", "small", "Find in Models…", "Choose Folder…"]
    entries["small"].trigger()
    assert chat.controller.drafting.settings.draft_model == "/models/small"
    entries_of(controls.draft_model.menu())["Choose Folder…"].trigger()
    choose_files(controls, tmp_path / "mine")
    assert chat.controller.drafting.settings.draft_model == str(tmp_path / "mine")
    assert controls.draft_model.accessibleDescription() == str(tmp_path / "mine")


def test_the_wheel_scrolls_the_panel_and_changes_nothing(chat: Chat, controls: DraftControls) -> None:
    chat.start()
    _choose(controls, Mode.DRAFTER)
    before = chat.controller.drafting.settings
    for field in (controls.mode, controls.width_):
        field.clearFocus()
        turn_wheel(field, QPoint(0, 120), QPointF(5, 5))
    assert chat.controller.drafting.settings == before


def test_the_menu_chooses_modes_and_shows_why_one_cannot_run(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    _offer(chat, ModeOption(Mode.LOOKUP, True), ModeOption(Mode.DRAFTER, False, "There is no drafter."))
    modes = {mode: getattr(window.actions_, f"draft_{mode.value}") for mode in Mode}
    assert not modes[Mode.LOOKUP].isEnabled()
    chat.start()
    qtbot.waitUntil(lambda: chat.controller.drafting.option(Mode.LOOKUP) is not None)
    window.actions_.panel.trigger()
    modes[Mode.LOOKUP].trigger()
    assert chat.controller.drafting.settings.mode is Mode.LOOKUP
    assert not window.panel.isVisible()
    modes[Mode.DRAFTER].trigger()
    qtbot.waitUntil(lambda: [mode for mode in modes if modes[mode].isChecked()] == [Mode.DRAFTER])
    assert window.panel.isVisible()
    qtbot.waitUntil(lambda: "There is no drafter." in window.panel.drafting.problem.text())


def test_the_draft_settings_are_reached_by_key(chat: Chat, window: MainWindow) -> None:
    chat.start()
    window.activateWindow()
    assert not window.panel.drafting.mode.isVisible()
    window.actions_.draft_settings.trigger()
    assert window.panel.drafting.mode.hasFocus()
    window.actions_.panel.trigger()
    assert window.conversation.composer.field.hasFocus(), "the panel is hidden"


def test_the_menu_names_the_mode_that_has_no_entry(chat: Chat, window: MainWindow) -> None:
    """The menu ticked nothing in the modes that only the panel lists."""
    chat.start()
    actions = window.actions_
    assert (actions.draft_auto.isChecked(), actions.draft_settings.text()) == (True, "Drafting Settings")
    chat.controller.drafting.change(DraftSettings(Mode.LOOKUP))
    chat.qtbot.waitUntil(lambda: actions.draft_settings.text() == "Drafting Settings: Prompt Lookup")
    assert not actions.draft_auto.isChecked()
    chat.controller.drafting.change(DraftSettings(Mode.OFF))
    chat.qtbot.waitUntil(lambda: actions.draft_settings.text() == "Drafting Settings")
    assert actions.draft_off.isChecked()


def test_a_folder_whose_name_is_cut_is_told_whole(chat: Chat, controls: DraftControls) -> None:
    chat.start()
    folder = "/drafters/a-drafter-with-quite-a-long-name-that-no-panel-has-room-for"
    chat.controller.drafting.change(DraftSettings(mode=Mode.DRAFTER, drafter=folder))
    picker = controls.drafter
    assert picker.text() != Path(folder).name
    picker.event(QHelpEvent(QEvent.Type.ToolTip, QPoint(5, 5), picker.mapToGlobal(QPoint(5, 5))))
    assert folder in QToolTip.text()
    assert "rdchat train-drafter" in QToolTip.text()
    QToolTip.hideText()


FITS = ModelCard("org/eagle", "org/eagle", "Hugging Face", kind=HeadKind.EAGLE3)
OTHERS = tuple(ModelCard(f"b{n}", f"/lm/b{n}", "LM Studio", kind=HeadKind.BLOCK) for n in range(500))
DAMAGED = ModelCard("cut", "/own/cut", "Your own", problem="It has no weights.")


def test_drafters_that_fit_are_offered_and_the_others_say_why_not(chat: Chat, controls: DraftControls) -> None:
    search = FolderSearch(lambda _model: (DAMAGED, FITS, *OTHERS))
    chat.engine.fits = {FITS.model: DrafterFit(FITS.model, TargetMatch(True))}
    chat.engine.fits_at_once = 100
    drafting = chat.controller.drafting
    drafting.offer_drafters(search)
    chat.start()
    drafting.change(DraftSettings(Mode.DRAFTER))
    chat.qtbot.waitUntil(lambda: len(drafting.drafters) == 502)
    entries = entries_of(controls.drafter.menu())
    names = list(entries)
    assert names[names.index("Your own") :][:4] == [
        "Your own",
        "1 drafter that cannot be used here",
        "Hugging Face",
        "org/eagle",
    ]
    assert entries["1 drafter that cannot be used here"].toolTip() == "cut: It has no weights."
    unfit = entries["500 drafters that cannot be used here"]
    assert not unfit.isEnabled()
    assert unfit.toolTip().splitlines()[0] == "b0: It is for another."
    assert unfit.toolTip().splitlines()[-1] == "and 480 more"
    entries["org/eagle"].trigger()
    assert drafting.settings.drafter == "org/eagle"
    assert entries_of(controls.drafter.menu())["org/eagle"].isChecked(), "it stays in its own place"
    search.finish_work()


def test_nothing_is_offered_of_which_nobody_knows_whether_it_fits(chat: Chat, controls: DraftControls) -> None:
    search = FolderSearch(lambda _: (FITS, DAMAGED))
    chat.controller.drafting.offer_drafters(search)
    assert chat.controller.drafting.drafters == (), "no model is loaded"
    chat.start()
    chat.qtbot.waitUntil(lambda: bool(search.results))
    assert "org/eagle" not in entries_of(controls.drafter.menu())
    search.finish_work()


@pytest.mark.parametrize(
    ("kind", "match", "words"),
    [
        (None, None, ""),
        (HeadKind.RECURRENT, TargetMatch(True), ""),
        (HeadKind.EAGLE3, TargetMatch(False, "Its sizes fit tiny."), "Its sizes fit tiny."),
        (HeadKind.BLOCK, None, ""),
    ],
)  # fmt: skip
def test_what_is_known_of_the_drafter_stands_below_the_picker(
    chat: Chat, controls: DraftControls, kind: HeadKind | None, match: TargetMatch | None, words: str
) -> None:
    modes = tuple(ModeOption(mode, True, kind=kind, match=match) for mode in Mode)
    chat.engine.options = DraftOptions(Path(), modes)
    chat.start()
    drafting = chat.controller.drafting
    chat.qtbot.waitUntil(lambda: drafting.option(Mode.AUTO) is not None)
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
    chat: Chat, controls: DraftControls, match: TargetMatch | str | None, words: str
) -> None:
    found = match if isinstance(match, TargetMatch) else None
    modes = tuple(ModeOption(mode, mode is not Mode.DRAFTER or found is not None, match=found) for mode in Mode)
    drafting = chat.controller.drafting
    picker = controls.drafter
    if match is not None:
        chat.engine.options = DraftOptions(Path(), modes)
        chat.start()
        chat.qtbot.waitUntil(lambda: drafting.option(Mode.AUTO) is not None)
    picker.resize(400, picker.height())
    assert picker.accessibleDescription() == picker.text() == words
    assert entries_of(controls.drafter.menu())[words].isChecked()


def test_an_open_menu_is_never_empty_while_it_is_filled_again(chat: Chat, controls: DraftControls) -> None:
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
    chat.qtbot.waitUntil(lambda: "org/eagle" in [action.text() for action in menu.actions()])
    assert least
    assert min(least) > 0
    assert [action.text() for action in menu.actions()] == [
        "Made for this model", "Hugging Face", "org/eagle", "", "Find in Models…", "Choose Folder…",
    ]  # fmt: skip
    filled = len(least)
    drafting.changed.emit()
    assert len(least) == filled, "nothing has changed"
    menu.close()
    search.finish_work()


@pytest.mark.slow
def test_both_pickers_lead_to_where_others_are_found(chat: Chat, window: MainWindow) -> None:
    chat.start()
    drafting = window.panel.drafting
    models = window.windows.models
    for picker in (drafting.draft_model, drafting.drafter):
        models.show_page(models.installed)
        entries_of(picker.menu())["Find in Models…"].trigger()
        chat.qtbot.waitUntil(models.drafters.isVisible)
