"""Banners about new versions of rdchat: whether to look for them, and one that was found."""

from functools import partial
from urllib.parse import urlsplit

from PySide6.QtCore import QObject, Slot

from rdchat import __version__
from rdchat.hub.updates import Update
from rdchat.services.app.update_check import UpdateCheck
from rdchat.ui.conversation.banner import Banner, BannerArea
from rdchat.ui.style.opening import open_page
from rdchat.ui.style.theme import Theme

KEY = "update"


class UpdateNotice(QObject):
    """Asks and reports above the transcript. It is a child of the banners' area: a timer must not outlive it.

    Args:
        check: Looks for new versions.
        area: Shows the banners.
        theme: The appearance to follow.
    """

    def __init__(self, check: UpdateCheck, area: BannerArea, theme: Theme) -> None:
        super().__init__(area)
        self._check, self._area, self._theme = check, area, theme
        check.found.connect(self.show_update)

    @Slot()
    def start(self) -> None:
        """Ask the person, if that was never answered; else look."""
        if not self._check.unanswered:
            self._check.look()
            return
        where = urlsplit(self._check.address).netloc
        banner = Banner(
            self._theme,
            "Look for new versions of rdchat?",
            f"Once a day rdchat would ask {where} for the newest version. It installs nothing. You can change this in "
            "Settings.",
        )
        banner.add_action("Look Once a Day", partial(self._check.answer, True))
        banner.add_action("Do Not Look", partial(self._check.answer, False))
        self._area.show_banner(banner, KEY)

    @Slot(Update)
    def show_update(self, update: Update) -> None:
        """Show a new version, with its page to open."""
        notes = update.notes.strip() or "There are no notes."
        banner = Banner(self._theme, f"rdchat {update.version} is out. You have {__version__}.", notes)
        banner.add_action("Open Page", partial(open_page, update.page), update.page)
        self._area.show_banner(banner, KEY)
