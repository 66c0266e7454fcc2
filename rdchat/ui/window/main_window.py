"""The main window: sidebar, conversation and speed panel side by side, with the toolbar and the menus.

It builds these parts and connects their signals with each other and with the controller. Its own are the two sides that
fold, the order of Tab, and what happens when it closes.
"""

import logging
from functools import cached_property, partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QCloseEvent, QGuiApplication, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLineEdit,
    QMainWindow,
    QSlider,
    QWidget,
)

from rdchat import host
from rdchat.chat.conversation import Message
from rdchat.chat.settings import Appearance, Settings
from rdchat.inference.api import Role, Statistics
from rdchat.services.models.model_sources import ModelSources
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.conversation.conversation_view import ConversationView
from rdchat.ui.conversation.model_offers import ModelOffer
from rdchat.ui.settings.settings_window import SettingsWindow
from rdchat.ui.sidebar.sidebar import Sidebar
from rdchat.ui.speed.speed_panel import SpeedPanel
from rdchat.ui.style import (
    PANEL_WIDTH,
    SIDEBAR_WIDTH,
    FocusRings,
    SideWindow,
    Theme,
    announce,
    column,
    in_reading_order,
    show_in_front,
    splitter,
)
from rdchat.ui.transcript.markdown.decorations import ScrollBar
from rdchat.ui.transcript.message_kinds import early_end
from rdchat.ui.transcript.view import TranscriptView
from rdchat.ui.window.commands import Commands, WindowParts
from rdchat.ui.window.header import Header
from rdchat.ui.window.menu_bar_item import MenuBarItem
from rdchat.ui.window.menus import WindowActions, menus
from rdchat.ui.window.model_button import ModelButton
from rdchat.ui.window.palette import CommandPalette
from rdchat.ui.window.side_windows import SideWindows, decoded, encoded
from rdchat.ui.window.type_anywhere import TypeAnywhere
from rdchat.ui.window.unsaved_question import UnsavedQuestion

if TYPE_CHECKING:
    from rdchat.services.models.model_services import Models

ON_SCREEN = "The window is on the screen"
"""Logged once; `scripts/smoke.py` waits for it where it cannot see the screen."""
_LOG = logging.getLogger(__name__)
_SCHEMES = {
    Appearance.SYSTEM: Qt.ColorScheme.Unknown,
    Appearance.LIGHT: Qt.ColorScheme.Light,
    Appearance.DARK: Qt.ColorScheme.Dark,
}
# On a signal of the system, the window waits no longer for an answer to a question: a system that shuts down kills what
# has not ended after some 20 seconds.
_ANSWER_MS = 2_000
# A notification tells of the end of a reply that took longer, as the person may do something else meanwhile.
_LONG_MS = 10_000
_FOCUSABLE = (QAbstractButton, QAbstractScrollArea, QAbstractSpinBox, QComboBox, QLineEdit, QSlider, ScrollBar)
_DIRECT = Qt.FindChildOption.FindDirectChildrenOnly  # The side windows are children of the main window.
_CALL_WAITS = "A tool call waits for you."
# Widths with one side and with both; a narrower window hides the panel first, then the sidebar.
_ROOM_FOR_ONE = 640
_ROOM_FOR_BOTH = 940


class MainWindow(QMainWindow):
    """Builds the parts and connects them.

    Args:
        controller: The conversations.
        theme: The appearance to follow.
        transcript: Shows the open chat.
        sources: Read the models on this machine.

    Attributes:
        closed: Emitted when the window is closed for good, and the app should quit.
        menu_bar_item: The item in the menu bar or the system tray.
        actions_: The actions of the menu bar.
        palette_: The command palette.
        panel_side: The side of the speed panel.
        windows: The windows beside this one.
    """

    closed = Signal()

    def __init__(
        self, controller: ChatController, theme: Theme, transcript: TranscriptView, sources: ModelSources | None = None
    ) -> None:
        super().__init__()
        self._controller = controller
        self._theme = theme
        # The side that the person has opened in a window too narrow for it; None if there is none. `toggle`
        # sets it, and clears it when the side is hidden again; `_fold` clears it when the window has room for the side.
        self._opened_by_hand: QWidget | None = None
        # Whether the window has been on the screen since the start.
        self._was_on_screen = False
        # Whether a reply with figures has ended since the start, in a stored chat, and no question waited for that.
        self._has_figures = False
        self.windows = SideWindows(controller, theme, self, sources or ModelSources())
        self._unsaved = UnsavedQuestion(controller.recorder, self)
        self.setObjectName("main")
        self.setUnifiedTitleAndToolBarOnMac(True)
        self.setMinimumSize(480, 400)
        self.sidebar = Sidebar(controller.chats, theme)
        self.conversation = ConversationView(controller, theme, transcript)
        # The place of the panel, which is built when it is first shown.
        self.panel_side = QWidget()
        model = ModelButton(controller.model_slot, controller.status, controller.settings, controller.remote)
        parts = WindowParts(self.sidebar, self.conversation, self.panel_side, model, self.windows)
        self.commands = Commands(self, parts, controller, theme)
        self.actions_ = WindowActions(self.menuBar(), menus(self.commands), self)
        self.menu_bar_item = MenuBarItem(self.commands, self)
        self.header = Header(model, controller, theme, self.actions_)
        self.addToolBar(self.header)
        columns = (self.sidebar, SIDEBAR_WIDTH), (self.conversation, 10_000), (self.panel_side, PANEL_WIDTH)
        self._splitter = splitter(Qt.Orientation.Horizontal, *columns)
        self._splitter.setStretchFactor(1, 1)
        self.setCentralWidget(self._splitter)
        self.palette_ = CommandPalette(controller.settings, theme, self, self.commands.search_all_chats)
        self.palette_.sources += self.actions_.entries, self.commands.entries
        self._connect_parts()
        self._connect_controller()
        TypeAnywhere(self, self.conversation.composer.field)
        FocusRings(theme)
        self._restore(controller.settings.values)
        self._apply_settings(controller.settings.values)
        self._show_title()
        self.conversation.composer.setFocus()

    @cached_property
    def settings_window(self) -> SettingsWindow:
        """The settings window, built when it is first needed."""
        window = SettingsWindow(self._controller, self._theme, self)
        self.windows.restore_geometry("settings", window)
        window.choose_models_folder.clicked.connect(self.commands.choose_models_folder)
        window.token.clicked.connect(lambda: self.windows.ask_for_token(self.settings_window))
        return window

    @cached_property
    def panel(self) -> SpeedPanel:
        """The speed panel, built when it is first shown."""
        windows = self.windows
        panel = SpeedPanel(self._controller, self._theme)
        panel.details.ledger.clicked.connect(self.actions_.ledger.trigger)
        panel.training.clicked.connect(windows.show_training)
        for picker in (panel.drafting.drafter, panel.drafting.draft_model):
            picker.search_requested.connect(lambda: windows.models.show_page(windows.models.drafters))
        self._controller.chat.opened.connect(panel.show_last_reply)
        column(panel, within=self.panel_side)
        return panel

    def close_soon(self) -> None:
        """Close on a signal of the system, even if nobody answers a question."""
        self._controller.chat.discard()
        self._unsaved.answer_within(_ANSWER_MS)
        self.close()

    def _show_settings(self, page: str) -> None:
        if page:
            self.settings_window.show_page(page)
        show_in_front(self.settings_window)

    def _show_drafting(self) -> None:
        self.show_side(self.panel_side)
        self.panel.show_drafting()

    def _show_speed(self, message_id: int) -> None:
        """Show the figures of a reply in the panel."""
        self.show_side(self.panel_side)
        if message := self._controller.chat.path.find_message(message_id):
            self.panel.show_reply(message)

    def _add_prompt(self) -> None:
        self._show_settings("Presets and Prompts")
        self.settings_window.presets.add_prompt()

    def show_side(self, side: QWidget) -> None:
        """Show the sidebar or the panel if it is hidden."""
        if side.isHidden():
            self.toggle(side)

    def toggle(self, side: QWidget) -> None:
        """Show or hide the sidebar or the panel, and remember it: for the sidebar only in a window with room for it."""
        show = side.isHidden()
        is_narrow = self._opened_by_hand is not None or self.width() < self._room_for(side)
        if is_narrow:
            # This side alone is shown, until the window is wide enough for it.
            self._opened_by_hand = side if show else None
        if side is self.panel_side:
            # It opens at its top.
            self.panel.verticalScrollBar().setValue(0)
            self._controller.settings.change_values(panel_visible=show)
        elif not is_narrow:
            self._controller.settings.change_values(sidebar_visible=show)
        self._fold()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fold()

    def focusNextPrevChild(self, forward: bool) -> bool:
        """Move the focus by Tab: from the messages to the message field, the panel, the toolbar and the chats."""
        current = self.focusWidget()
        stops = self._tab_stops()
        if current not in stops:
            return super().focusNextPrevChild(forward)
        following = stops[(stops.index(current) + (1 if forward else -1)) % len(stops)]
        following.setFocus(Qt.FocusReason.TabFocusReason if forward else Qt.FocusReason.BacktabFocusReason)
        self.conversation.transcript.show_focused(following)
        return True

    def _tab_stops(self) -> list[QWidget]:
        """Return the widgets that Tab goes to, in its order: part by part, and in each part in the order of reading.

        The message field (`composer`) and what stands around it are parts of their own inside the conversation, so a
        widget belongs to the last part of the list that holds it. `nextInFocusChain` is of no use here: PySide takes
        each widget for the child of the one before.
        """
        composer = self.conversation.composer
        messages = list(self.conversation.transcript.widgets.values())
        before = self.header, self.sidebar, self.conversation, *messages
        below = self.conversation.calls, self.conversation.note, composer.attach, composer.tools, composer
        parts = [self, *before, *below, self.panel_side]
        # On a Mac, Tab goes to all controls or to text fields and lists only, as the system's settings say.
        every = QGuiApplication.styleHints().tabFocusBehavior() is Qt.TabFocusBehavior.TabFocusAllControls
        policy = Qt.FocusPolicy.TabFocus if every else Qt.FocusPolicy.StrongFocus
        stops: dict[int, list[QWidget]] = {}
        # By kinds: a search for all widgets would make PySide keep those of Qt's own, such as scroll bars, for ever.
        for widget in (each for kind in _FOCUSABLE for each in self.findChildren(kind)):
            is_visible = widget.window() is self and widget.isVisible() and not widget.focusProxy()
            is_stop = is_visible and widget.isEnabled() and widget.focusPolicy() & policy == policy
            # What has the focus is listed in any case: Tab goes on from there.
            if is_stop or widget is self.focusWidget():
                holders = (index for index, part in enumerate(parts) if part is widget or part.isAncestorOf(widget))
                stops.setdefault(max(holders), []).append(widget)
        return [widget for _, part in sorted(stops.items()) for widget in in_reading_order(part)]

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.windowHandle().installEventFilter(self)

    def event(self, event: QEvent) -> bool:
        """Bring the actions up to date before a key is matched with them."""
        if event.type() is QEvent.Type.ShortcutOverride:
            self.actions_.refresh_if_due()
        return super().event(event)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Tell the engine whether any window can be seen: macOS also counts one behind others as hidden."""
        if event.type() is QEvent.Type.Expose:
            handles = [each.windowHandle() for each in (self, *self.findChildren(SideWindow, options=_DIRECT))]
            exposed = any(handle is not None and handle.isExposed() for handle in handles)
            self._controller.model_slot.engine.set_hidden(not exposed)
            if handles[0].isExposed() and not self._was_on_screen:
                self._was_on_screen = True
                _LOG.info(ON_SCREEN)
        return super().eventFilter(watched, event)

    def _follow_training(self, models: "Models") -> None:
        from rdchat.ui.models.training_page import short_text  # noqa: PLC0415  not before the window

        self.panel.follow_training(models.training, short_text)

    def closeEvent(self, event: QCloseEvent) -> None:
        """Hide instead, or ask first, where that is due; else close for good, with all that runs.

        In this order: only for the window's own close button, hide, or ask about a running benchmark; then ask about a
        temporary chat; then about unsaved replies. After an answer that allows it, the window is closed again.
        """
        # The person used the window's own close button.
        if event.spontaneous() and (self.leave() or not self.windows.may_quit()):
            event.ignore()
            return
        if self._controller.chat.asks_to_leave(self.close) or not self._unsaved.may_close():
            # A question is asked, for which the window must be visible.
            self.show()
            event.ignore()
            return
        self._save_geometry()
        for window in (self, *self.findChildren(SideWindow)):
            # Ending the engine thread may take as long as one chunk of a prompt.
            window.hide()
        self.windows.end_background_work()
        self._controller.shut_down()
        event.accept()
        self.menu_bar_item.hide()
        self.closed.emit()

    def leave(self) -> bool:
        """Hide the window if the app goes on without it, with all that it does; return whether it does."""
        settings = self._controller.settings.values
        comes_back = host.MACOS or (settings.menu_bar_item and self.menu_bar_item.isSystemTrayAvailable())
        stays = settings.stays_open and comes_back
        if stays:
            self._save_geometry()
            self.hide()
        return stays

    def _save_geometry(self) -> None:
        state = encoded(self._splitter.saveState())
        geometry = encoded(self.saveGeometry())
        self._controller.settings.change_values(
            window_state=state, window_geometry=geometry, side_windows=self.windows.geometries()
        )

    def _connect_parts(self) -> None:
        commands = self.commands
        conversation = self.conversation
        windows = self.windows
        self.actions_.palette.triggered.connect(self.palette_.open)
        self.actions_.palette.triggered.connect(self.header.model.look_for_models)
        self.header.model.choices_changed.connect(self.palette_.read_entries)
        commands.sidebar_requested.connect(partial(self.show_side, self.sidebar))
        commands.side_toggled.connect(self.toggle)
        commands.drafting_requested.connect(self._show_drafting)
        commands.settings_requested.connect(self._show_settings)
        commands.close_requested.connect(lambda: None if self.leave() else commands.quit())
        self.header.model.models_requested.connect(self.actions_.models.trigger)
        conversation.sight.model_requested.connect(windows.open_discover)
        offer = ModelOffer(windows.larger_model, windows.download_row, partial(windows.open_discover, ""), self._theme)
        conversation.welcome.add_offer(offer)
        self.header.model.folder_requested.connect(commands.choose_model)
        conversation.project_line.edit_requested.connect(commands.edit_project)
        row_actions = self.sidebar.row_actions
        row_actions.edit_project = commands.edit_project
        row_actions.has_deleted = self._controller.has_deleted
        row_actions.restore_deleted = self._controller.restore_deleted
        conversation.sight.vision_requested.connect(windows.get_vision)
        self.windows.on_model_services.append(self._follow_training)
        self.sidebar.list.write_requested.connect(conversation.composer.setFocus)
        conversation.composer.submitted.connect(self.sidebar.leave_search)
        conversation.notices.choose_model_requested.connect(commands.choose_model)
        conversation.transcript.regenerate_with_requested.connect(commands.regenerate_with)
        conversation.transcript.tokens_requested.connect(windows.show_tokens)
        conversation.transcript.speed_requested.connect(self._show_speed)
        conversation.transcript.compare_requested.connect(windows.compare)
        conversation.tools.settings.clicked.connect(lambda: self._show_settings("Tools"))
        conversation.composer.field.prompts.new_requested.connect(self._add_prompt)
        windows.drops.refused.connect(conversation.notices.show_refused_model)
        windows.drops.files_dropped.connect(conversation.files.attach_files)
        windows.drops.image_dropped.connect(conversation.files.add_image)
        for dropped in (windows.drops.files_dropped, windows.drops.image_dropped):
            # The keyboard is still in the other program.
            dropped.connect(self.activateWindow)
        windows.drops.show_on(chat=conversation, model=self._splitter)

    def _connect_controller(self) -> None:
        controller = self._controller
        chat = controller.chat
        refresh = self.actions_.refresh_soon
        controller.settings.changed.connect(self._apply_settings)
        chat.leaving_asked.connect(self.commands.ask_to_leave)
        for changed in (chat.opened, chat.options_changed):
            changed.connect(lambda: self.header.dot.setVisible(chat.conversation.has_own_options))
        for changed in (chat.opened, controller.chats.conversations_changed):
            changed.connect(self._show_title)
            changed.connect(refresh)
        for changed in (
            controller.replies.state_changed,
            controller.quick.path_changed,
            controller.quick.changed,
            controller.drafting.changed,
            chat.message_added,
            chat.message_changed,
            self.sidebar.list.selectionModel().currentChanged,
        ):
            changed.connect(refresh)
        # Queued, as the system waits for the end of the signal.
        controller.hot_key_pressed.connect(self.actions_.quick.trigger, Qt.ConnectionType.QueuedConnection)
        controller.replies.ended.connect(self._on_reply_ended)
        chat.message_added.connect(self._show_first_figures)
        app = QApplication.instance()
        assert isinstance(app, QApplication), "widgets exist only in an application"
        app.applicationStateChanged.connect(self._on_application_state)

    def _show_first_figures(self, message: Message) -> None:
        """Open the speed panel with the question after the first reply: sooner it would wrap that reply again.

        `panel_visible` is None until then, or until the person shows or hides the panel.
        """
        settings = self._controller.settings
        if message.role is Role.USER and self._has_figures and settings.values.panel_visible is None:
            settings.change_values(panel_visible=True)

    def _on_reply_ended(self, reply: Message) -> None:
        """Announce the end of a reply to a screen reader, and of a long one to a person who is in another program."""
        figures = reply.statistics or Statistics()
        chat_id = reply.conversation_id
        ended = self._has_figures or bool(chat_id and reply.statistics)
        self._has_figures = ended and not self._controller.chat.unsent.waiting
        calls = self._controller.calls
        # Whether a call of the reply waits for the person.
        waits = bool(reply.tool_calls) and calls.holds(chat_id) and not calls.runs_in(chat_id)
        end = early_end(reply)[0] or (_CALL_WAITS if waits else "The reply is finished.")
        self.setAccessibleDescription(end)
        announce(self)
        is_long = figures.ttft_ms + figures.decode_ms > _LONG_MS
        if (
            (is_long or waits)
            and QApplication.activeWindow() is None
            and self._controller.chats.find_chat(chat_id) is not None
        ):
            self.menu_bar_item.notify(end, chat_id)

    def _on_application_state(self, state: Qt.ApplicationState) -> None:
        """Look for drafters when the person comes back, perhaps after training one in a terminal.

        A click in the Dock shows the window again, if there is no other.
        """
        if state is Qt.ApplicationState.ApplicationActive:
            self._controller.drafting.refresh_options()
            if host.MACOS and self._was_on_screen and not any(map(QWidget.isVisible, QApplication.topLevelWidgets())):
                show_in_front(self)

    def _restore(self, settings: Settings) -> None:
        if not self.restoreGeometry(decoded(settings.window_geometry)):
            room = self.screen().availableSize()
            self.resize(min(1180, room.width() - 80), min(780, room.height() - 80))
        self._splitter.restoreState(decoded(settings.window_state))

    def _apply_settings(self, settings: Settings) -> None:
        self._theme.set_scheme(_SCHEMES[settings.appearance])
        self._theme.set_text_size(settings.text_size)
        self._fold()

    def _fold(self) -> None:
        """Show the sides that the person wants and the window has room for.

        In a narrow window that is the one side that the person has opened there, until the window has room for it.
        """
        settings = self._controller.settings.values
        by_hand = self._opened_by_hand
        wanted = {self.sidebar: settings.sidebar_visible, self.panel_side: bool(settings.panel_visible)}
        if by_hand is not None and self.width() >= self._room_for(by_hand):
            by_hand = None
            self._opened_by_hand = None
        for side, is_wanted in wanted.items():
            show = side is by_hand if by_hand is not None else is_wanted and self.width() >= self._room_for(side)
            if not show and side.isAncestorOf(self.focusWidget()):
                self.conversation.composer.setFocus()
            side.setVisible(show)
            if show and side is self.panel_side:
                self.panel.show()
        self.conversation.transcript.show_figures(not self.panel_side.isHidden())
        self.actions_.refresh_soon()

    def _room_for(self, side: QWidget) -> int:
        """Return the width from which the window shows a side."""
        sidebar_open = self._controller.settings.values.sidebar_visible
        return _ROOM_FOR_BOTH if side is self.panel_side and sidebar_open else _ROOM_FOR_ONE

    def _show_title(self) -> None:
        self.setWindowTitle(self._controller.chat.conversation.title or "New chat")
