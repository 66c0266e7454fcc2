"""The preferences window. Changes apply at once; there is nothing to confirm."""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QShowEvent
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QFormLayout,
    QLineEdit,
    QSpinBox,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from rdchat import paths
from rdchat.chat.settings import MAX_DOWNLOADS, Appearance, Settings
from rdchat.hub.updates import updates_address
from rdchat.inference.api.requests import Dtype, SamplingParams
from rdchat.services.chat_controller import ChatController
from rdchat.ui.settings.sampling_form import SamplingForm
from rdchat.ui.settings.server_page import ServerPage
from rdchat.ui.style import formatting
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.formatting import DEFAULT_MODEL
from rdchat.ui.style.labels import ElidedLabel, ThemedLabel
from rdchat.ui.style.layouts import add_row, choice_box, column, form_layout, row, text_field
from rdchat.ui.style.opening import SHOW_FOLDER, SideWindow, show_folder
from rdchat.ui.style.theme import LARGE, LARGEST_TEXT, MEDIUM, SMALL, SMALLEST_TEXT, TIGHT, Theme

_MAX_KEPT_GB = 999.0
_TYPING_MS = 400  # text is saved after a pause in typing, not after each letter
_SEED = "The same prompt and seed give the same reply, on a GPU up to rounding. Leave it empty for varied replies."
_CLEAR = "Forget the earlier replies. Your chats stay."
_WRONG_SEED = "A seed is a whole number from 0 to 2^64 - 1. It can be empty."
_APPEARANCES = {Appearance.SYSTEM: "System", Appearance.LIGHT: "Light", Appearance.DARK: "Dark"}
_FILES = (
    ("Chats", paths.data_dir, "Your chats and these settings."),
    ("Log", paths.log_path, "Attach it when you report a problem."),
    ("Converted models", paths.models_dir, "rdchat makes these again when they are missing."),
)


class Preferences(SideWindow):
    """A window with pages as tabs."""

    choose_model_requested = Signal()
    choose_models_folder_requested = Signal()
    token_requested = Signal()

    def __init__(
        self,
        controller: ChatController,
        theme: Theme,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__("Settings", (0, 0), (0, 0), parent)
        preferences, model, earlier = controller.preferences, controller.model_slot, controller.earlier
        self._preferences, self._slot, self._earlier, self._theme = preferences, model, earlier, theme
        self._kept = controller.prefix_caches
        self._typing = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self._typing.timeout.connect(self._save_text)
        self.tabs = QTabWidget()
        self.server = ServerPage(controller.server, theme, self._preferences.update)
        self._pages = {
            "General": self._build_general(),
            "New Chats": self._build_chat(),
            "Model": self._build_model(),
            "Server": self.server,
            "Downloads": self._build_downloads(),
            "Files": self._build_files(),
        }
        for name, page in self._pages.items():
            self.tabs.addTab(page, name)
            page.installEventFilter(self)
        self.tabs.currentChanged.connect(self._fit_page)
        layout = QVBoxLayout(self)
        layout.setSizeConstraint(QVBoxLayout.SizeConstraint.SetFixedSize)  # as high as the page that is shown
        layout.addWidget(self.tabs)
        self._fit_page()
        preferences.changed.connect(self.show_settings)
        for changed in (model.loaded, model.load_started, model.unload_started):
            changed.connect(lambda: self.show_settings(preferences.settings))
        earlier.changed.connect(self._show_earlier)
        self._kept.changed.connect(self._show_sizes)
        self._show_earlier()
        self._show_sizes()
        self.show_settings(preferences.settings)

    def show_settings(self, settings: Settings) -> None:
        """Show the settings; fields that are being typed in keep their text."""
        fields = (
            self.appearance,
            self.text_size,
            self.dtype,
            self.downloads_at_once,
            self.titles,
            self.earlier,
            self.prompt,
            self.updates,
        )
        with ExitStack() as blocked:
            for field in fields:
                blocked.enter_context(QSignalBlocker(field))
            self.appearance.setCurrentIndex(self.appearance.findData(settings.appearance))
            self.text_size.setValue(settings.text_size)
            self.titles.setChecked(settings.titles_by_model)
            self.earlier.setChecked(settings.earlier_replies)
            self.updates.setChecked(bool(settings.looks_for_updates))
            self.dtype.setCurrentIndex(self.dtype.findData(self._slot.dtype))
            self.downloads_at_once.setValue(settings.downloads_at_once)
            typing = self._typing.isActive()
            self.server.show_settings(settings)
            self.server.show_model(self._slot.name)
            if not typing and self.prompt.toPlainText() != settings.system_prompt:
                self.prompt.setPlainText(settings.system_prompt)
            if not typing and not self.seed_problem.isVisibleTo(self):
                self.seed.setText("" if settings.seed is None else str(settings.seed))
        if not self.form.problem.isVisibleTo(self.form):
            self.form.set_sampling(settings.sampling_for(self._slot.sampling))
            self.form.show_sources(self._slot.sampling, settings.chosen_sampling)
        self.model.setText(DEFAULT_MODEL if settings.model is None else settings.model)
        self.use_default.setEnabled(settings.model is not None)
        self.models_folder.setText(settings.models_folder or str(Path.home()))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.LayoutRequest:  # a problem appears or disappears
            self._fit_page()
        return super().eventFilter(watched, event)

    def show_page(self, name: str) -> None:
        """Go to a page by its name."""
        self.tabs.setCurrentWidget(self._pages[name])

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._kept.look()

    def _fit_page(self) -> None:
        page = self._pages[self.tabs.tabText(self.tabs.currentIndex())]
        bar = self.tabs.tabBar().sizeHint().height()
        self.tabs.setFixedHeight(page.sizeHint().height() + bar + MEDIUM)

    def _build_general(self) -> QWidget:
        page, form = _page()
        self.appearance = _combo(_APPEARANCES, lambda chosen: self._preferences.update(appearance=Appearance(chosen)))
        self.text_size = QSpinBox(minimum=SMALLEST_TEXT, maximum=LARGEST_TEXT, suffix=" pt")
        self.text_size.valueChanged.connect(lambda points: self._preferences.update(text_size=points))
        self.titles = QCheckBox("Let larger models write the titles of new chats")
        self.titles.toggled.connect(lambda on: self._preferences.update(titles_by_model=on))
        titles = "Models of a billion parameters or more write titles. Titles that you wrote stay."
        add_row(form, "Appearance", self.appearance, "Light, dark, or the same as the system.")
        add_row(form, "Text size", self.text_size, "Size of the text in chats.")
        self.earlier = QCheckBox("Use earlier replies to draft")
        self.earlier.toggled.connect(lambda on: self._preferences.update(earlier_replies=on))
        self.clear_earlier = push_button("Clear Earlier Replies", _CLEAR, self._earlier.clear)
        self.earlier_size = ThemedLabel(self._theme, "", "muted", -1)
        earlier = (
            "Text from earlier replies that repeats is written faster. Replies do not change or leave this computer."
        )
        add_row(form, "Titles", self.titles, titles)
        add_row(form, "Speed", self.earlier, earlier)
        form.addRow("", row(self.clear_earlier, self.earlier_size, None))
        self.updates = QCheckBox("Look for new versions once a day", page)
        self.updates.toggled.connect(lambda on: self._preferences.update(looks_for_updates=on))
        address = updates_address()
        self.updates.setVisible(bool(address))
        if address:
            add_row(form, "Updates", self.updates, f"Asks {address}. Nothing is installed.")
        return page

    def _show_earlier(self) -> None:
        size = self._earlier.bytes
        self.clear_earlier.setEnabled(size > 0)
        self.earlier_size.show_text(f"{formatting.file_size(size)} on disk" if size else "Nothing is kept.")

    def _build_chat(self) -> QWidget:
        page, form = _page()
        self.prompt = text_field(4, "None: the model uses its own instructions.")
        self.prompt.textChanged.connect(self._typing.start)
        self.seed = QLineEdit()
        self.seed.setPlaceholderText("A new one for each reply")
        self.seed.textEdited.connect(self._typing.start)
        self.seed_problem = ThemedLabel(self._theme, "", "danger", -1)
        self.seed_problem.hide()
        self.form = SamplingForm(self._theme)
        self.form.edited.connect(self._choose_sampling)
        add_row(form, "System prompt", self.prompt, "Instructions that the model reads before each chat.")
        add_row(form, "Seed", self.seed, _SEED)
        form.addRow("", self.seed_problem)
        form.addRow("Sampling", self.form)
        form.addRow("", row(push_button("Use the Model's Sampling", act=self._restore_sampling), None))
        self._add_note(form, "This does not change chats that have their own options.")
        return page

    def _build_model(self) -> QWidget:
        page, form = _page()
        self.model = ElidedLabel(self._theme, mode=Qt.TextElideMode.ElideMiddle)
        choose = push_button("Choose…", act=self.choose_model_requested.emit)
        self.use_default = push_button("Use Default Model", act=lambda: self._slot.load(None))
        self.dtype = _combo(formatting.DTYPE_TEXT, lambda chosen: self._slot.load_precision(Dtype(chosen)))
        self.models_folder = ElidedLabel(self._theme, mode=Qt.TextElideMode.ElideMiddle)
        folder = "The Models window lists its models, and Open Model Folder begins there."
        add_row(form, "Model", self.model, "rdchat loads this model when it starts.")
        form.addRow("", row(choose, self.use_default, None))
        add_row(form, "Precision", self.dtype, f"Fewer bits need less memory. Automatic suits {formatting.MACHINE}.")
        self._add_note(form, "Changes here load the model again.")
        self.cache_limit = QDoubleSpinBox(decimals=1, maximum=_MAX_KEPT_GB, singleStep=0.5, suffix=" GB")
        self.cache_limit.setKeyboardTracking(False)
        self.cache_limit.valueChanged.connect(
            lambda size: self._preferences.update(prefix_cache_bytes=round(size * 1e9))
        )
        self.cache_size = ThemedLabel(self._theme, "", "muted", -1)
        kept = "Memory for chats that the model has read, in this window and for other programs."
        add_row(form, "Memory for chats", self.cache_limit, kept, row(self.cache_limit, self.cache_size, None))
        self._add_note(form, "While a chat is in memory, the model need not read it again.")
        add_row(form, "Models folder", self.models_folder, folder)
        form.addRow("", row(push_button("Choose…", act=self.choose_models_folder_requested.emit), None))
        return page

    def _show_sizes(self) -> None:
        facts = self._kept.facts
        self.cache_limit.setEnabled(facts is not None)
        if facts is not None:
            with QSignalBlocker(self.cache_limit):
                self.cache_limit.setValue(facts.limit_bytes / 1e9)
            chats = formatting.counted(facts.count, "chat")
            self.cache_size.show_text(
                f"{chats}, {formatting.file_size(facts.held_bytes)} now" if facts.count else "None now"
            )

    def _build_downloads(self) -> QWidget:
        page, form = _page()
        self.downloads_at_once = QSpinBox(minimum=1, maximum=MAX_DOWNLOADS)
        self.downloads_at_once.valueChanged.connect(lambda number: self._preferences.update(downloads_at_once=number))
        self.token = push_button("Hugging Face Token…", act=self.token_requested.emit)
        at_once = "How many models are downloaded at the same time."
        add_row(form, "Downloads at once", self.downloads_at_once, at_once, row(self.downloads_at_once, None))
        form.addRow("Access", row(self.token, None))
        self._add_note(form, "Only gated and private models need a token.")
        return page

    def _build_files(self) -> QWidget:
        page, form = _page()
        for name, find, about in _FILES:
            path = find()
            label = ElidedLabel(self._theme, str(path), mode=Qt.TextElideMode.ElideMiddle)
            button = push_button(SHOW_FOLDER, act=partial(show_folder, path))
            button.setAccessibleName(f"{SHOW_FOLDER}: {name}")
            note = ThemedLabel(self._theme, about, "muted", -1)
            form.addRow(name, column(row((label, 1), button), note, spacing=TIGHT, margins=(0, 0, 0, SMALL)))
        return page

    def _add_note(self, form: QFormLayout, text: str) -> None:
        form.addRow("", ThemedLabel(self._theme, text, "muted", -1))

    def _choose_sampling(self, values: SamplingParams) -> None:
        self._preferences.change(self._preferences.settings.choosing(values, self._slot.sampling))

    def _restore_sampling(self) -> None:
        self.form.set_sampling(self._slot.sampling.params)  # first: it clears a problem
        self._preferences.update(sampling=SamplingParams(), sampling_chosen=())

    def _save_text(self) -> None:
        words = self.seed.text().strip()
        valid = not words or (words.isascii() and words.isdigit() and int(words) < 2**64)
        self.seed_problem.show_text("" if valid else _WRONG_SEED)
        seed = self._preferences.settings.seed if not valid else int(words) if words else None
        self._preferences.update(system_prompt=self.prompt.toPlainText(), seed=seed)

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._typing.isActive():
            self._typing.stop()
            self._save_text()
        super().closeEvent(event)


def _page() -> tuple[QWidget, QFormLayout]:
    page = QWidget()
    page.setMinimumWidth(500)
    return page, form_layout(page, spacing=(MEDIUM, SMALL), margin=LARGE)


def _combo[K](choices: dict[K, str], change: Callable[[K], object]) -> QComboBox:
    """Return a combo box of values and their texts that calls `change` with the chosen value."""
    combo = choice_box("", "", ((text, value) for value, text in choices.items()), letters=0)
    combo.currentIndexChanged.connect(lambda _index: change(combo.currentData()))
    return combo
