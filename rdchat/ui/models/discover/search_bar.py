"""The search field, the order, and the filters of the Discover page."""

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QWidget

from rdchat.hub.found_models import SortBy
from rdchat.services.models.discover.hub_search import HubQuery
from rdchat.services.models.discover.search_filters import SearchFilters
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

    changed = Signal()  # the query or the filters

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        words = "Search models on Hugging Face"
        self.field = SearchField(theme, words, words)
        self.format = choice_box("Format", "What the models are stored as; MLX's own format is the quickest", _FORMATS)
        self.sort = choice_box("Order", "What comes first", _SORTS)
        sizes = (("Any size", None), *((f"Up to {size} GB", size * 10**9) for size in _SIZES))
        self.largest = choice_box("Size", "Of the weights, which is about what is downloaded", sizes)
        self.quantization = choice_box("Quantisation", "Bits of each stored weight", (("Any quantisation", ""),))
        self.licence = choice_box("Licence", "As its authors name it", (("Any licence", ""),))
        self.family = choice_box("Family", "The architecture", (("Any family", ""),))
        self.fitting = QCheckBox(f"Fits {formatting.MACHINE}")
        set_tip(self.fitting, "Leaves out what needs more memory than models may take here")
        self._filters = QWidget()
        boxes = (self.largest, self.quantization, self.licence, self.family)
        row(*boxes, None, self.fitting, within=self._filters)
        column(row((self.field, 1), self.format, self.sort), self._filters, within=self)
        self.field.textChanged.connect(self.changed)
        self.fitting.toggled.connect(self.changed)
        for box in (self.format, self.sort, *boxes):
            box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
            box.currentIndexChanged.connect(self.changed)

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

    def clear_filters(self) -> None:
        """Let everything pass that is found."""
        for box in (self.largest, self.quantization, self.licence, self.family):
            box.setCurrentIndex(0)
        self.fitting.setChecked(False)

    def show_choices(self, choices: tuple[list[str], ...]) -> None:
        """Enable the filters, and offer these quantisations, licences and families; a chosen one stays.

        GGUF repositories hold one model in many sizes, so these are not filtered by size.
        """
        self._filters.setEnabled(True)
        for widget in (self.largest, self.quantization, self.fitting):
            widget.setEnabled(not self.format.currentData())
        for box, names in zip((self.quantization, self.licence, self.family), choices, strict=True):
            chosen = box.currentData()
            wanted = [*names, *([chosen] if chosen and chosen not in names else [])]
            if [box.itemData(place) for place in range(1, box.count())] != wanted:
                with QSignalBlocker(box):
                    while box.count() > 1:
                        box.removeItem(1)
                    for name in wanted:
                        box.addItem(name, name)
                    box.setCurrentIndex(box.findData(chosen))

    def disable_filters(self) -> None:
        """Disable the filters: the list for newcomers has none."""
        self._filters.setEnabled(False)
