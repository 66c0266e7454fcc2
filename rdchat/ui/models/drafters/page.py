"""The Drafters page: drafters on this machine and on the hub for one model, and training."""

from pathlib import Path

from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QSizePolicy, QStackedWidget, QWidget

from rdchat.hub.hub_model import HubModel
from rdchat.hub.published_drafters import LinkedModel
from rdchat.inference.api.model_facts import ModelCard
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.services.models.training.training_control import TrainingState
from rdchat.ui.models.drafters.mtp_sheet import MtpSheet
from rdchat.ui.models.drafters.row import DrafterRow
from rdchat.ui.models.page_parts import PageLinks, RowList
from rdchat.ui.models.removal import ResultLine
from rdchat.ui.models.training.page import TrainingPage
from rdchat.ui.models.training.texts import state_title
from rdchat.ui.speed.fields import CalmComboBox
from rdchat.ui.style.buttons import TextButton, push_button
from rdchat.ui.style.formatting import counted
from rdchat.ui.style.labels import PlainLabel, Separator, ThemedLabel, set_tip
from rdchat.ui.style.layouts import column, fill_box, row, scrolled
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, TIGHT, Theme

_WIDEST = 820
_NOT_GOING = {TrainingState.LOOKING, TrainingState.NOTHING, TrainingState.ENDING}
_MAX_REASONS = 20
_NONE_HERE = "No drafter for {name} is installed. Search for a published one below, or train one."
_OTHER = "These drafters were made for {name}. Load the model to see which others fit."
_NO_MODEL = "Load a model to see its drafters."
_BEFORE = "Searches {host} for drafters made for this model and for smaller models of its family."
_NONE = "No drafter for {name} was found on {host}. You can train one."
_MTP = "A drafter by the model's authors, which most quantised versions leave out. Shows its size first."
_FOUND = "Found by name. rdchat checks whether one fits after the download."


class InstalledSection(QWidget):
    """Lists the drafters; a deleted one can be restored.

    Args:
        desk: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._shelf = desk.shelf
        self.words = ThemedLabel(theme, "", "muted", wraps=True)
        self.list = RowList[ModelCard, DrafterRow](lambda: DrafterRow(desk, links, theme), DrafterRow.show_card)
        self.unfit = TextButton("", theme, lambda: self.reasons.setVisible(self.reasons.isHidden()))
        self.reasons = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self.reasons.hide()
        self.result = ResultLine(desk.removal, theme, drafters_only=True)
        title = ThemedLabel(theme, "On this machine", points_more=1, bold=True)
        parts = (title, self.list, self.words, row(self.unfit, None), self.reasons, self.result, SMALL)
        column(*parts, within=self, spacing=TIGHT)
        desk.shelf.changed.connect(self.refresh)
        self.refresh()

    def refresh(self) -> None:
        """Show the current drafters."""
        shelf, chosen = self._shelf, self._shelf.chosen
        cards = shelf.fitting if chosen is not None else ()
        self.list.show_items({card.model: card for card in cards})
        if chosen is None:
            self.words.show_text(_NO_MODEL)
        elif chosen.is_loaded:
            self.words.show_text("" if cards else _NONE_HERE.format(name=chosen.name))
        else:
            self.words.show_text(_OTHER.format(name=chosen.name))
        unfit = shelf.unfit
        self.unfit.setVisible(bool(unfit))
        self.unfit.setText(f"{counted(len(unfit), 'drafter')} cannot be used with this model")
        reasons = [f"{each.name}: {each.problem}" for each in unfit[:_MAX_REASONS]]
        more = [f"and {len(unfit) - _MAX_REASONS} more"] if len(unfit) > _MAX_REASONS else []
        self.reasons.setText("\n".join([*reasons, *more]))


class PublishedSection(QWidget):
    """Searches the hub for drafters, lists and downloads them. The hub is asked only after a click.

    Args:
        desk: The window's services.
        links: Lead to the downloads.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._hub, self._shelf = desk.hub_drafters, desk.shelf
        self.search = push_button("Search for Drafters", "", self._search)
        self.mtp = push_button("Get This Model's MTP Layers…", _MTP, self.get_mtp)
        self.sheet = MtpSheet(desk.mtp, links, theme, self)
        self.words = ThemedLabel(theme, "", "muted", wraps=True)
        self.list = RowList[HubModel, DrafterRow](lambda: DrafterRow(desk, links, theme), DrafterRow.show_results)
        top = row((ThemedLabel(theme, "Published", points_more=1, bold=True), 1), self.mtp, self.search)
        column(top, self.words, self.list, within=self, spacing=TIGHT)
        for changed in (self._hub.changed, self._shelf.changed, desk.downloads.finished, desk.downloads.removed):
            changed.connect(self.refresh)
        self.refresh()

    def search_once(self) -> None:
        """Ask the hub, unless it was asked for this model."""
        if self._shelf.chosen is not None and self._hub.model != self._shelf.chosen.name:
            self._search()

    def _search(self) -> None:
        if (chosen := self._shelf.chosen) is not None:
            self._hub.search(LinkedModel(chosen.name, chosen.path))

    def get_mtp(self) -> None:
        """Look for the model's MTP layers."""
        if (chosen := self._shelf.chosen) is not None:
            self.sheet.open_for(chosen)

    def refresh(self) -> None:
        """Show the results so far."""
        hub, chosen = self._hub, self._shelf.chosen
        asked = bool(hub.model) and chosen is not None and hub.model == chosen.name
        found = hub.found if asked else ()
        before = _BEFORE.format(host=hub.host)
        self.search.setEnabled(chosen is not None and not hub.searching)
        self.mtp.setVisible(chosen is not None and chosen.states_mtp)
        self.search.setText("Search Again" if asked and not hub.searching else "Search for Drafters")
        set_tip(self.search, before)
        self.list.show_items({each.repository: each for each in found})
        self.words.set_color("danger" if asked and hub.problem else "muted")
        if not asked:
            self.words.setText(before)
        elif hub.problem or hub.searching:
            self.words.setText(hub.problem or f"Searching {hub.host}…")
        else:
            self.words.setText(_FOUND if found else _NONE.format(host=hub.host, name=hub.model))


class DraftersPage(QWidget):
    """The drafters of one model, and the training page behind a button.

    Args:
        desk: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, desk: ModelsDesk, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._shelf, self._hub, self._training = desk.shelf, desk.hub_drafters, desk.training
        self._taken = ""  # the message after a trained drafter was taken into use
        self.installed = InstalledSection(desk, links, theme)
        self.published = PublishedSection(desk, links, theme)
        self.training = TrainingPage(desk.training, desk.shelf, theme)
        self.model = CalmComboBox()
        self.model.setAccessibleName("Model")
        self.model.setPlaceholderText("Choose a model")
        self.model.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.model.setMaximumWidth(400)
        self.load = push_button("Load", "", desk.shelf.load_chosen)
        self.train = push_button("Train a Drafter…", "", self.show_training)
        self.note = ThemedLabel(theme, "", "success", wraps=True)
        margins = (LARGE, SMALL, LARGE, SMALL)
        bar = row(PlainLabel("Drafters for"), (self.model, 3), self.load, None, self.train, margins=margins)
        inner, self._list, self._stack = QWidget(), QWidget(), QStackedWidget()
        inner.setMaximumWidth(_WIDEST)
        margins = (LARGE, MEDIUM, LARGE, LARGE)
        column(self.note, self.installed, self.published, None, within=inner, spacing=MEDIUM, margins=margins)
        column(bar, Separator(theme), (scrolled(inner), 1), within=self._list, spacing=0)
        for page in (self._list, self.training):
            self._stack.addWidget(page)
        column(self._stack, within=self)
        self.model.activated.connect(lambda: self.choose(self.model.currentData()))
        self.training.left.connect(self.show_drafters)
        for changed in (desk.shelf.changed, desk.training.changed):
            changed.connect(self._show_state)
        desk.training.taken.connect(self._on_taken)
        self._show_state()

    def showEvent(self, event: QShowEvent) -> None:
        """Search this machine again: something may have been downloaded."""
        super().showEvent(event)
        self._shelf.look()

    def show_training(self) -> None:
        """Show the training, or the form to start one."""
        self._stack.setCurrentWidget(self.training)
        self.training.back.setFocus()

    def show_drafters(self) -> None:
        """Show the list."""
        self._shelf.look()
        self._stack.setCurrentWidget(self._list)
        self.train.setFocus()

    def choose(self, model: ModelCard) -> None:
        """Show the drafters of a model."""
        if self._shelf.chosen is None or self._shelf.chosen.path != model.path:
            self._hub.forget()
            self.installed.result.show_text("")
            self._taken = ""
            self._shelf.choose(model)

    def _show_models(self) -> None:
        """List the loaded model and the others."""
        shelf, chosen = self._shelf, self._shelf.chosen
        models = [*([shelf.loaded] if shelf.loaded else []), *shelf.others]
        named = ((f"{each.name} (loaded)" if each.is_loaded else each.name, each) for each in models)
        wanted = chosen.model if chosen is not None else None
        fill_box(self.model, named, next((each for each in models if each.model == wanted), None))
        self.model.setEnabled(bool(models))

    def _show_state(self) -> None:
        self._show_models()
        chosen, state, order = self._shelf.chosen, self._training.state, self._training.order
        self.load.setVisible(chosen is not None and not chosen.is_loaded)
        going = order is not None and state not in _NOT_GOING
        self.train.setText("Show Training…" if going else "Train a Drafter…")
        self.train.setEnabled(going or (chosen is not None and state is TrainingState.NOTHING))
        title = state_title(state, self._training.progress)
        training = f"Training a drafter for {order.name}: {title}." if order and going else ""
        self.note.show_text(training or self._taken, "muted" if training else "success")

    def _on_taken(self, drafter: str, model: str) -> None:
        """Make the model use the drafter that was trained for it."""
        self._taken = f"{Path(drafter).name} is used from the next reply on."
        loaded = self._shelf.loaded
        if loaded is not None and str(loaded.path) == model:
            self._shelf.use(drafter)
        else:
            self._shelf.prefer(drafter, model)
        self.show_drafters()
        self._show_state()
