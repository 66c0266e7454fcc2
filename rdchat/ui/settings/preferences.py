"""The preferences. Every change applies at once, as on a Mac; there is nothing to confirm."""

from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QEvent, QObject, QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDialog,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QSpinBox,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from rdchat import paths
from rdchat.chat.settings import MOST_DOWNLOADS, Appearance, Settings
from rdchat.inference.api.requests import Dtype, SamplingParams
from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.engine.model_slot import ModelSlot
from rdchat.ui.look import formatting
from rdchat.ui.look.formatting import DEFAULT_MODEL
from rdchat.ui.look.labels import ElidedLabel, ThemedLabel
from rdchat.ui.look.opening import SHOW_FOLDER, show_folder
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import LARGE, LARGEST_TEXT, MEDIUM, SMALL, SMALLEST_TEXT, TIGHT, Theme
from rdchat.ui.settings.sampling_form import SamplingForm

_TYPING_MS = 400  # a pause in typing saves; not every letter
_SEED = "The same prompt and seed give the same reply, on a GPU up to rounding. Empty: each reply differs."
_APPEARANCES = ((Appearance.SYSTEM, "As the system"), (Appearance.LIGHT, "Light"), (Appearance.DARK, "Dark"))


class Preferences(QDialog):
    """A window beside the main one, with its pages as tabs."""

    choose_model_requested = Signal()
    choose_models_folder_requested = Signal()
    token_requested = Signal()

    def __init__(
        self, preferences: SettingsControl, model: ModelSlot, theme: Theme, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._preferences, self._slot, self._theme = preferences, model, theme
        self.setWindowTitle("Preferences")
        self._typing = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self._typing.timeout.connect(self._save_text)
        self.tabs = QTabWidget()
        self._pages = {
            "General": self._build_general(),
            "New chats": self._build_chat(),
            "Model": self._build_model(),
            "Downloads": self._build_downloads(),
            "Files": self._build_files(),
        }
        for name, page in self._pages.items():
            self.tabs.addTab(page, name)
            page.installEventFilter(self)
        QShortcut(QKeySequence.StandardKey.Close, self, self.close)
        self.tabs.currentChanged.connect(self._fit_page)
        layout = QVBoxLayout(self)
        layout.setSizeConstraint(QVBoxLayout.SizeConstraint.SetFixedSize)  # as high as the page that is shown
        layout.addWidget(self.tabs)
        self._fit_page()
        preferences.changed.connect(self.show_settings)
        self.show_settings(preferences.settings)

    def show_settings(self, settings: Settings) -> None:
        """Show what is in force; fields that are being typed in keep their text."""
        with (
            QSignalBlocker(self.appearance),
            QSignalBlocker(self.text_size),
            QSignalBlocker(self.dtype),
            QSignalBlocker(self.downloads_at_once),
            QSignalBlocker(self.prompt),
            QSignalBlocker(self.seed),
            QSignalBlocker(self.titles),
        ):
            self.appearance.setCurrentIndex(self.appearance.findData(settings.appearance))
            self.text_size.setValue(settings.text_size)
            self.titles.setChecked(settings.titles_by_model)
            self.dtype.setCurrentIndex(self.dtype.findData(self._slot.dtype))
            self.downloads_at_once.setValue(settings.downloads_at_once)
            typing = self._typing.isActive()
            if not typing and self.prompt.toPlainText() != settings.system_prompt:
                self.prompt.setPlainText(settings.system_prompt)
            if not typing and not self.seed_problem.isVisibleTo(self):
                self.seed.setText("" if settings.seed is None else str(settings.seed))
        if not self.form.problem.isVisibleTo(self.form):
            self.form.set_sampling(settings.sampling)
        self.model.setText(DEFAULT_MODEL if settings.model is None else settings.model)
        self.use_default.setEnabled(settings.model is not None)
        self.models_folder.setText(settings.models_folder or str(Path.home()))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.LayoutRequest:  # a problem is told, or solved
            self._fit_page()
        return super().eventFilter(watched, event)

    def _fit_page(self) -> None:
        page = self._pages[self.tabs.tabText(self.tabs.currentIndex())]
        bar = self.tabs.tabBar().sizeHint().height()
        self.tabs.setFixedHeight(page.sizeHint().height() + bar + MEDIUM)

    def _build_general(self) -> QWidget:
        page, form = _page()
        self.appearance = QComboBox()
        for appearance, name in _APPEARANCES:
            self.appearance.addItem(name, appearance)
        self.appearance.currentIndexChanged.connect(
            lambda: self._change(appearance=Appearance(self.appearance.currentData()))
        )
        self.text_size = QSpinBox(minimum=SMALLEST_TEXT, maximum=LARGEST_TEXT, suffix=" pt")
        self.text_size.valueChanged.connect(lambda points: self._change(text_size=points))
        self.titles = QCheckBox("Have the model write titles of new chats")
        self.titles.toggled.connect(lambda on: self._change(titles_by_model=on))
        _add(form, "Appearance", self.appearance, "Light, dark, or whatever the system uses at the moment.")
        _add(form, "Text size", self.text_size, "Size of the text of conversations.")
        _add(form, "Titles", self.titles, "In idle time, from the first question and its answer. Your own titles stay.")
        return page

    def _build_chat(self) -> QWidget:
        page, form = _page()
        self.prompt = QPlainTextEdit(tabChangesFocus=True)
        self.prompt.setPlaceholderText("None. The model's own instructions apply.")
        self.prompt.setFixedHeight(self.prompt.fontMetrics().lineSpacing() * 4 + 12)
        self.prompt.textChanged.connect(self._typing.start)
        self.seed = QLineEdit()
        self.seed.setPlaceholderText("A new one for each reply")
        self.seed.textEdited.connect(self._typing.start)
        self.seed_problem = ThemedLabel(self._theme, "", "danger", -1)
        self.seed_problem.hide()
        self.form = SamplingForm(self._theme)
        self.form.edited.connect(lambda sampling: self._change(sampling=sampling))
        restore = QPushButton("Restore the original sampling")
        restore.setAutoDefault(False)
        restore.clicked.connect(self._restore_sampling)
        _add(form, "System prompt", self.prompt, "Instructions the model reads before each conversation.")
        _add(form, "Seed", self.seed, _SEED)
        form.addRow("", self.seed_problem)
        form.addRow("Sampling", self.form)
        form.addRow("", _left(restore))
        form.addRow("", ThemedLabel(self._theme, "A chat with options of its own keeps them.", "muted", -1))
        return page

    def _build_model(self) -> QWidget:
        page, form = _page()
        self.model = ElidedLabel(self._theme, mode=Qt.TextElideMode.ElideMiddle)
        choose = QPushButton("Choose…")
        choose.clicked.connect(self.choose_model_requested)
        self.use_default = QPushButton("Use the default model")
        self.use_default.clicked.connect(lambda: self._slot.load(None))
        self.dtype = QComboBox()
        for dtype in Dtype:
            self.dtype.addItem(formatting.DTYPE_WORDS[dtype], dtype)
        self.dtype.currentIndexChanged.connect(lambda: self._slot.load_precision(Dtype(self.dtype.currentData())))
        self.models_folder = ElidedLabel(self._theme, mode=Qt.TextElideMode.ElideMiddle)
        choose_folder = QPushButton("Choose…")
        choose_folder.clicked.connect(self.choose_models_folder_requested)
        _add(form, "Model", self.model, "The model that is loaded when rdchat starts.")
        form.addRow("", _left(choose, self.use_default))
        _add(form, "Precision", self.dtype, "Fewer bits take less memory; Automatic suits this machine.")
        form.addRow("", ThemedLabel(self._theme, "Choosing a model or a precision loads it at once.", "muted", -1))
        folder_words = "Where Open model folder… begins. The Models window lists what is in it."
        _add(form, "Models folder", self.models_folder, folder_words)
        form.addRow("", _left(choose_folder))
        return page

    def _build_downloads(self) -> QWidget:
        page, form = _page()
        self.downloads_at_once = QSpinBox(minimum=1, maximum=MOST_DOWNLOADS)
        self.downloads_at_once.valueChanged.connect(lambda number: self._change(downloads_at_once=number))
        self.token = QPushButton("Hugging Face token…")
        self.token.clicked.connect(self.token_requested)
        row = QHBoxLayout()
        row.addWidget(self.downloads_at_once)
        row.addStretch(1)
        self.downloads_at_once.setAccessibleName("Models at once")
        set_tip(self.downloads_at_once, "How many models are downloaded at the same time; the others wait.")
        form.addRow("Models at once", row)
        form.addRow("Access", _left(self.token))
        form.addRow("", ThemedLabel(self._theme, "Gated and private models need a token; most need none.", "muted", -1))
        return page

    def _build_files(self) -> QWidget:
        page, form = _page()
        for name, path, what in (
            ("Conversations", paths.data_dir(), "Conversations and these preferences."),
            ("Log", paths.log_path(), "What to look at, or send along, when something went wrong."),
            ("Models", paths.models_dir(), "Models that rdchat fetched or converted; they can be made again."),
        ):
            label = ElidedLabel(self._theme, str(path), mode=Qt.TextElideMode.ElideMiddle)
            button = QPushButton(SHOW_FOLDER)
            button.setAutoDefault(False)
            button.setAccessibleName(f"{SHOW_FOLDER}: {name}")
            button.clicked.connect(lambda _checked=False, path=path: show_folder(path))
            row = QHBoxLayout()
            row.addWidget(label, 1)
            row.addWidget(button)
            part = QVBoxLayout()
            part.setContentsMargins(0, 0, 0, SMALL)
            part.setSpacing(TIGHT)
            part.addLayout(row)
            part.addWidget(ThemedLabel(self._theme, what, "muted", -1))
            form.addRow(name, part)
        return page

    def _change(self, **values: object) -> None:
        self._preferences.change(replace(self._preferences.settings, **values))  # type: ignore[arg-type]

    def _restore_sampling(self) -> None:
        self.form.set_sampling(SamplingParams())
        self._change(sampling=SamplingParams())

    def _save_text(self) -> None:
        words = self.seed.text().strip()
        valid = not words or (words.isascii() and words.isdigit() and int(words) < 2**64)
        self.seed_problem.setText("" if valid else "A seed is a whole number from 0 to 2^64 - 1, or nothing.")
        self.seed_problem.setVisible(not valid)
        seed = self._preferences.settings.seed if not valid else int(words) if words else None
        self._change(system_prompt=self.prompt.toPlainText(), seed=seed)

    def done(self, result: int) -> None:
        if self._typing.isActive():
            self._typing.stop()
            self._save_text()
        super().done(result)


def _page() -> tuple[QWidget, QFormLayout]:
    page = QWidget()
    page.setMinimumWidth(500)
    form = QFormLayout(page)
    form.setContentsMargins(LARGE, LARGE, LARGE, LARGE)
    form.setHorizontalSpacing(MEDIUM)
    form.setVerticalSpacing(SMALL)
    form.setLabelAlignment(Qt.AlignmentFlag.AlignRight)
    form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
    return page, form


def _add(form: QFormLayout, name: str, field: QWidget, explanation: str) -> None:
    if not isinstance(field, QLabel):  # a label's name is its text
        field.setAccessibleName(name)
    set_tip(field, explanation)
    form.addRow(name, field)


def _left(*buttons: QPushButton) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setSpacing(SMALL)
    for button in buttons:
        button.setAutoDefault(False)
        row.addWidget(button)
    row.addStretch(1)
    return row
