"""A drafter as a row: its name, what is known of it, and what can be done with it."""

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QMenu, QProgressBar, QPushButton, QToolButton, QWidget

from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.hub.drafters.published_drafters import FoundDrafter
from rdchat.inference.api.model_card import ModelCard
from rdchat.services.models.installed.removal import reason_not_to_delete
from rdchat.ui.look.formatting import counted, decimal, file_size
from rdchat.ui.look.labels import ElidedLabel, Separator, ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import SHOW_FOLDER
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, SMALL, Theme
from rdchat.ui.models.downloads.words import state_words

_LOAD_FIRST = "Load this model first."
_MOST_FIGURES = 3
_SETUPS = ("W4 L5", "W1 L5", "W4 L5 + lookup")  # whose figure is shown, by preference


class _Row(QWidget):
    """Name and words at the left, buttons at the right, a hairline below."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.name = ElidedLabel(theme, "", bold=True, mode=Qt.TextElideMode.ElideMiddle)
        self.badge = ThemedLabel(theme, "", "success", -1)
        self.facts = self._words("muted")
        self.more = self._words("muted")
        self.problem = self._words("warning")
        top = row((self.name, 1), self.badge)
        self.words = column(top, self.facts, self.more, self.problem, spacing=2)
        self.buttons = QHBoxLayout()
        self.buttons.setSpacing(SMALL)
        line = row((self.words, 1), self.buttons, spacing=MEDIUM, margins=(0, MEDIUM - 2, 0, MEDIUM - 2))
        column(line, Separator(theme), within=self, spacing=0)

    def _words(self, color: str) -> ThemedLabel:
        return ThemedLabel(self._theme, "", color, -1, tabular=True, wraps=True)

    def _button(self, text: str, name: str) -> QPushButton:
        button = QPushButton(text)
        button.setAutoDefault(False)
        button.setAccessibleName(name)
        self.buttons.addWidget(button)
        return button


class InstalledRow(_Row):
    """A drafter on this machine."""

    use_requested = Signal(str)
    race_requested = Signal(str)
    reveal_requested = Signal(Path)
    delete_requested = Signal(ModelCard)

    def __init__(self, card: ModelCard, theme: Theme) -> None:
        super().__init__(theme)
        self._card = card
        name = card.name
        self.use = self._button("Use", f"Use {name}")
        self.race = self._button("Try in a race…", f"Try {name} in a race")
        self.menu_button = QToolButton()
        self.menu_button.setText("More")
        self.menu_button.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.menu_button.setAccessibleName(f"More for {name}")
        self.menu_button.setAutoRaise(True)
        self.buttons.addWidget(self.menu_button)
        menu = QMenu(self)
        self.reveal = menu.addAction(SHOW_FOLDER)
        self.delete = menu.addAction("Delete…")
        self.menu_button.setMenu(menu)
        self.use.clicked.connect(lambda: self.use_requested.emit(self._card.model))
        self.race.clicked.connect(lambda: self.race_requested.emit(self._card.model))
        self.reveal.triggered.connect(lambda: self.reveal_requested.emit(self._card.path))
        self.delete.triggered.connect(lambda: self.delete_requested.emit(self._card))

    def show_card(self, card: ModelCard, *, figures: dict[str, float], loaded: bool, used: bool) -> None:
        """Show what is known of it.

        Args:
            card: The drafter.
            figures: Its tokens per call by setup.
            loaded: Whether the model is that it may draft for.
            used: Whether it drafts for it now.
        """
        used = used and loaded
        self._card = card
        self.name.setText(card.name)
        set_tip(self.name, card.model)
        self.badge.say("In use" if used else "")
        self.facts.say("  ·  ".join(_facts(card)))
        self.more.say(_own_figures(figures))
        self.problem.say(card.match.words if card.match is not None and not card.match.sure else "")
        for button in (self.use, self.race):
            button.setEnabled(loaded and not (button is self.use and used))
            set_tip(button, "" if loaded else _LOAD_FIRST)
        self.delete.setVisible(not reason_not_to_delete(card))


class PublishedRow(_Row):
    """A repository of the hub that may draft for the model."""

    download_requested = Signal(str)
    page_requested = Signal(str)
    use_requested = Signal(object)
    race_requested = Signal(object)

    def __init__(self, found: FoundDrafter, theme: Theme) -> None:
        super().__init__(theme)
        self._found = found
        self.bar = QProgressBar(textVisible=False, maximum=1000)
        self.bar.setFixedHeight(4)
        self.bar.setAccessibleName(f"Download of {found.repository}")
        self.words.addWidget(self.bar)
        self.page = self._button("Web page", f"Open the page of {found.repository} in a browser")
        self.download = self._button("Download", f"Download {found.repository}")
        self.use = self._button("Use", f"Use {found.repository}")
        self.race = self._button("Try in a race…", f"Try {found.repository} in a race")
        self.race.clicked.connect(lambda: self.race_requested.emit(self._found))
        self.page.clicked.connect(lambda: self.page_requested.emit(self._found.repository))
        self.download.clicked.connect(lambda: self.download_requested.emit(self._found.repository))
        self.use.clicked.connect(lambda: self.use_requested.emit(self._found))

    def show_found(
        self,
        found: FoundDrafter,
        download: Download | None,
        *,
        here: bool,
        problem: str,
        loaded: bool,
        used: bool,
    ) -> None:
        """Show what is known of it.

        Args:
            found: What the hub says.
            download: Where its download stands; None without one.
            here: Whether it is on this machine.
            problem: Why it does not fit, now that it is here.
            loaded: Whether the model is that it may draft for.
            used: Whether it drafts for it now.
        """
        self._found = found
        self.name.setText(found.repository)
        state = download.state if download is not None else None
        self.badge.say("In use" if used else "On this machine" if here else "")
        self.facts.say("  ·  ".join(_published_facts(found)))
        self.more.say(_publishers_figures(found))
        under_way = download is not None and not download.state.has_ended
        told = _download_words(download) if download is not None and not here else ""
        self.problem.say(problem or found.problem or told)
        self.problem.set_color("muted" if under_way and not problem else "warning")
        self.bar.setVisible(under_way)
        if download is not None and download.total_bytes:
            self.bar.setRange(0, 1000)
            self.bar.setValue(round(1000 * download.done_bytes / download.total_bytes))
        else:
            self.bar.setRange(0, 0)
        self.download.setVisible(not here)
        self.download.setEnabled(not under_way and not found.problem)
        self.download.setText("Resume" if state in {DownloadState.PAUSED, DownloadState.FAILED} else "Download")
        set_tip(self.download, found.problem if found.problem else "")
        self.page.setVisible(not here)
        for button in (self.use, self.race):
            button.setVisible(here)
            button.setEnabled(loaded and not problem and not (button is self.use and used))
            set_tip(button, "" if loaded else _LOAD_FIRST)


def _facts(card: ModelCard) -> list[str]:
    parts = [card.kind.words] if card.kind is not None else []
    if card.match is not None:
        parts.append("made for this model" if card.match.sure else "fits by its sizes")
    if card.disk_bytes:
        parts.append(file_size(card.disk_bytes))
    return [*parts, card.place]


def _own_figures(figures: dict[str, float]) -> str:
    setup = next((setup for setup in _SETUPS if setup in figures), None)
    if setup is None:
        return ""
    return f"{decimal(figures[setup])} tokens a call at the end of its training ({setup})"


def _published_facts(found: FoundDrafter) -> list[str]:
    parts = [found.kind.words]
    if found.size is not None:
        parts.append(file_size(found.size))
    if found.same_tokenizer:
        parts.append("same tokenizer")
    if found.licence:
        parts.append(found.licence)
    if found.gated:
        parts.append("gated")
    return [*parts, counted(found.downloads, "download")]


def _publishers_figures(found: FoundDrafter) -> str:
    """Return a few figures of its card, in its words."""
    if not found.figures:
        return ""
    measure = found.figures[0].measure
    same = [figure for figure in found.figures if figure.measure == measure][:_MOST_FIGURES]
    listed = ", ".join(f"{figure.of} {figure.value}" for figure in same)
    return f"By its publisher's figures: {measure.lower()} {listed}"


def _download_words(download: Download) -> str:
    if download.state is DownloadState.FAILED:
        return f"{download.problem} {download.hint}".strip()
    if download.notes:
        return " ".join(download.notes)
    return state_words(download)
