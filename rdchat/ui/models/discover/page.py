"""The Discover page: searches the hub, and shows the details of one model."""

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QSplitter, QStackedWidget, QWidget

from rdchat.errors import RdchatError
from rdchat.hub.endpoint import find_endpoint
from rdchat.services.models.discover.hub_search import STEPS
from rdchat.services.models.discover.newcomers import for_machine, suggestions
from rdchat.services.models.discover.search_filters import choices_among
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.buttons import TextButton
from rdchat.ui.look.formatting import counted
from rdchat.ui.look.labels import ElidedLabel, Ground, Separator
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.discover.details_view import DetailsView
from rdchat.ui.models.discover.entries import found_entries, newcomer_entries
from rdchat.ui.models.discover.search_bar import SearchBar
from rdchat.ui.models.links import PageLinks
from rdchat.ui.models.model_list import Entry, ModelList
from rdchat.ui.models.notice_view import NoticeView

_LIST_WIDTH, _SMALLEST_LIST = 330, 240
_PASSING_MS = 200  # that a model must stay chosen before the hub is asked for it


class DiscoverPage(QWidget):
    """Searches the hub, and shows a list for newcomers until there is something to search for.

    The hub is not asked before the person types or chooses a model.

    Args:
        desk: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._desk, self._links = desk, links
        self._chosen: Entry | None = None
        self.bar = SearchBar(theme)
        self.list = ModelList(theme, "Models found")
        self.notice = NoticeView(theme)
        self.details = DetailsView(desk, links, theme)
        self.foot = ElidedLabel(theme, "", "muted", -1.5)
        self.again = TextButton("Try again", theme)
        self._asking = QTimer(self, interval=_PASSING_MS, singleShot=True)
        self._asking.timeout.connect(self._ask_for_chosen)
        self._lay_out(theme)
        self._connect()
        self._show_results()

    def _lay_out(self, theme: Theme) -> None:
        self._left = QStackedWidget()
        self._left.addWidget(self.list)
        self._left.addWidget(self.notice)
        foot = row((self.foot, 1), self.again, spacing=-1, margins=(MEDIUM, TIGHT, SMALL, TIGHT))
        side, ground, splitter = QWidget(), Ground(theme, "surface"), QSplitter(Qt.Orientation.Horizontal)
        side.setMinimumWidth(_SMALLEST_LIST)
        column((self._left, 1), Separator(theme), foot, within=side, spacing=0, margins=(0, TIGHT, 0, 0))
        column(self.details, within=ground)
        splitter.setHandleWidth(1)
        splitter.setChildrenCollapsible(False)
        splitter.addWidget(side)
        splitter.addWidget(ground)
        splitter.setStretchFactor(1, 1)
        splitter.setSizes([_LIST_WIDTH, 10_000])
        column(column(self.bar, margins=MEDIUM), Separator(theme), (splitter, 1), within=self, spacing=0)

    def _connect(self) -> None:
        desk, search = self._desk, self._desk.search
        self.bar.changed.connect(self._search)
        self.bar.field.returnPressed.connect(lambda: search.search(self.bar.query, at_once=True))
        self.bar.field.results_requested.connect(self.list.choose_first)
        self.list.chosen.connect(self._choose)
        self.list.opened.connect(self._open_chosen)
        self.list.more_wanted.connect(search.more)
        self.notice.token_requested.connect(self._links.token_requested)
        self.notice.action_requested.connect(self.bar.clear_filters)
        for retry in (self.notice.retry_requested, self.again.clicked):
            retry.connect(search.retry)
        search.changed.connect(self._show_results)
        desk.details.changed.connect(self._show_details)
        for changed in (desk.memory.changed, desk.slot.loaded, desk.here.changed):
            changed.connect(self._show_all)
        desk.downloads.finished.connect(lambda download: self._look_again(download.repository))
        desk.removal.removed.connect(lambda removed: self._look_again(removed.model.repository))
        desk.removal.restored.connect(lambda _trashed: self._look_again())

    def open_model(self, repository: str) -> None:
        """Show a model, and ask the hub for it."""
        self.bar.field.clear()
        self.list.select(repository)
        self._choose(Entry(repository, repository))
        self._ask_for_chosen()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._desk.here.look()
        self._desk.memory.ask()
        self._show_all()
        if not self._chosen:
            self.bar.field.setFocus()

    def _search(self) -> None:
        self._desk.search.search(self.bar.query)
        self._show_results()

    def _show_all(self) -> None:
        if self.isVisible():
            self._show_results()
            self._show_details()

    def _show_results(self) -> None:
        state, here, machine = self._desk.search.state, frozenset(self._desk.here.found), self._desk.machine
        self._left.setCurrentWidget(self.list)
        if not state.query.words.strip():
            first = for_machine(machine) if machine is not None else ()
            self.list.show_entries(newcomer_entries(suggestions(), first, machine, here))
            self.bar.disable_filters()
        else:
            self.bar.show_choices(choices_among(state.found))
            filters = self.bar.filters
            shown = [model for model in state.found if filters.wanted(model, machine)]
            self.list.show_entries(found_entries(shown, machine, here))
            if not shown:
                self._show_notice()
            if not shown or not self.list.verticalScrollBar().maximum():
                self._desk.search.more()  # the models so far do not fill the list
        self.list.select(self._chosen.key if self._chosen else "")
        trouble = state.trouble is not None and bool(state.found)
        self.again.setVisible(trouble)
        self.foot.setText(self._foot_words())

    def _show_notice(self) -> None:
        state = self._desk.search.state
        if state.trouble is not None:
            self.notice.show_trouble(state.trouble, state.wait_s)
        elif state.asking or not state.complete:
            self.notice.show_words("Searching…")
        elif state.found:
            number = f"the first {STEPS[-1]}" if len(state.found) >= STEPS[-1] else f"the {len(state.found)}"
            more = f"Of {number} models that were found."
            self.notice.show_words("Nothing fits the filters", more, "Clear the filters")
        else:
            kind, other = ("GGUF files", "MLX models") if state.query.gguf else ("MLX models", "GGUF files")
            self.notice.show_words("Nothing found", f"The hub has no {kind} of that name. Try other words, or {other}.")
        self._left.setCurrentWidget(self.notice)

    def _foot_words(self) -> str:
        """Return how many models are shown, or how a search is made."""
        state, found = self._desk.search.state, len(self._desk.search.state.found)
        if found and state.trouble is not None:
            wait = f"Asking again in {state.wait_s} s. " if state.wait_s else ""
            return f"{wait}{state.trouble.message}"
        if found and state.asking:
            return "Asking for more…"
        if found and state.complete:
            limit = found >= STEPS[-1]
            number = f"the first {found} models" if limit else counted(found, "model")
            return f"{self.list.count()} of {number}" if self.list.count() < found or limit else number
        try:
            endpoint = find_endpoint()
        except RdchatError as error:
            return error.message
        route = self._desk.search.route
        who = f"{endpoint.host}, which HF_ENDPOINT names" if endpoint.is_mirror else endpoint.host
        return f"Searches ask {who}{f' through the proxy {route.proxy}' if route and route.proxy else ''}."

    def _choose(self, entry: Entry) -> None:
        self._chosen = entry
        self._asking.start()

    def _ask_for_chosen(self) -> None:
        self._asking.stop()
        if self._chosen is not None:
            self._desk.details.show(self._chosen.key, self._chosen.item)

    def _open_chosen(self) -> None:
        if self._asking.isActive():
            self._ask_for_chosen()
        self.details.focus_download()

    def _show_details(self) -> None:
        self.details.show_model(self._desk.details.model, self._desk.machine, frozenset(self._desk.here.found))

    def _look_again(self, repository: str = "") -> None:
        """Look for the models on this machine again, and for the shown one if it is this one or none is named."""
        self._desk.here.look()
        model = self._desk.details.model
        if model is not None and repository in {"", model.repository}:
            self._desk.details.look_again()
