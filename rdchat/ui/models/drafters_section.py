"""The drafters in the details of a model: those on this machine and on the hub, its MTP layers, and training.

`MissingPartSheet`, which fetches MTP layers, fetches vision too.
"""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtWidgets import QLineEdit, QWidget

from rdchat.hub import HubError, for_window, is_repository
from rdchat.inference.api import NO_VISION, ModelCard, ModelPart
from rdchat.services.models.library import PartSearch
from rdchat.services.models.model_services import Models
from rdchat.services.models.training_control import TrainingState
from rdchat.ui.models.model_row import RowList
from rdchat.ui.models.reading_pane import PageLinks
from rdchat.ui.models.training_page import state_title
from rdchat.ui.style import (
    MEDIUM,
    TIGHT,
    Sheet,
    TextButton,
    Theme,
    ThemedLabel,
    column,
    listed,
    nothing,
    open_page,
    push_button,
    row,
    set_tip,
    small_text,
)
from rdchat.wording import counted, size_text

# The sheet
_TITLES = {ModelPart.MTP: "MTP layers for {}", ModelPart.VISION: "Vision for {}"}
_EXPLANATIONS = {
    ModelPart.MTP: "Multi-token-prediction layers are a drafter that the model's authors trained with it. Most "
    "quantised versions leave them out.",
    ModelPart.VISION: f"{NO_VISION} Copies made for text leave out what reads images.",
}
_SOURCE = "{size} from {repository}: whole files, of which only that part is kept. The model's own files stay."
_UNKNOWN = "Neither {host} nor the model's card says which model it was quantised from. Name that model:"
_DOUBTFUL = "{name} does not say that it was published with MTP layers. If it was, name its original:"

# The section
# States in which there is no training to show; of one that ends, only files are left.
_NOT_GOING = {TrainingState.LOOKING, TrainingState.NOTHING, TrainingState.ENDING}
_MAX_REASONS = 20
_NONE_HERE = "None is installed. Search for a published one, or train one."
_OTHER = "Load the model to use one."
_EXPLANATION = "Searches {host} for drafters made for this model and for smaller models of its family."
_NONE = "No drafter for {name} was found on {host}. You can train one."
_MTP = "A drafter by the model's authors, which most quantised versions leave out. Shows its size first."
_RESULTS = "Found by name. rdchat checks whether one fits after the download."


class MissingPartSheet(Sheet):
    """Asks the hub for a part that a model lacks, and downloads that after a click.

    It asks when it opens. Where the hub does not know the model's original, which has the part, the person names it.

    Args:
        search: Asks the hub.
        model: The model.
        links: Lead to the token.
        theme: The appearance to follow.
        parent: The window that it stands in front of.
        part: What the model lacks.
    """

    def __init__(
        self, search: PartSearch, model: ModelCard, links: PageLinks, theme: Theme, parent: QWidget, *, part: ModelPart
    ) -> None:
        self._search = search
        self._model = model
        self._part = part
        self.label = ThemedLabel(theme, "", wraps=True, selectable=True)
        self.problem = ThemedLabel(theme, "", "danger", wraps=True, selectable=True)
        self.field = QLineEdit(placeholderText="ORG/NAME")
        self.field.setAccessibleName("Original model")
        self.field.hide()
        self.page = push_button("Open Web Page", "", self._open_page)
        self.token = push_button("Enter Token…", "", links.token_requested.emit)
        parts = (MEDIUM, self.label, self.problem, row(self.page, self.token, None), self.field)
        title = _TITLES[part].format(model.name)
        answers = (("Cancel", nothing), ("Look There", self._go))
        super().__init__(parent, theme, title, _EXPLANATIONS[part], answers, parts=parts, stays=True)
        self.cancel, self.go = self.buttons
        self.field.textChanged.connect(self._show)
        search.changed.connect(self._show)
        search.started.connect(self.accept)
        self.finished.connect(search.forget_results)
        search.ask_hub(model, "", part)

    def _go(self) -> None:
        if self._search.plan is not None:
            self._search.start_download()
        else:
            self._search.ask_hub(self._model, self.field.text().strip(), self._part)

    def _open_page(self) -> None:
        if isinstance(self._search.problem, HubError):
            open_page(self._search.problem.page)

    def _show(self) -> None:
        """Show what the hub has answered: the download that is planned, a problem, or the question for the original."""
        search = self._search
        original = self.field.text().strip()
        plan = search.plan
        problem = for_window(search.problem) if search.problem is not None else None
        if plan is not None:
            size = size_text(plan.size)
            has = "" if self._part is ModelPart.MTP else "Its original has: "
            self.label.show_text(has + _SOURCE.format(size=size, repository=plan.repository))
            self.go.setText(f"Get {size}")
        else:
            unknown = _UNKNOWN if self._model.states_mtp or self._part is ModelPart.VISION else _DOUBTFUL
            answered = "" if problem is not None else unknown.format(host=search.host, name=self._model.name)
            self.label.show_text(f"Asking {search.host}…" if search.searching else answered)
            self.go.setText("Look There" if original or problem is None else "Try Again")
        self.problem.show_text(str(problem or ""))
        self.page.setVisible(problem is not None and bool(problem.page))
        self.token.setVisible(problem is not None and problem.wants_token)
        # The field comes with the first answer without a plan, and stays, disabled while the hub is asked again.
        if plan is None and not search.searching and self.field.isHidden():
            self.field.show()
            self.field.setFocus()
        elif plan is not None:
            self.field.hide()
        self.field.setEnabled(not search.searching)
        # With an empty field the same question is asked again, which only helps after a problem.
        may_look = is_repository(original) if original else problem is not None
        self.go.setEnabled(plan is not None or (may_look and not search.searching))
        self.fit()


class DraftersSection(QWidget):
    """The drafters of the chosen model, here and published ones. The hub is asked only after a click.

    Args:
        models: The window's services.
        links: Lead to the token.
        theme: The appearance to follow.
        show_training: Shows the training, or the form to start one.
    """

    def __init__(self, models: Models, links: PageLinks, theme: Theme, show_training: Callable[[], object]) -> None:
        super().__init__()
        self._models = models
        self._library = models.library
        self._hub = models.hub_drafters
        self._links = links
        self._theme = theme
        # The model of the details; None before the first.
        self._card: ModelCard | None = None
        # Says that a newly trained drafter is used, until another model is chosen.
        self._use_message = ""
        self.train = push_button("Train a Drafter…", "", show_training)
        self.note = ThemedLabel(theme, "", "success", wraps=True)
        self.list, self.hub_list = (RowList(models, links, theme) for _ in range(2))
        self.list_text, self.hub_text = (ThemedLabel(theme, "", "muted", wraps=True) for _ in range(2))
        self.unfit = TextButton("", theme, lambda: self.reasons.setVisible(self.reasons.isHidden()))
        self.reasons = small_text(theme, selectable=True)
        self.reasons.hide()
        self.search = push_button("Search for Drafters", "", self._search)
        self.mtp = push_button("Get This Model's MTP Layers…", _MTP, self.get_mtp)
        installed = self.list, self.list_text, row(self.unfit, None), self.reasons
        published = self.hub_list, self.hub_text, row(self.search, self.mtp, self.train, None)
        column(self.note, *installed, *published, within=self, spacing=TIGHT)
        models.library.drafters_changed.connect(self._show_state)
        models.training.changed.connect(self._show_training)
        self._hub.changed.connect(self._show_published)
        models.downloads.changed.connect(self._on_progress)
        models.training.taken.connect(self._on_taken)
        self._show_state()

    def choose_model(self, model: ModelCard) -> None:
        """Show the drafters of a model."""
        self._card = model
        if self._library.chosen is None or self._library.chosen.path != model.path:
            self._hub.forget_results()
            self._use_message = ""
            self._library.choose_model(model)
        self._show_published()

    def search_once(self) -> None:
        """Ask the hub, unless it was asked for this model."""
        if not self._models.was_searched:
            self._search()

    def _search(self) -> None:
        if (chosen := self._library.chosen) is not None:
            self._hub.search_hub(chosen.name, chosen.path)

    def get_mtp(self) -> None:
        """Look for the model's MTP layers."""
        if self._card is not None:
            MissingPartSheet(self._models.parts, self._card, self._links, self._theme, self, part=ModelPart.MTP).open()

    def _show_state(self) -> None:
        self._show_installed()
        self._show_published()
        self._show_training()

    def _show_training(self) -> None:
        """Name the button for the training by its state, and say above the drafters what it does."""
        training = self._models.training
        chosen = self._library.chosen
        going = training.order is not None and training.state not in _NOT_GOING
        self.train.setText("Show Training…" if going else "Train a Drafter…")
        self.train.setEnabled(going or (chosen is not None and training.state is TrainingState.NOTHING))
        title = state_title(training.state, training.progress)
        text = f"Training a drafter for {training.order.name}: {title}." if training.order and going else ""
        self.note.show_text(text or self._use_message, "muted" if text else "success")

    def _show_installed(self) -> None:
        """List the drafters on this machine, and apart from them those that cannot be used with the model."""
        library = self._library
        chosen = library.chosen
        drafters = self._models.drafters
        self.list.show_models(drafters)
        is_loaded = chosen is not None and chosen.is_loaded
        self.list_text.show_text(_OTHER if not is_loaded else "" if drafters else _NONE_HERE)
        unfit = library.unfit
        self.unfit.setVisible(bool(unfit))
        self.unfit.setText(f"{counted(len(unfit), 'drafter')} cannot be used with this model")
        self.reasons.setText(listed([f"{each.name}: {each.problem}" for each in unfit], _MAX_REASONS, "\n"))

    def _on_progress(self) -> None:
        if self.hub_list.isVisible():
            self._show_published()

    def _show_published(self) -> None:
        """Show the drafters that the hub has, and in words what a search does or has found."""
        hub = self._hub
        chosen = self._library.chosen
        searched = self._models.was_searched
        published = self._models.published
        explanation = _EXPLANATION.format(host=hub.host)
        self.search.setEnabled(chosen is not None and not hub.searching)
        self.mtp.setVisible(self._card is not None and self._card.states_mtp)
        self.search.setText("Search Again" if searched and not hub.searching else "Search for Drafters")
        set_tip(self.search, explanation)
        self.hub_list.show_models(published)
        if not searched:
            text = explanation
        elif hub.problem or hub.searching:
            text = hub.problem or f"Searching {hub.host}…"
        else:
            text = _RESULTS if published else _NONE.format(host=hub.host, name=hub.model)
        self.hub_text.show_text(text, "danger" if searched and hub.problem else "muted")

    def _on_taken(self, drafter: str, model: str) -> None:
        """Make the model use the drafter that was trained for it."""
        self._use_message = f"{Path(drafter).name} is used from the next reply on."
        loaded = self._library.loaded
        if loaded is not None and str(loaded.path) == model:
            self._library.use(drafter)
        else:
            self._library.prefer(drafter, model)
        self._library.look_for_all()
        self._show_state()
