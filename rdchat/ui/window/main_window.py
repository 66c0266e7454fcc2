"""The window: sidebar, conversation and speed panel side by side, the toolbar and the menus around them."""

from base64 import b64decode, b64encode
from dataclasses import replace

from PySide6.QtCore import QByteArray, Qt
from PySide6.QtGui import QCloseEvent, QResizeEvent
from PySide6.QtWidgets import QApplication, QMainWindow, QSplitter, QWidget

from rdchat import paths
from rdchat.chat.settings import Appearance, Settings
from rdchat.inference.api.requests import Role
from rdchat.services.chat.chat_controller import ChatController
from rdchat.services.engine.engine_events import EngineState
from rdchat.services.models.sources import ModelSources
from rdchat.ui.conversation.conversation_view import ConversationView
from rdchat.ui.conversation.regenerate_sheet import RegenerateSheet
from rdchat.ui.look.focus import show_in_front
from rdchat.ui.look.icons import app_icon
from rdchat.ui.look.opening import show_folder
from rdchat.ui.look.theme import DEFAULT_TEXT, LARGEST_TEXT, PANEL_WIDTH, SIDEBAR_WIDTH, SMALLEST_TEXT, Theme
from rdchat.ui.settings.chat_options import ChatOptions
from rdchat.ui.settings.preferences import Preferences
from rdchat.ui.sidebar import Sidebar
from rdchat.ui.speed.speed_panel import SpeedPanel
from rdchat.ui.transcript import TranscriptView
from rdchat.ui.window.about import about_box
from rdchat.ui.window.chat_commands import ChatCommands
from rdchat.ui.window.draft_menu import DraftMenu
from rdchat.ui.window.header import Header, ModelButton
from rdchat.ui.window.menus import WindowActions, fill_menu_bar
from rdchat.ui.window.model_folders import ModelFolders
from rdchat.ui.window.side_windows import Windows
from rdchat.ui.window.unsaved_question import UnsavedQuestion

_SCHEMES = {
    Appearance.SYSTEM: Qt.ColorScheme.Unknown,
    Appearance.LIGHT: Qt.ColorScheme.Light,
    Appearance.DARK: Qt.ColorScheme.Dark,
}
_ANSWER_MS = 10_000  # a system that shuts down kills what has not ended after some 20 seconds
_ROOM_FOR_SIDEBAR, _ROOM_FOR_PANEL = 640, 900  # narrower windows fold them away


class MainWindow(QMainWindow):
    """Builds the parts and connects them to the controller, which alone decides what happens."""

    def __init__(
        self, controller: ChatController, theme: Theme, transcript: TranscriptView, sources: ModelSources | None = None
    ) -> None:
        super().__init__()
        self._controller, self._theme = controller, theme
        self._asked_for: set[QWidget] = set()  # sides opened by hand although the window is too narrow for them
        self._preferences: Preferences | None = None
        self.windows = Windows(controller, theme, self, sources or ModelSources())
        self._folders = ModelFolders(controller.preferences, controller.model_slot, self)
        self._unsaved = UnsavedQuestion(controller.unsaved, self)
        self.setObjectName("main")
        self.setWindowIcon(app_icon())
        self.setUnifiedTitleAndToolBarOnMac(True)
        self.setMinimumSize(480, 400)
        actions = self.actions_ = WindowActions(self)
        self.sidebar = Sidebar(controller.chats, theme)
        self.conversation = ConversationView(controller, theme, transcript)
        self.panel = SpeedPanel(
            controller,
            context=controller.context,
            drafting=controller.drafting,
            preferences=controller.preferences,
            theme=theme,
        )
        controller.chat.opened.connect(self.panel.show_last_reply)
        model = ModelButton(controller.model_slot, controller.preferences)
        options = ChatOptions(controller.chats, controller.preferences, controller.model_slot, theme)
        self.header = Header(model, options, theme, actions)
        self.addToolBar(self.header)
        self._splitter = self._build_splitter()
        self.setCentralWidget(self._splitter)
        fill_menu_bar(self.menuBar(), actions)
        DraftMenu(controller.drafting, actions.draft_modes, self._show_drafting, self)
        self._connect_actions()
        self._connect_controller()
        ChatCommands(controller, actions, self.sidebar, self.conversation, self._show_sidebar)
        self._restore(controller.preferences.settings)
        self._apply_settings(controller.preferences.settings)
        self._show_title()
        self._show_state()
        self.conversation.composer.setFocus()

    @property
    def preferences(self) -> Preferences:
        """The preferences window, built when first asked for."""
        if self._preferences is None:
            controller = self._controller
            self._preferences = Preferences(controller.preferences, controller.model_slot, self._theme, self)
            self._preferences.choose_model_requested.connect(self._folders.choose_model)
            self._preferences.choose_models_folder_requested.connect(self._folders.choose_beginning)
            self._preferences.token_requested.connect(lambda: self.windows.ask_for_token(self.preferences))
        return self._preferences

    def bring_to_front(self) -> None:
        """Show the window over others, as a second start of the app asks for."""
        show_in_front(self)

    def close_soon(self) -> None:
        """Close as a signal of the system asks for, also where nobody is there to answer a question."""
        self._unsaved.answer_within(_ANSWER_MS)
        self.close()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fold()

    def closeEvent(self, event: QCloseEvent) -> None:
        if event.spontaneous() and not self.windows.may_quit():  # the window's own button
            event.ignore()
            return
        if not self._unsaved.may_close():
            event.ignore()
            return
        state, geometry = self._splitter.saveState(), self.saveGeometry()
        self._change(window_state=_encode(state), window_geometry=_encode(geometry))
        self.hide()  # ending the engine thread may take as long as one chunk of a prompt
        self.windows.close()
        self._controller.close()
        event.accept()

    def _build_splitter(self) -> QSplitter:
        splitter = QSplitter(Qt.Orientation.Horizontal)
        splitter.setHandleWidth(1)
        splitter.setChildrenCollapsible(False)
        for part in (self.sidebar, self.conversation, self.panel):
            splitter.addWidget(part)
        splitter.setStretchFactor(1, 1)
        splitter.setSizes([SIDEBAR_WIDTH, 10_000, PANEL_WIDTH])
        return splitter

    def _connect_actions(self) -> None:
        actions, controller = self.actions_, self._controller
        composer = self.conversation.composer
        actions.new_chat.triggered.connect(self._new_chat)
        actions.open_folder.triggered.connect(self._folders.choose_model)
        actions.models.triggered.connect(lambda: show_in_front(self.windows.models))
        self.header.model.models_requested.connect(actions.models.trigger)
        actions.close_window.triggered.connect(self._close_front)
        actions.quit.triggered.connect(self._quit)
        actions.preferences.triggered.connect(lambda: show_in_front(self.preferences))
        actions.stop.triggered.connect(controller.stop)
        actions.copy_reply.triggered.connect(self.conversation.transcript.copy_last_reply)
        actions.regenerate.triggered.connect(self._regenerate)
        actions.quote.triggered.connect(self.conversation.quote_selection)
        actions.restore_message.triggered.connect(controller.editor.restore_deleted)
        actions.regenerate_with.triggered.connect(lambda: self._regenerate_with(controller.chat.path[-1].id))
        self.conversation.transcript.regenerate_with_requested.connect(self._regenerate_with)
        actions.options.triggered.connect(self.header.options.trigger)
        actions.write.triggered.connect(composer.setFocus)
        actions.sidebar.triggered.connect(lambda shown: self._toggle(self.sidebar, shown))
        actions.panel.triggered.connect(lambda shown: self._toggle(self.panel, shown))
        actions.draft_settings.triggered.connect(self._show_drafting)
        actions.ledger.triggered.connect(lambda: show_in_front(self.windows.ledger))
        self.panel.ledger_requested.connect(actions.ledger.trigger)
        actions.tokens.triggered.connect(lambda: self.windows.show_tokens(controller.chat.path[-1].id))
        self.conversation.transcript.tokens_requested.connect(self.windows.show_tokens)
        self.conversation.transcript.compare_requested.connect(self.windows.compare)
        actions.race.triggered.connect(lambda: self.windows.open_race(composer.text))
        actions.benchmark.triggered.connect(lambda: show_in_front(self.windows.benchmark))
        actions.larger.triggered.connect(lambda: self._set_text_size(controller.preferences.settings.text_size + 1))
        actions.smaller.triggered.connect(lambda: self._set_text_size(controller.preferences.settings.text_size - 1))
        actions.usual.triggered.connect(lambda: self._set_text_size(DEFAULT_TEXT))
        actions.full_screen.triggered.connect(
            lambda: self.showNormal() if self.isFullScreen() else self.showFullScreen()
        )
        actions.minimize.triggered.connect(self.showMinimized)
        actions.about.triggered.connect(lambda: about_box(self).open())
        actions.show_log.triggered.connect(lambda: show_folder(paths.log_path()))

    def _connect_controller(self) -> None:
        controller, actions = self._controller, self.actions_
        controller.preferences.changed.connect(self._apply_settings)
        controller.chat.opened.connect(self._show_title)
        controller.chats.conversations_changed.connect(self._show_title)
        controller.replies.state_changed.connect(self._show_state)
        controller.chat.message_added.connect(self._show_state)
        controller.chat.message_changed.connect(self._show_state)
        for changed in (controller.chat.path_changed, controller.chat.opened):
            changed.connect(self._show_state)
            changed.connect(lambda: self.actions_.restore_message.setEnabled(controller.editor.has_deleted))
        self.conversation.choose_model_requested.connect(self._folders.choose_model)
        self.conversation.larger_model_requested.connect(self.windows.open_discover)
        self.header.model.folder_requested.connect(self._folders.choose_model)
        self.sidebar.list.write_requested.connect(self.conversation.composer.setFocus)
        self.windows.drops.refused.connect(self.conversation.notices.show_refused_model)
        self.windows.drops.files_dropped.connect(self.conversation.files.add)
        self.windows.drops.show_on(chat=self.conversation, model=self._splitter)
        actions.attach.triggered.connect(self.conversation.files.choose)
        app = QApplication.instance()
        assert isinstance(app, QApplication), "a widget was built before it"
        app.applicationStateChanged.connect(self._on_application_state)

    def _on_application_state(self, state: Qt.ApplicationState) -> None:
        """Look what is to be had where the person comes back: perhaps from training a drafter in a terminal."""
        if state is Qt.ApplicationState.ApplicationActive:
            self._controller.drafting.refresh_options()

    def _restore(self, settings: Settings) -> None:
        if not self.restoreGeometry(_decode(settings.window_geometry)):
            room = self.screen().availableSize()
            self.resize(min(1180, room.width() - 80), min(780, room.height() - 80))
        self._splitter.restoreState(_decode(settings.window_state))

    def _apply_settings(self, settings: Settings) -> None:
        self._theme.set_scheme(_SCHEMES[settings.appearance])
        self._theme.set_text_size(settings.text_size)
        self._fold()

    def _fold(self) -> None:
        """Show the sides that the person wants and the window has room for."""
        settings = self._controller.preferences.settings
        sides = (
            (self.sidebar, settings.sidebar_visible, _ROOM_FOR_SIDEBAR, self.actions_.sidebar),
            (self.panel, settings.panel_visible, _ROOM_FOR_PANEL, self.actions_.panel),
        )
        self._asked_for = {side for side, _, room, _ in sides if side in self._asked_for and self.width() < room}
        for side, wanted, room, action in sides:
            shown = side in self._asked_for or (wanted and self.width() >= room and not self._asked_for - {side})
            if not shown and side.isAncestorOf(self.focusWidget()):
                self.conversation.composer.setFocus()
            side.setVisible(shown)
            action.setChecked(shown)

    def _toggle(self, side: QWidget, shown: bool) -> None:
        if self.width() < (_ROOM_FOR_SIDEBAR if side is self.sidebar else _ROOM_FOR_PANEL):
            self._asked_for = {side} if shown else set()  # a narrow window has room for one side
            self._fold()
        elif side is self.sidebar:
            self._change(sidebar_visible=shown)
        else:
            self._change(panel_visible=shown)

    def _show_title(self) -> None:
        conversation = self._controller.chat.conversation
        self.setWindowTitle(conversation.title if conversation else "New chat")

    def _show_state(self) -> None:
        controller, actions = self._controller, self.actions_
        busy = controller.chat.streaming_id is not None or controller.replies.state in (
            EngineState.PREFILL,
            EngineState.WRITING,
        )
        replied = bool(controller.chat.path) and controller.chat.path[-1].role is Role.ASSISTANT
        actions.stop.setEnabled(busy)
        actions.copy_reply.setEnabled(replied)
        actions.tokens.setEnabled(replied)
        actions.regenerate.setText("Regenerate last reply" if replied else "Get a reply")
        idle = bool(controller.chat.path) and not busy
        actions.regenerate.setEnabled(idle and controller.replies.state is EngineState.IDLE)
        actions.regenerate_with.setEnabled(
            idle and controller.replies.state in (EngineState.IDLE, EngineState.NO_MODEL)
        )

    def _new_chat(self) -> None:
        self._controller.chat.start_new()
        self.conversation.composer.setFocus()

    def _show_sidebar(self) -> None:
        if not self.sidebar.isVisible():
            self._toggle(self.sidebar, shown=True)

    def _regenerate(self) -> None:
        self._controller.regenerate(self._controller.chat.path[-1].id)

    def _regenerate_with(self, message_id: int) -> None:
        controller, model = self._controller, self.header.model
        own = controller.model_slot.info.name if controller.model_slot.info else ""
        if controller.borrowed.holds:
            own = controller.borrowed.own_name
        model.look()
        asked = controller.chat.options
        sheet = RegenerateSheet(own, model.choices, asked.system_prompt, asked.sampling, theme=self._theme, parent=self)
        sheet.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        model.choices_changed.connect(sheet.offer_found)
        sheet.wished.connect(lambda wish: controller.regenerate(message_id, wish))
        sheet.open()

    def _close_front(self) -> None:
        front = QApplication.activeWindow() or self  # a Mac has one menu bar for every window
        self._quit() if front is self else front.close()

    def _quit(self) -> None:
        if self.windows.may_quit():
            self.close()

    def _show_drafting(self) -> None:
        if not self.panel.isVisible():
            self._toggle(self.panel, shown=True)
        self.panel.show_drafting()

    def _set_text_size(self, points: int) -> None:
        self._change(text_size=min(max(points, SMALLEST_TEXT), LARGEST_TEXT))

    def _change(self, **values: object) -> None:
        self._controller.preferences.change(replace(self._controller.preferences.settings, **values))  # type: ignore[arg-type]


def _encode(blob: QByteArray) -> str:
    return b64encode(blob.data()).decode("ascii")


def _decode(text: str) -> QByteArray:
    try:
        return QByteArray(b64decode(text, validate=True))
    except ValueError:  # a settings file edited by hand: Qt refuses an empty blob, and the usual size applies
        return QByteArray()
