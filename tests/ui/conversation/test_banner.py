from PySide6.QtWidgets import QToolButton
from pytestqt.qtbot import QtBot

from rdchat.ui.conversation.notices import Banner, BannerArea
from rdchat.ui.style import LARGE, TEXT_WIDTH, Theme
from tests.ui.shown_widgets import click_on


def _area(qtbot: QtBot) -> BannerArea:
    area = BannerArea()
    qtbot.addWidget(area)
    return area


def test_an_action_acts_and_closes(qtbot: QtBot, theme: Theme) -> None:
    area = _area(qtbot)
    acts: list[str] = []
    banner = Banner(theme, "Deleted “A chat”")
    button = banner.add_action("Undo", lambda: acts.append("undo"))
    area.show_banner(banner, "undo")
    assert area.isVisible()
    click_on(button)
    assert acts == ["undo"]
    assert not area.isVisible()


def test_banners_of_one_key_replace_each_other_and_others_stay(qtbot: QtBot, theme: Theme) -> None:
    area = _area(qtbot)
    for key in ("notice", "undo", "undo"):
        area.show_banner(Banner(theme, key), key)
    assert [banner.isVisible() for banner in area.findChildren(Banner) if banner.isVisible()] == [True, True]
    area.close_banner("undo")
    area.close_banner("undo")
    assert area.isVisible()


def test_two_banners_are_shown_and_the_others_follow(qtbot: QtBot, theme: Theme) -> None:
    area = _area(qtbot)
    banners = [Banner(theme, key) for key in ("one", "two", "three")]
    for banner, key in zip(banners, ("one", "two", "three"), strict=True):
        area.show_banner(banner, key)
    assert [banner.isVisible() for banner in banners] == [False, True, True], "the chat kept no room"
    area.close_banner("three")
    assert [banner.isVisible() for banner in banners[:2]] == [True, True]


def test_the_close_button_closes(qtbot: QtBot, theme: Theme) -> None:
    area = _area(qtbot)
    banner = Banner(theme, "Moved aside", "The database was damaged.")
    area.show_banner(banner, "notice")
    close = banner.findChild(QToolButton)
    assert close is not None
    click_on(close)
    assert not area.isVisible()


def test_a_banner_goes_away_by_itself(qtbot: QtBot, theme: Theme) -> None:
    area = _area(qtbot)
    area.show_banner(Banner(theme, "Deleted"), "undo", lasts_ms=20)
    qtbot.waitUntil(lambda: not area.isVisible())


def test_titles_are_plain_text(qtbot: QtBot, theme: Theme) -> None:
    area = _area(qtbot)
    banner = Banner(theme, "Deleted “<img src=x>”")
    area.show_banner(banner, "undo")
    assert banner.accessibleName() == "Deleted “<img src=x>”"


def test_banners_are_no_wider_than_the_text(qtbot: QtBot, theme: Theme) -> None:
    area = BannerArea()
    qtbot.addWidget(area)
    banner = Banner(theme, "One")
    area.show_banner(banner, "one")
    for width in (1400, 500):
        area.resize(width, 100)
        qtbot.waitUntil(lambda width=width: banner.width() == min(TEXT_WIDTH, width - 2 * LARGE))
