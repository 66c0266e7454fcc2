"""The search field, the order, and the filters of the Discover page."""

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QWidget

from rdchat.hub.found_models import SortBy
from rdchat.services.models.discover.hub_search import HubQuery
from rdchat.services.models.discover.search_filters import FilterChoices, SearchFilters
from rdchat.ui.look import formatting
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import Theme
from rdchat.ui.models.fields import SearchField, choice_box

_FORMATS = (("MLX models", False), ("GGUF files", True))
_SORTS: tuple[tuple[str, SortBy], ...] = (
    ("Most downloads", "downloads"),
    ("Most likes", "likes"),
    ("Latest change", "last_modified"),
)
_SIZES = (2, 4, 8, 16, 32, 64)  # GB


class SearchBar(QWidget):
    """The field and the choices beside and below it."""

    query_changed = Signal(HubQuery)
    search_requested = Signal(HubQuery)
    filters_changed = Signal(SearchFilters)
    results_requested = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        words = "Search models on Hugging Face"
        self.field = SearchField(theme, words, words)
        self.format = choice_box("Format", "What the models are stored as; MLX's own format is the quickest", _FORMATS)
        self.sort = choice_box("Order", "What comes first", _SORTS)
        sizes = (("Any size", None), *((f"Up to {size} GB", size * 10**9) for size in _SIZES))
        self.largest = choice_box("Size", "Of the weights, which is about what is downloaded", sizes)
        self.quantization = choice_box("Quantisation", "Bits of each stored weight", (("Any quantisation", ""),))
        self.licence = choice_box("Licence", "As its authors name it", (("Any licence", ""),))
        self.family = choice_box("Family", "The architecture", (("Any family", ""),))
        for box in (self.format, self.sort, self.largest, self.quantization, self.licence, self.family):
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        self.fitting = QCheckBox(f"Fits {formatting.MACHINE}")
        set_tip(self.fitting, "Leaves out what needs more memory than models may take here")
        self._lay_out()
        self._connect()

    @property
    def query(self) -> HubQuery:
        return HubQuery(self.field.text(), self.sort.currentData(), bool(self.format.currentData()))

    @property
    def filters(self) -> SearchFilters:
        licence, family = self.licence.currentData(), self.family.currentData()
        if self.format.currentData():
            return SearchFilters(licence=licence, family=family)
        quantization, fitting = self.quantization.currentData(), self.fitting.isChecked()
        return SearchFilters(self.largest.currentData(), quantization, licence, family, fitting)

    def show_choices(self, choices: FilterChoices) -> None:
        """Offer the values of the found models; a chosen value stays."""
        for box, names in (
            (self.quantization, choices.quantizations),
            (self.licence, choices.licences),
            (self.family, choices.families),
        ):
            chosen = box.currentData()
            wanted = [*names, *([chosen] if chosen and chosen not in names else [])]
            if [box.itemData(place) for place in range(1, box.count())] != wanted:
                with QSignalBlocker(box):
                    while box.count() > 1:
                        box.removeItem(1)
                    for name in wanted:
                        box.addItem(name, name)
                    box.setCurrentIndex(box.findData(chosen))

    def clear_filters(self) -> None:
        """Want everything that is found."""
        boxes = (self.largest, self.quantization, self.licence, self.family)
        blockers = [QSignalBlocker(widget) for widget in (*boxes, self.fitting)]
        for box in boxes:
            box.setCurrentIndex(0)
        self.fitting.setChecked(False)
        for blocker in blockers:
            blocker.unblock()
        self._tell_filters()

    def show_filters(self, shown: bool) -> None:
        """Enable the filters during a search; the list for newcomers has none."""
        self._filters.setEnabled(shown)

    def _lay_out(self) -> None:
        first = row((self.field, 1), self.format, self.sort)
        self._filters = QWidget()
        row(self.largest, self.quantization, self.licence, self.family, None, self.fitting, within=self._filters)
        column(first, self._filters, within=self)

    def _connect(self) -> None:
        self.field.textChanged.connect(self._tell_query)
        self.field.search_requested.connect(lambda: self.search_requested.emit(self.query))
        self.field.results_requested.connect(self.results_requested)
        for box in (self.format, self.sort):
            box.currentIndexChanged.connect(self._tell_query)
        for box in (self.largest, self.quantization, self.licence, self.family):
            box.currentIndexChanged.connect(self._tell_filters)
        self.fitting.toggled.connect(self._tell_filters)
        self.format.currentIndexChanged.connect(self._show_known)

    def _show_known(self) -> None:
        """Disable the filters by size for GGUF files: their repositories hold one model many times."""
        for widget in (self.largest, self.quantization, self.fitting):
            widget.setEnabled(not self.format.currentData())
        self._tell_filters()

    def _tell_query(self) -> None:
        self.query_changed.emit(self.query)

    def _tell_filters(self) -> None:
        self.filters_changed.emit(self.filters)
