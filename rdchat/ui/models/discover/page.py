"""The Discover page: searches the hub, and shows the details of one model."""

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QSplitter, QStackedWidget, QWidget

from rdchat.errors import RdchatError
from rdchat.hub.endpoint import find_endpoint
from rdchat.services.models.discover.fit import Machine
from rdchat.services.models.discover.hub_search import STEPS, HubQuery
from rdchat.services.models.discover.newcomers import for_machine, suggestions
from rdchat.services.models.discover.search_filters import SearchFilters, choices_among
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import ElidedLabel, Ground, Separator
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.theme import MEDIUM, SMALL, TIGHT, Theme
from rdchat.ui.models.discover.details_view import DetailsView
from rdchat.ui.models.discover.entries import found_entries, newcomer_entries
from rdchat.ui.models.discover.search_bar import SearchBar
from rdchat.ui.models.link_button import LinkButton
from rdchat.ui.models.links import PageLinks
from rdchat.ui.models.model_list import Entry, ModelList
from rdchat.ui.models.notice_view import NoticeView

_LIST_WIDTH = 330
_CLEAR = "Clear the filters"
_PASSING_MS = 200  # on the way through the list with the keys, what is passed is not asked for


class DiscoverPage(QWidget):
    """Searches the hub, and shows a list for newcomers until there is something to search for.

    Nothing is asked of the hub before the person types or chooses a model.

    Args:
        desk: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._desk, self._links, self._theme = desk, links, theme
        self._filters = SearchFilters()
        self._chosen: Entry | None = None
        self._machine: Machine | None = None  # what is shown was judged by it
        self.bar = SearchBar(theme)
        self.list = ModelList(theme, "Models found")
        self.notice = NoticeView(theme)
        self.details = DetailsView(desk, links, theme)
        self.foot = ElidedLabel(theme, "", "muted", -1.5)
        self.again = LinkButton("Try again", theme)
        self._asking = QTimer(self, interval=_PASSING_MS, singleShot=True)
        self._asking.timeout.connect(self._ask_for_chosen)
        self._lay_out()
        self._connect()
        self._show_results()

    def _lay_out(self) -> None:
        self._left = QStackedWidget()
        self._left.addWidget(self.list)
        self._left.addWidget(self.notice)
        foot = row((self.foot, 1), self.again, spacing=-1, margins=(MEDIUM, TIGHT, SMALL, TIGHT))
        side = QWidget()
        side.setMinimumWidth(240)
        column((self._left, 1), Separator(self._theme), foot, within=side, spacing=0, margins=(0, TIGHT, 0, 0))
        splitter = QSplitter(Qt.Orientation.Horizontal)
        splitter.setHandleWidth(1)
        splitter.setChildrenCollapsible(False)
        splitter.addWidget(side)
        ground = Ground(self._theme, "surface")
        column(self.details, within=ground, spacing=-1)
        splitter.addWidget(ground)
        splitter.setStretchFactor(1, 1)
        splitter.setSizes([_LIST_WIDTH, 10_000])
        head = column(self.bar, spacing=-1, margins=MEDIUM)
        column(head, Separator(self._theme), (splitter, 1), within=self, spacing=0)

    def _connect(self) -> None:
        desk, search = self._desk, self._desk.search
        self.bar.query_changed.connect(self._search)
        self.bar.search_requested.connect(lambda query: self._search(query, at_once=True))
        self.bar.filters_changed.connect(self._filter)
        self.bar.results_requested.connect(self.list.choose_first)
        self.list.chosen.connect(self._choose)
        self.list.opened.connect(self._open_chosen)
        self.list.more_wanted.connect(search.more)
        self.notice.retry_requested.connect(search.retry)
        self.notice.token_requested.connect(self._links.token_requested)
        self.notice.action_requested.connect(self.bar.clear_filters)
        self.again.clicked.connect(search.retry)
        search.changed.connect(self._show_results)
        desk.details.changed.connect(self._show_details)
        desk.memory.changed.connect(self._judge_anew)
        desk.slot.loaded.connect(self._judge_anew)
        desk.here.changed.connect(self._show_all)
        desk.downloads.finished.connect(lambda progress: self._look_again(progress.repository))
        desk.removal.removed.connect(lambda removed: self._look_again(removed.model.repository))
        desk.removal.restored.connect(lambda _trashed: self._look_again())

    def open_model(self, repository: str) -> None:
        """Show a model, which the hub is asked for."""
        self.bar.field.clear()
        self.list.select(repository)
        self._choose(Entry(repository, repository))
        self._ask_for_chosen()
        index = self.list.currentIndex()
        if index.isValid():
            self.list.scrollTo(index, self.list.ScrollHint.PositionAtCenter)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._desk.here.look()
        self._desk.memory.ask()
        self._judge_anew()
        if not self._chosen:
            self.bar.field.setFocus()

    def _judge_anew(self) -> None:
        """Judge the models by the memory that is free now."""
        if self.isVisible() and self._desk.machine != self._machine:
            self._show_all()

    def _search(self, query: HubQuery, *, at_once: bool = False) -> None:
        self._desk.search.search(query, at_once=at_once)

    def _filter(self, filters: SearchFilters) -> None:
        self._filters = filters
        self._show_results()

    def _show_all(self) -> None:
        self._show_results()
        self._show_details()

    def _show_results(self) -> None:
        state, here = self._desk.search.state, frozenset(self._desk.here.found)
        machine = self._machine = self._desk.machine
        searching = bool(state.query.words.strip())
        self.bar.show_filters(searching)
        if not searching:
            first = for_machine(machine) if machine is not None else ()
            self.list.show_entries(newcomer_entries(suggestions(), first, machine, here))
            self._left.setCurrentWidget(self.list)
        else:
            self.bar.show_choices(choices_among(state.found))
            shown = [model for model in state.found if self._filters.wanted(model, machine)]
            self.list.show_entries(found_entries(shown, machine, here))
            if shown:
                self._left.setCurrentWidget(self.list)
            else:
                self._show_notice()
            if not shown or not self.list.verticalScrollBar().maximum():
                self._desk.search.more()  # what was found so far does not fill the list
        self.list.select(self._chosen.key if self._chosen else "")
        self._show_foot(len(state.found))

    def _show_notice(self) -> None:
        state = self._desk.search.state
        if state.trouble is not None:
            self.notice.show_trouble(state.trouble, state.wait_s)
        elif state.asking or not state.complete:
            self.notice.show_words("Searching…")
        elif state.found:
            number = f"the first {STEPS[-1]}" if len(state.found) >= STEPS[-1] else f"the {len(state.found)}"
            self.notice.show_words("Nothing fits the filters", f"Of {number} models that were found.", _CLEAR)
        else:
            kind = "GGUF files" if state.query.gguf else "MLX models"
            other = "MLX models" if state.query.gguf else "GGUF files"
            self.notice.show_words("Nothing found", f"The hub has no {kind} of that name. Try other words, or {other}.")
        self._left.setCurrentWidget(self.notice)

    def _show_foot(self, found: int) -> None:
        state = self._desk.search.state
        trouble = state.trouble if found else None
        self.again.setVisible(trouble is not None)
        if trouble is not None:
            self.foot.setText(
                f"Asking again in {state.wait_s} s. {trouble.message}" if state.wait_s else str(trouble.message)
            )
        elif state.asking and found:
            self.foot.setText("Asking for more…")
        elif state.query.words.strip() and state.complete and found:
            shown = self.list.rows.rowCount()
            limit = found >= STEPS[-1]
            counted = f"the first {found} models" if limit else formatting.counted(found, "model")
            self.foot.setText(f"{shown} of {counted}" if shown < found or limit else counted)
        else:
            self.foot.setText(self._way_words())

    def _way_words(self) -> str:
        """Return whom a search asks, and how."""
        route = self._desk.search.route
        try:
            endpoint = find_endpoint()
        except RdchatError as error:
            return error.message
        who = f"{endpoint.host}, which HF_ENDPOINT names" if endpoint.is_mirror else endpoint.host
        through = f" through the proxy {route.proxy}" if route is not None and route.proxy else ""
        return f"Searches ask {who}{through}."

    def _choose(self, entry: Entry) -> None:
        self._chosen = entry
        self._asking.start()

    def _ask_for_chosen(self) -> None:
        self._asking.stop()
        chosen = self._chosen
        if chosen is not None:
            self._desk.details.show(chosen.key, chosen.item)

    def _open_chosen(self) -> None:
        if self._asking.isActive():
            self._ask_for_chosen()
        self.details.focus_download()

    def _show_details(self) -> None:
        model = self._desk.details.model
        if model is None:
            self.details.show_nothing()
            return
        suggestion = next((each for each in suggestions() if each.repository == model.repository), None)
        self.details.show_model(model, self._desk.machine, suggestion, frozenset(self._desk.here.found))

    def _look_again(self, repository: str = "") -> None:
        """Look again what is on this machine; for the shown model, if it is the changed one or that is not known."""
        self._desk.here.look()
        shown = self._desk.details.model
        if shown is not None and repository in {"", shown.repository}:
            self._desk.details.look_again()
