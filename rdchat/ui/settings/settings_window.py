"""The settings window. Changes apply at once; there is nothing to confirm.

Pages with a module of their own are `ServerPage`, `NotesPage`, `PresetsPage` and `ToolsPage`; the window builds the
others here. Their fields are its attributes.
"""

from functools import partial

from PySide6.QtCore import QEvent, QObject, QSignalBlocker
from PySide6.QtGui import QCloseEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QDoubleSpinBox, QKeySequenceEdit, QLineEdit, QTabWidget, QVBoxLayout, QWidget

from rdchat import host, paths
from rdchat.chat.settings import MAX_DOWNLOADS, MAX_STORED_GB, MAX_TEXT_SIZE, MIN_TEXT_SIZE, Appearance, Settings
from rdchat.hub.updates import updates_address
from rdchat.inference.api import ImageCap, SamplingParams
from rdchat.services.chat_controller import ChatController
from rdchat.ui.settings.chat_options import LONG_CHATS, LONG_CHATS_TIP, SamplingForm
from rdchat.ui.settings.presets_page import PresetsPage
from rdchat.ui.settings.settings_pages import NotesPage, ServerPage, SettingsPage, combo_box
from rdchat.ui.settings.tools_page import ToolsPage
from rdchat.ui.style import (
    MEDIUM,
    SHOW_FOLDER,
    ElidedLabel,
    SideWindow,
    TabBar,
    Theme,
    ThemedLabel,
    formatting,
    push_button,
    replace_text,
    row,
    show_folder,
    single_shot,
    text_field,
)
from rdchat.wording import counted, size_text

_MAX_CACHE_GB = 999.0
# Text is saved after a pause in typing, not after each letter.
_TYPING_MS = 400
_SEED = "The same prompt and seed give the same reply, on a GPU up to rounding. Leave it empty for varied replies."
_WRONG_SEED = "A seed is a whole number from 0 to 2^64 - 1. It can be empty."
_TITLES = "Models of a billion parameters or more write titles. Titles that you wrote stay."
_EARLIER = "Local models write text that repeats from earlier replies faster. No reply is changed or sent for that."
_FORGET = "Forget the text that drafts are copied from. Your chats and their replies stay."
_MEMORY = "Memory for chats that the model has read, in this window and for other programs."
_UNLOADING = "Gives the memory back of a model that nobody uses. It loads again when you type."
_AUTOMATIC = "Automatically: after 15 minutes on battery, or while memory is short."
_UNLOADED_AFTER = {None: "Automatically", 5: "5 minutes", 15: "15 minutes", 60: "1 hour", 0: "Never"}
_KEPT = "After a restart, the model need not read a long chat again. The caches are as private as your chats."
_IMAGE_CAPS = {
    ImageCap.SMALL: "Small: about 256 tokens each",
    ImageCap.MEDIUM: "Usual: about 1,024 tokens each",
    ImageCap.FULL: "Full: as many as the model takes",
}
_IMAGE_COST = "With more tokens a model sees smaller text, reads longer, and has less room for the chat."
_KEPT_LIMIT = "The caches used least recently are removed first. They take at most a tenth of the free space."
_CLEAR_KEPT = "Remove the caches on disk. Your chats stay; long ones are read again."
_MODELS_FOLDER = "A folder of your own: the Models window lists its models, and Open Model Folder begins there."
_BAR = "menu bar" if host.MACOS else "system tray"
_STAYING = "Replies and the server go on." if host.MACOS else f"Replies and the server go on. It needs the {_BAR}."
_SHORTCUT = "A shortcut that opens it over other programs. Its keys are those of a US keyboard."
_DESKTOP = f"A shortcut of your desktop can call {host.own_command()} --quick."
_APPEARANCES = {Appearance.SYSTEM: "System", Appearance.LIGHT: "Light", Appearance.DARK: "Dark"}
_FILES = (
    ("Chats", paths.data_dir, "Your chats and these settings."),
    ("Log", paths.log_path, "Attach it when you report a problem."),
    ("Converted models", paths.models_dir, "rdchat makes these again when they are missing."),
)
PAGES = {
    "General": "appearance dark light text size titles updates menu bar tray quick window shortcut earlier replies",
    "New Chats": "system prompt seed sampling temperature tokens stop long context summary",
    "Presets": "saved prompts import export",
    "Notes": "memory remember projects proposals",
    "Model": "precision images tokens vision memory caches disk unload idle folder",
    "Tools": "mcp servers clock folder time",
    "Serve": "server api port key network openai anthropic",
    "Downloads": "hugging face token",
    "Files": "log data folders",
}
"""The pages in their order, with further words by which each is found."""


class SettingsWindow(SideWindow):
    """A window with pages as tabs, as high as the page that is shown.

    `MainWindow` connects the buttons that open something else: `choose_model`, `choose_models_folder` and `token`.
    """

    def __init__(self, controller: ChatController, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("Settings", (0, 0), (0, 0), parent)
        self._settings = controller.settings
        self._slot = controller.model_slot
        self._theme = theme
        self._hot_key = controller.hot_key
        self._reply_index = controller.earlier
        self._memory_caches = controller.memory_caches
        self._disk_caches = controller.disk_caches
        self._typing = single_shot(self, _TYPING_MS, self._save_text)
        self.tabs = QTabWidget()
        self.tabs.setTabBar(TabBar())
        self.server = ServerPage(controller.server, theme, self._settings.change_values)
        self.presets = PresetsPage(theme, self._settings, self._slot)
        pages = (
            self._build_general(),
            self._build_chat(),
            self.presets,
            NotesPage(theme, controller),
            self._build_model(),
            ToolsPage(theme, self._settings.change_values, controller.servers),
            self.server,
            self._build_downloads(),
            self._build_files(),
        )
        self._pages: dict[str, SettingsPage] = dict(zip(PAGES, pages, strict=True))
        for name, page in self._pages.items():
            self.tabs.addTab(page, name)
            page.installEventFilter(self)
        self.tabs.currentChanged.connect(self._fit_page)
        layout = QVBoxLayout(self)
        # The window has the size of the tabs, whose height `_fit_page` sets.
        layout.setSizeConstraint(QVBoxLayout.SizeConstraint.SetFixedSize)
        layout.addWidget(self.tabs)
        self._fit_page()
        self._settings.changed.connect(self.show_settings)
        for changed in (self._slot.loaded, self._slot.load_started, self._slot.unload_started):
            changed.connect(lambda: self.show_settings(self._settings.values))
        self._reply_index.changed.connect(self._show_earlier)
        self._memory_caches.changed.connect(self._show_cache_size)
        self._disk_caches.changed.connect(self._show_cache_size)
        self._show_earlier()
        self._show_cache_size()
        self.show_settings(self._settings.values)

    def show_settings(self, settings: Settings) -> None:
        """Show the settings and the loaded model.

        The system prompt and the seed keep their text while one of them is typed and not saved yet; a wrong seed stays
        beside its explanation until it is mended.
        """
        for page in self._pages.values():
            page.show_settings(settings)
        with QSignalBlocker(self.dtype):
            self.dtype.setCurrentIndex(self.dtype.findData(self._slot.dtype))
        self.server.show_model(self._slot.info)
        self.disk_cache_limit.setEnabled(settings.keep_caches)
        if not self._typing.isActive():
            replace_text(self.prompt, settings.system_prompt)
            if not self.seed_problem.isVisibleTo(self):
                self.seed.setText("" if settings.seed is None else str(settings.seed))
        self.form.set_sampling(settings.sampling_for(self._slot.sampling))
        self.form.show_sources(self._slot.sampling, settings.chosen_sampling)
        with QSignalBlocker(self.keys):
            self.keys.setKeySequence(settings.quick_shortcut)
        self.keys_problem.show_text(self._hot_key.problem)
        self.stays.setEnabled(host.MACOS or settings.menu_bar_item)
        self.model.setText(formatting.DEFAULT_MODEL if settings.model is None else settings.model)
        self.use_default.setEnabled(settings.model is not None)
        self.models_folder.setText(settings.models_folder or "None")

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        # A page gets another height when the text of a problem appears or disappears.
        if event.type() is QEvent.Type.LayoutRequest:
            self._fit_page()
        return super().eventFilter(watched, event)

    def show_page(self, name: str) -> None:
        """Go to a page by its name."""
        self.tabs.setCurrentWidget(self._pages[name])

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._memory_caches.ask_for_caches()
        self._disk_caches.tidy()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        # A page may be too high for the room below the window's top.
        hidden = self.frameGeometry().bottom() - self.screen().availableGeometry().bottom()
        if hidden > 0:
            self.move(self.x(), max(self.y() - hidden, 0))

    def _fit_page(self) -> None:
        page = self._pages[self.tabs.tabText(self.tabs.currentIndex())]
        bar = self.tabs.tabBar().sizeHint().height()
        self.tabs.setFixedHeight(page.sizeHint().height() + bar + MEDIUM)

    def _page(self) -> SettingsPage:
        return SettingsPage(self._theme, self._settings.change_values)

    def _build_general(self) -> SettingsPage:
        page = self._page()
        tip = "Light, dark, or the same as the system."
        self.appearance = page.add_choice("Appearance", "appearance", _APPEARANCES, tip)
        sizes = MIN_TEXT_SIZE, MAX_TEXT_SIZE
        self.text_size = page.add_number("Text size", "text_size", sizes, "Size of all text.", suffix=" pt")
        page.add_check_box("Titles", "Let larger models write the titles of new chats", "titles_by_model", _TITLES)
        self.earlier = page.add_check_box("Speed", "Use earlier replies to draft", "earlier_replies", _EARLIER)
        self.clear_earlier = push_button("Forget What Was Learnt", _FORGET, self._reply_index.forget_replies)
        self.earlier_size = ThemedLabel(self._theme, "", "muted", -1)
        page.add_line(self.clear_earlier, self.earlier_size, None)
        tip = "The model and its speed, the quick window, the server and your last chats."
        self.menu_bar = page.add_check_box("Window", f"Show rdchat in the {_BAR}", "menu_bar_item", tip)
        self.stays = page.add_check_box("", "Keep running when the window is closed", "stays_open", _STAYING)
        self.keys = QKeySequenceEdit(maximumSequenceLength=1, clearButtonEnabled=True)
        self.keys.keySequenceChanged.connect(lambda keys: self._settings.change_values(quick_shortcut=keys.toString()))
        if self._hot_key.available:
            page.add_field("Quick window", self.keys, _SHORTCUT)
        else:
            page.add_line(ThemedLabel(self._theme, _DESKTOP), name="Quick window")
        self.keys_problem = page.add_note(color="danger")
        if address := updates_address():
            tip = f"Asks {address}. Nothing is installed."
            self.updates = page.add_check_box("Updates", "Look for new versions once a day", "looks_for_updates", tip)
        return page

    def _show_earlier(self) -> None:
        size = self._reply_index.bytes
        self.clear_earlier.setEnabled(size > 0)
        self.earlier_size.show_text(f"{size_text(size)} on disk" if size else "Nothing is kept.")

    def _build_chat(self) -> SettingsPage:
        page = self._page()
        self.prompt = text_field(4, "None: the model uses its own instructions.")
        self.prompt.textChanged.connect(self._typing.start)
        self.seed = QLineEdit(placeholderText="A new one for each reply")
        self.seed.textEdited.connect(self._typing.start)
        self.form = SamplingForm(self._theme)
        self.form.edited.connect(
            lambda sampling: self._settings.change(self._settings.values.choosing(sampling, self._slot.sampling))
        )
        page.add_field("System prompt", self.prompt, "Instructions that the model reads before each chat.")
        page.add_field("Seed", self.seed, _SEED)
        self.seed_problem = page.add_note(color="danger")
        page.add_choice("Long chats", "long_chats", LONG_CHATS, LONG_CHATS_TIP)
        page.add_line(self.form, name="Sampling")
        restore = lambda: self._settings.change_values(sampling=SamplingParams(), sampling_chosen=())  # noqa: E731
        self.use_sampling = push_button("Use the Model's Sampling", act=restore)
        page.add_line(self.use_sampling, None)
        page.add_note("This does not change chats that have their own options.")
        return page

    def _build_model(self) -> SettingsPage:
        page = self._page()
        self.model = ElidedLabel(self._theme, middle=True)
        self.choose_model = push_button("Choose…")
        self.choose_models_folder = push_button("Choose…")
        self.use_default = push_button("Use Default Model", act=lambda: self._slot.load_model(None))
        # `retry` loads the chosen model again, in the precision that is picked.
        self.dtype = combo_box(formatting.DTYPE_TEXT, self._slot.retry)
        self.models_folder = ElidedLabel(self._theme, middle=True)
        self.cache_limit = QDoubleSpinBox(decimals=1, maximum=_MAX_CACHE_GB, singleStep=0.5, suffix=" GB")
        self.cache_limit.setKeyboardTracking(False)
        self.cache_limit.valueChanged.connect(
            lambda size: self._settings.change_values(prefix_cache_bytes=round(size * 1e9))
        )
        self.cache_size = ThemedLabel(self._theme, "", "muted", -1)
        page.add_field("Model", self.model, "rdchat loads this model when it starts.")
        page.add_line(self.choose_model, self.use_default, None)
        page.add_field("Precision", self.dtype, f"Fewer bits need less memory. Automatic suits {formatting.MACHINE}.")
        page.add_note("Changes here load the model again.")
        page.add_field("Memory for chats", self.cache_limit, _MEMORY, row(self.cache_limit, self.cache_size, None))
        page.add_note("While a chat is in memory, the model need not read it again.")
        self.keep_caches = page.add_check_box("Disk for chats", "Keep caches on disk", "keep_caches", _KEPT)
        self.disk_cache_size = ThemedLabel(self._theme, "", "muted", -1)
        self.clear_disk_caches = push_button("Clear Caches", _CLEAR_KEPT, self._disk_caches.remove_all)
        extras = self.disk_cache_size, None, self.clear_disk_caches
        limits = 1, MAX_STORED_GB
        self.disk_cache_limit = page.add_number("", "kept_caches_gb", limits, _KEPT_LIMIT, *extras, suffix=" GB")
        self.disk_cache_limit.setKeyboardTracking(False)
        self.disk_cache_limit.setAccessibleName("Disk for chats")
        page.add_note(_KEPT)
        self.image_cap = page.add_choice("Images", "image_cap", _IMAGE_CAPS, _IMAGE_COST)
        page.add_note(_IMAGE_COST)
        page.add_choice("Unload when idle", "unload_after_minutes", _UNLOADED_AFTER, _UNLOADING)
        page.add_note(_AUTOMATIC)
        page.add_field("Models folder", self.models_folder, _MODELS_FOLDER)
        page.add_line(self.choose_models_folder, None)
        page.add_note(_MODELS_FOLDER)
        return page

    def _show_cache_size(self) -> None:
        """Show how much disk and memory the caches of chats take, and the limit of memory once the engine told it."""
        size_bytes = self._disk_caches.bytes
        self.disk_cache_size.show_text(f"{size_text(size_bytes)} now" if size_bytes else "None now")
        self.clear_disk_caches.setEnabled(size_bytes > 0)
        facts = self._memory_caches.facts
        self.cache_limit.setEnabled(facts is not None)
        if facts is not None:
            with QSignalBlocker(self.cache_limit):
                self.cache_limit.setValue(facts.limit_bytes / 1e9)
            size = f"{counted(facts.count, 'chat')}, {size_text(facts.held_bytes)} now"
            self.cache_size.show_text(size if facts.count else "None now")

    def _build_downloads(self) -> SettingsPage:
        page = self._page()
        tip = "How many models are downloaded at the same time."
        limits = 1, MAX_DOWNLOADS
        self.downloads_at_once = page.add_number("Downloads at once", "downloads_at_once", limits, tip, None)
        self.token = push_button("Hugging Face Token…")
        page.add_line(self.token, None, name="Access")
        page.add_note("Only gated and private models need a token.")
        return page

    def _build_files(self) -> SettingsPage:
        page = self._page()
        for name, find, note in _FILES:
            path = find()
            label = ElidedLabel(self._theme, str(path), middle=True)
            button = push_button(SHOW_FOLDER, act=partial(show_folder, path))
            button.setAccessibleName(f"{SHOW_FOLDER}: {name}")
            page.add_line((label, 1), button, name=name)
            page.add_note(note)
        return page

    def _save_text(self) -> None:
        """Save the typed system prompt and seed; a wrong seed is explained and not saved."""
        text = self.seed.text().strip()
        valid = not text or (text.isascii() and text.isdigit() and int(text) < 2**64)
        self.seed_problem.show_text("" if valid else _WRONG_SEED)
        seed = self._settings.values.seed
        if valid:
            seed = int(text) if text else None
        self._settings.change_values(system_prompt=self.prompt.toPlainText(), seed=seed)

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._typing.isActive():
            self._typing.stop()
            self._save_text()
        self.presets.save_text()
        super().closeEvent(event)
