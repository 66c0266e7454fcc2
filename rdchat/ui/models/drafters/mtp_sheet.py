"""The sheet that gets a model's MTP layers: shows their size first, or asks for the model's original."""

from PySide6.QtGui import QHideEvent
from PySide6.QtWidgets import QDialog, QLineEdit, QWidget

from rdchat.hub.hub_errors import HubError, for_window
from rdchat.hub.known_files import is_repository
from rdchat.inference.api.model_facts import ModelCard
from rdchat.services.models.drafters.mtp_search import MtpSearch
from rdchat.ui.models.page_parts import PageLinks
from rdchat.ui.style.buttons import dialog_buttons, push_button
from rdchat.ui.style.formatting import file_size
from rdchat.ui.style.labels import ThemedLabel
from rdchat.ui.style.layouts import column, row
from rdchat.ui.style.opening import open_page
from rdchat.ui.style.theme import LARGE, MEDIUM, Theme

_WIDTH = 480
_EXPLANATION = (
    "Multi-token-prediction layers are a drafter that the model's authors trained with it. Most quantised versions "
    "leave them out."
)
_SOURCE = "{size} from {repository}. rdchat keeps them with its drafters; the model's own files stay as they are."
_PARTLY_HERE = "{size} from {repository}, partly downloaded."
_UNKNOWN = "Neither {host} nor the model's card says which model it was quantised from. Name that model:"
_DOUBTFUL = "{name} does not say that it was published with MTP layers. If it was, name its original:"


class MtpSheet(QDialog):
    """Looks for the layers when it opens; downloads them after a click.

    Args:
        search: Asks the hub.
        links: Lead to the downloads and to the token.
        theme: The appearance to follow.
        parent: The window that it stands in front of.
    """

    def __init__(self, search: MtpSearch, links: PageLinks, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._search, self._links = search, links
        self.setWindowTitle("MTP Layers")
        self.setFixedWidth(_WIDTH)
        self.heading = ThemedLabel(theme, "", points_more=2, bold=True, wraps=True)
        explanation = ThemedLabel(theme, _EXPLANATION, "muted", -1, wraps=True)
        self.label = ThemedLabel(theme, "", wraps=True, selectable=True)
        self.problem = ThemedLabel(theme, "", "danger", wraps=True, selectable=True)
        self.field = QLineEdit()
        self.field.setAccessibleName("Original model")
        self.field.setPlaceholderText("ORG/NAME")
        self.field.textChanged.connect(self._show)
        self.page = push_button("Open Web Page", "", self._open_page)
        self.token = push_button("Enter Token…", "", links.token_requested.emit)
        self.cancel = push_button("Cancel", "", self.reject)
        self.go = push_button("", "", self._go)
        self.go.setDefault(True)
        ends = dialog_buttons(reject=self.cancel, accept=self.go)
        helps = row(self.page, self.token, None)
        parts = (self.heading, explanation, MEDIUM, self.label, self.problem, helps, self.field, MEDIUM, ends)
        self._column = column(*parts, within=self, margins=LARGE)
        search.changed.connect(self._show)

    def open_for(self, model: ModelCard) -> None:
        """Open the sheet for a model, and ask the hub."""
        self.field.clear()
        self.field.hide()
        self._search.look(model)
        self.open()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._search.forget()

    @property
    def _original(self) -> str:
        return self.field.text().strip()

    def _go(self) -> None:
        model = self._search.model
        if self._search.plan is not None:
            self._search.begin()
        elif model is not None:
            self._search.look(model, self._original)

    def _open_page(self) -> None:
        if isinstance(self._search.problem, HubError):
            open_page(self._search.problem.page)

    def _show(self) -> None:
        search = self._search
        if search.model is None:
            return
        if search.started:
            self.accept()
            self._links.downloads_requested.emit()
            return
        original = self._original
        plan, problem = search.plan, for_window(search.problem) if search.problem is not None else None
        self.heading.setText(f"MTP layers for {search.model.name}")
        if plan is not None:
            text = _PARTLY_HERE if plan.is_saved else _SOURCE
            self.label.show_text(text.format(size=file_size(plan.size), repository=plan.files.repository))
            self.go.setText("Resume" if plan.is_saved else f"Get {file_size(plan.size)}")
        else:
            unknown = (_UNKNOWN if search.model.states_mtp else _DOUBTFUL).format(
                host=search.host, name=search.model.name
            )
            answered = "" if problem is not None else unknown
            self.label.show_text(f"Asking {search.host}…" if search.searching else answered)
            self.go.setText("Look There" if original or problem is None else "Try Again")
        self.problem.show_text(str(problem) if problem is not None else "")
        self.page.setVisible(problem is not None and bool(problem.page))
        self.token.setVisible(problem is not None and problem.wants_token)
        if plan is None and not search.searching and self.field.isHidden():
            self.field.show()
            self.field.setFocus()
        elif plan is not None:
            self.field.hide()
        self.field.setEnabled(not search.searching)
        may_look = is_repository(original) if original else problem is not None
        self.go.setEnabled(plan is not None or (may_look and not search.searching))
        self._column.activate()
        self.setFixedHeight(self._column.totalHeightForWidth(_WIDTH))  # a dialog grows by itself, but does not shrink
