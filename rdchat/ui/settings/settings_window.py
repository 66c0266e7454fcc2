"""The settings window. Changes apply at once; there is nothing to confirm.

Pages with a module of their own are `ServerPage`, `NotesPage`, `PresetsPage` and `ToolsPage`; the window builds the
others here. Their fields are its attributes.
"""

from dataclasses import replace
from functools import partial

from PySide6.QtCore import QSignalBlocker
from PySide6.QtGui import QCloseEvent, QShowEvent
from PySide6.QtWidgets import QDoubleSpinBox, QKeySequenceEdit, QLineEdit, QScrollArea, QTabWidget, QWidget

from rdchat import host, paths
from rdchat.chat.settings import MAX_DOWNLOADS, MAX_STORED_GB, MAX_TEXT_SIZE, MIN_TEXT_SIZE, Appearance, Settings
from rdchat.hub.updates import updates_address
from rdchat.inference.api import ImageCap, SamplingParams
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.settings.options_form import OptionRow, OptionsForm
from rdchat.ui.settings.presets_page import PresetsPage
from rdchat.ui.settings.settings_pages import NotesPage, ServerPage, SettingsPage, combo_box
from rdchat.ui.settings.tools_page import ToolsPage
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SHOW_FOLDER,
    ElidedLabel,
    SideWindow,
    TabBar,
    Theme,
    ThemedLabel,
    column,
    formatting,
    push_button,
    row,
    scrolled,
    set_tip,
    show_folder,
    single_shot,
    small_text,
)
from rdchat.wording import counted, size_text

_MAX_CACHE_GB = 999.0
_SIZE = 680, 640
_SMALLEST = 680, 440
# Text is saved after a pause in typing, not after each letter.
_TYPING_MS = 400
_SEED = "The same prompt and seed give the same reply, on a GPU up to rounding. Leave it empty for varied replies."
_WRONG_SEED = "A seed is a whole number from 0 to 2^64 - 1. It can be empty."
_TITLES = "Models of a billion parameters or more write titles. Titles that you wrote stay."
_EARLIER = "Local models write text that repeats from earlier replies faster. No reply is changed or sent for that."
_FORGET = "Forget the text that drafts are copied from. Your chats and their replies stay."
_MEMORY = "While a chat is in memory, here or for other programs, the model need not read it again."
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
PLACES = {
    "General": "appearance dark light text size updates menu bar tray quick window shortcut",
    "Downloads and Files": "hugging face token at once log data folders",
    "Chats": "new chats instructions system prompt temperature titles",
    "Sampling": "seed tokens top-p top-k min-p penalty stop long context summary",
    "Presets and Prompts": "saved import export",
    "Notes": "memory remember projects proposals",
    "Models": "precision images tokens vision unload idle folder",
    "Memory and Disk": "caches earlier replies",
    "Tools": "mcp servers clock folder time",
    "Serve": "server api key openai anthropic",
    "Coding Agents": "serve claude code codex",
    "Server Options": "serve port network host names start",
}
"""The pages and their folded parts in their order, with further words by which each is found."""


class SettingsWindow(SideWindow):
    """A window with pages as tabs.

    `MainWindow` connects the buttons that open something else: `choose_models_folder` and `token`.
    """

    def __init__(self, controller: ChatController, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("Settings", _SIZE, _SMALLEST, parent)
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
        self.presets = PresetsPage(theme, controller)
        self._pages = {
            "General": self._build_general(),
            "Chats": self._build_chats(controller),
            "Models": self._build_models(),
            "Tools": ToolsPage(theme, self._settings.change_values, controller.servers),
            "Serve": self.server,
        }
        for name, page in self._pages.items():
            content = QWidget()
            column(page, None, within=content, margins=LARGE)
            self.tabs.addTab(scrolled(content), name)
        column(self.tabs, within=self, margins=MEDIUM)
        self._settings.changed.connect(self.show_settings)
        for changed in (self._slot.loaded, self._slot.load_started, self._slot.unload_started):
            changed.connect(lambda: self.show_settings(self._settings.values))
        for kept in (self._reply_index, self._memory_caches, self._disk_caches):
            kept.changed.connect(self._show_sizes)
        self._show_sizes()
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
        prompt = self.form.prompt.toPlainText()
        if not self._typing.isActive():
            prompt = settings.system_prompt
            if self.seed_problem.isHidden():
                self.seed.setText("" if settings.seed is None else str(settings.seed))
        self.form.show_options(prompt, settings.sampling_for(self._slot.sampling), settings.long_chats)
        self.form.show_sources(self._slot.sampling, settings.chosen_sampling)
        with QSignalBlocker(self.keys):
            self.keys.setKeySequence(settings.quick_shortcut)
        self.keys_problem.show_text(self._hot_key.problem)
        self.stays.setEnabled(host.MACOS or settings.menu_bar_item)
        self.models_folder.setText(settings.models_folder or "None")

    def show_page(self, name: str) -> None:
        """Go to a page by its name, or to a folded part of one, which is unfolded."""
        for index, (title, page) in enumerate(self._pages.items()):
            if name in {title, *page.folds}:
                self.tabs.setCurrentIndex(index)
            if head := page.folds.get(name):
                head.setChecked(True)
                head.setFocus()
                # Only the area that has the heading scrolls to it.
                for area in self.findChildren(QScrollArea):
                    area.ensureWidgetVisible(head)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._memory_caches.ask_for_caches()
        self._disk_caches.tidy()

    def _page(self) -> SettingsPage:
        return SettingsPage(self._theme, self._settings.change_values)

    def _build_general(self) -> SettingsPage:
        page = self._page()
        self.appearance = page.add_choice("Appearance", "appearance", _APPEARANCES, "Light, dark, or as in the system.")
        sizes = MIN_TEXT_SIZE, MAX_TEXT_SIZE
        tip = "Size of all text; that of controls grows to 18 pt."
        self.text_size = page.add_number("Text size", "text_size", sizes, tip, suffix=" pt")
        tip = "The model and its speed, the quick window, the server and your last chats."
        self.menu_bar = page.add_check_box("Window", f"Show rdchat in the {_BAR}", "menu_bar_item", tip)
        self.stays = page.add_check_box("", "Keep running when the window is closed", "stays_open", _STAYING)
        self.keys = QKeySequenceEdit(maximumSequenceLength=1, clearButtonEnabled=True)
        self.keys.keySequenceChanged.connect(lambda keys: self._settings.change_values(quick_shortcut=keys.toString()))
        if self._hot_key.available:
            page.add_field("Quick window", self.keys, _SHORTCUT)
        else:
            page.add_line(ElidedLabel(self._theme, _DESKTOP, middle=True), name="Quick window")
        self.keys_problem = page.add_note(color="danger")
        if address := updates_address():
            self.updates = page.add_check_box(
                "Updates",
                "Look for new versions once a day",
                "looks_for_updates",
                f"Asks {address}. Nothing is installed.",
            )
        page.add_fold("Downloads and Files", self._build_files())
        return page

    def _build_chats(self, controller: ChatController) -> SettingsPage:
        page = self._page()
        self.seed = QLineEdit(placeholderText="Random")
        self.seed.setAccessibleName("Seed")
        set_tip(self.seed, _SEED)
        self.seed.textEdited.connect(self._typing.start)
        self.seed_problem = small_text(self._theme, "", "danger")
        self.seed_problem.hide()
        restore = lambda: self._settings.change_values(sampling=SamplingParams(), sampling_chosen=())  # noqa: E731
        self.use_sampling = push_button("Use the Model's Sampling", act=restore)
        last = OptionRow(self._theme, "Seed", self.seed), self.seed_problem, row(self.use_sampling, None)
        self.form = OptionsForm(self._theme, last=last)
        self.form.prompt.textChanged.connect(self._typing.start)
        self.form.edited.connect(self._choose_options)
        page.add_line(self.form, name="New chats")
        page.folds["Sampling"] = self.form.more
        page.add_note("This does not change chats that have their own options.")
        page.add_check_box("Titles", "Let larger models write the titles of new chats", "titles_by_model", _TITLES)
        page.add_fold("Presets and Prompts", self.presets)
        page.add_fold("Notes", NotesPage(self._theme, controller))
        return page

    def _choose_options(self) -> None:
        settings = self._settings.values.choosing(self.form.sampling(), self._slot.sampling)
        self._settings.change(replace(settings, long_chats=self.form.options()["long_chats"]))

    def _build_models(self) -> SettingsPage:
        page = self._page()
        self.choose_models_folder = push_button("Choose…")
        # `retry` loads the chosen model again, in the precision that is picked.
        self.dtype = combo_box(formatting.DTYPE_TEXT, self._slot.retry)
        self.models_folder = ElidedLabel(self._theme, middle=True)
        page.add_field("Precision", self.dtype, f"Fewer bits need less memory. Automatic suits {formatting.MACHINE}.")
        page.add_note("Changes here load the model again.")
        self.image_cap = page.add_choice("Images", "image_cap", _IMAGE_CAPS, _IMAGE_COST)
        page.add_choice("Unload when idle", "unload_after_minutes", _UNLOADED_AFTER, _UNLOADING)
        page.add_note(_AUTOMATIC)
        folder = row((self.models_folder, 1), self.choose_models_folder)
        page.add_field("Models folder", self.models_folder, _MODELS_FOLDER, folder)
        page.add_fold("Memory and Disk", self._build_memory())
        return page

    def _build_memory(self) -> SettingsPage:
        page = self._page()
        self.cache_limit = QDoubleSpinBox(decimals=1, maximum=_MAX_CACHE_GB, singleStep=0.5, suffix=" GB")
        self.cache_limit.setKeyboardTracking(False)
        self.cache_limit.valueChanged.connect(
            lambda size: self._settings.change_values(prefix_cache_bytes=round(size * 1e9))
        )
        self.cache_size = ThemedLabel(self._theme, "", "muted", -1)
        page.add_field("Memory for chats", self.cache_limit, _MEMORY, row(self.cache_limit, self.cache_size, None))
        self.keep_caches = page.add_check_box("Disk for chats", "Keep caches on disk", "keep_caches", _KEPT)
        self.disk_cache_size = ThemedLabel(self._theme, "", "muted", -1)
        self.clear_disk_caches = push_button("Clear Caches", _CLEAR_KEPT, self._disk_caches.remove_all)
        extras = self.disk_cache_size, None, self.clear_disk_caches
        self.disk_cache_limit = page.add_number(
            "At most", "kept_caches_gb", (1, MAX_STORED_GB), _KEPT_LIMIT, *extras, suffix=" GB"
        )
        self.earlier = page.add_check_box("Speed", "Use earlier replies to draft", "earlier_replies", _EARLIER)
        self.clear_earlier = push_button("Forget What Was Learnt", _FORGET, self._reply_index.forget_replies)
        self.earlier_size = ThemedLabel(self._theme, "", "muted", -1)
        page.add_line(self.clear_earlier, self.earlier_size, None)
        return page

    def _show_sizes(self) -> None:
        """Show what is kept of chats on disk and in memory, and the limit of memory once the engine told it."""
        replies_bytes = self._reply_index.bytes
        self.clear_earlier.setEnabled(replies_bytes > 0)
        self.earlier_size.show_text(f"{size_text(replies_bytes)} on disk" if replies_bytes else "Nothing is kept.")
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

    def _build_files(self) -> SettingsPage:
        page = self._page()
        self.downloads_at_once = page.add_number(
            "Downloads at once", "downloads_at_once", (1, MAX_DOWNLOADS), "How many models at the same time.", None
        )
        self.token = push_button("Hugging Face Token…", "Only gated and private models need a token.")
        page.add_line(self.token, None, name="Access")
        for name, find, note in _FILES:
            path = find()
            label = ElidedLabel(self._theme, str(path), middle=True)
            button = push_button(SHOW_FOLDER, act=partial(show_folder, path))
            button.setAccessibleName(f"{SHOW_FOLDER}: {name}")
            page.add_field(name, label, note, row((label, 1), button))
        return page

    def _save_text(self) -> None:
        """Save the typed system prompt and seed; a wrong seed is explained and not saved."""
        text = self.seed.text().strip()
        valid = not text or (text.isascii() and text.isdigit() and int(text) < 2**64)
        self.seed_problem.show_text("" if valid else _WRONG_SEED)
        seed = self._settings.values.seed
        if valid:
            seed = int(text) if text else None
        self._settings.change_values(system_prompt=self.form.prompt.toPlainText(), seed=seed)

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._typing.isActive():
            self._typing.stop()
            self._save_text()
        self.presets.save_text()
        super().closeEvent(event)
