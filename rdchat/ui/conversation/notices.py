"""Banners above the transcript: notices of the services, with buttons to act on them or to close them.

`Notices` decides what is shown, in which `Banner` and under which key; `BannerArea` shows the newest one. A banner
replaces the one of the same key, so each kind of notice has a key: "model", "storage", "update", "undo", "context";
"chat" is for what concerns the open chat alone.
"""

from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

from PySide6.QtCore import QObject, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QApplication, QBoxLayout, QMessageBox, QPushButton, QWidget

from rdchat import __version__
from rdchat.chat.attachments.attached_file import FileKind
from rdchat.chat.conversation import Notice
from rdchat.hub.updates import Update
from rdchat.inference.api import Role
from rdchat.services.app.update_check import UpdateCheck
from rdchat.services.chat.chat_context import Doing, SummaryProgress
from rdchat.services.chat.chat_prompt import ChatPrompt, seen
from rdchat.services.chat.context_meter import ContextUse
from rdchat.services.chat.reply_recorder import Reply
from rdchat.services.chat_list.chat_order import Step
from rdchat.services.engine.engine_request import Failure
from rdchat.services.files.part_choice import TokenCount
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.conversation.composer import Composer
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    TEXT_WIDTH,
    TIGHT,
    Card,
    ConsentPause,
    IconButton,
    PlainLabel,
    Theme,
    ThemedLabel,
    ask,
    column,
    discard,
    formatting,
    line_pixmap,
    open_page,
    push_button,
    row,
    small_text,
)
from rdchat.wording import counted

UNDO_MS = 10_000
"""How long Undo is offered."""
# The least width that buttons leave beside them for text, icon and close button, in pixels.
_TEXT_WIDTH = 260
type Action = tuple[str, Callable[[], object]] | tuple[str, Callable[[], object], str]
"""The text of a button, what it does, and perhaps a tooltip."""
# The icon and its colour in banners of failures.
_DANGER = ("warning", "danger")


class Banner(Card):
    """One banner.

    Args:
        theme: The appearance to follow.
        text: The message.
        detail: Details of it, in secondary text.
        icon: Name of a line icon.
        color: Name of the icon's colour.

    Attributes:
        progress: A line below the text.
        buttons: The buttons that `add_action` has added.
        cross: The button that closes it.
    """

    closed = Signal()

    def __init__(self, theme: Theme, text: str, detail: str = "", icon: str = "info", color: str = "accent") -> None:
        super().__init__(theme)
        self._icon = icon
        self._color = color
        self.setAccessibleName(f"{text} {detail}".strip())
        self._picture = PlainLabel()
        self.progress = small_text(theme, wraps=False)
        self.progress.hide()
        texts = column(ThemedLabel(theme, text, bold=bool(detail), wraps=True), spacing=2)
        if detail:
            texts.addWidget(small_text(theme, detail, selectable=True))
        texts.addWidget(self.progress)
        self.buttons: list[QPushButton] = []
        self._box = row((texts, 1))
        self.cross = IconButton("close", "Close", theme, act=self.closed.emit)
        self.cross.setAccessibleName("Close this notice")
        row(self._picture, (self._box, 1), self.cross, within=self, margins=(MEDIUM, SMALL, SMALL, SMALL))
        theme.changed.connect(self._draw_icon)
        self._draw_icon()
        ConsentPause(self)

    def add_action(self, text: str, act: Callable[[], object], tip: str = "", *, closes: bool = True) -> QPushButton:
        """Add a button beside the text, or below it in a narrow banner; pressing it may also close the banner."""
        button = push_button(text, tip)
        button.setAccessibleDescription(tip)
        if closes:
            button.clicked.connect(self.closed)
        button.clicked.connect(lambda _checked: act())
        self._box.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
        self.buttons.append(button)
        return button

    def minimumSizeHint(self) -> QSize:
        # Otherwise buttons side by side would keep it wide.
        return QSize(0, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        is_wide = sum(button.sizeHint().width() + SMALL for button in self.buttons) + _TEXT_WIDTH <= self.width()
        self._box.setDirection(QBoxLayout.Direction.LeftToRight if is_wide else QBoxLayout.Direction.TopToBottom)

    def _draw_icon(self) -> None:
        color = getattr(self._theme.colors, self._color)
        self._picture.setPixmap(line_pixmap(self._icon, color, 18, self.devicePixelRatioF()))
        self.update()


class BannerArea(QWidget):
    """The newest banner; older ones wait. A banner replaces one of the same key."""

    def __init__(self) -> None:
        super().__init__()
        banners = QWidget()
        # The messages below have the same width.
        banners.setMaximumWidth(TEXT_WIDTH)
        self._layout = column(within=banners, spacing=TIGHT)
        row(None, (banners, 1000), None, within=self, spacing=0, margins=(LARGE, SMALL, LARGE, TIGHT))
        self._keyed: dict[str, Banner] = {}
        self.hide()

    def show_banner(self, banner: Banner, key: str, lasts_ms: int | None = None) -> None:
        """Show a banner until it is closed, or for some time."""
        self.close_banner(key)
        self._keyed[key] = banner
        banner.closed.connect(self._remove_closed)
        self._layout.addWidget(banner)
        self._show_newest()
        if lasts_ms is not None:
            QTimer.singleShot(lasts_ms, banner, banner.closed.emit)

    def close_banner(self, key: str) -> None:
        banner = self._keyed.pop(key, None)
        if banner is not None:
            discard(banner)
            self._show_newest()

    def _show_newest(self) -> None:
        banners = list(self._keyed.values())
        for banner in banners:
            banner.setVisible(banner is banners[-1])
        self.setVisible(bool(banners))

    def banner(self, key: str) -> Banner | None:
        return self._keyed.get(key)

    def _remove_closed(self) -> None:
        # A lambda or partial connected to the banner would crash PySide when the banner is deleted.
        closed = self.sender()
        for key in [key for key, banner in self._keyed.items() if banner is closed]:
            self.close_banner(key)


class Notices(QObject):
    """Shows each kind of notice in a banner of its own, until it is over or closed.

    Args:
        controller: Has the services.
        composer: Shows why a prompt was refused.
        theme: The appearance to follow.
    """

    choose_model_requested = Signal()

    def __init__(self, controller: ChatController, composer: Composer, theme: Theme) -> None:
        self.area = BannerArea()
        super().__init__(self.area)
        self._controller = controller
        self._composer = composer
        self._theme = theme
        # What the banner of a chat that is too long shows, None before the first time: by how much it is too long, and
        # the work that shortens it. And whether the person has closed the banner.
        self._outgrown: tuple[ContextUse | None, Doing] | None = None
        self._put_away = False
        # The step that can be undone.
        self._offered: Step | None = None
        # The question whether a chat may go to a remote server.
        self._question: QMessageBox | None = None
        chat = controller.chat
        slot = controller.model_slot
        slot.failed.connect(self._show_failure)
        slot.unload_started.connect(self._show_unloaded)
        slot.load_started.connect(lambda: self.area.close_banner("model"))
        controller.notice_raised.connect(self.show_notice)
        controller.chat_notice_raised.connect(lambda notice: self.show_banner("chat", notice.title, notice.detail))
        controller.storage.failed.connect(self.show_storage_failure)
        controller.storage.recovered.connect(lambda: self.area.close_banner("storage"))
        controller.borrowed.changed.connect(self._show_borrowed)
        controller.chats.order.undo_offered.connect(self._offer_undo)
        controller.chats.conversations_changed.connect(self._end_offer)
        chat.opened.connect(self._end_offer)
        chat.opened.connect(lambda: self.area.close_banner("chat"))
        controller.context.changed.connect(self._show_outgrown)
        controller.context.summary_progressed.connect(self._show_summary_progress)
        chat.files.changed.connect(self._show_outgrown)
        controller.prompt_refused.connect(self._show_refused)
        controller.replies.sending_asked.connect(self._ask_to_send)
        controller.replies.state_changed.connect(self._end_question)

    def _ask_to_send(self, reply: Reply) -> None:
        """Say what of a chat would go to a remote server, and ask; without a yes its reply is stopped."""
        replies = self._controller.replies
        chat = reply.conversation
        if self._question is not None or (model := replies.model.info) is None:
            return
        detail = (
            f"{model.name} runs on {model.server} ({model.device}). What you ask now and the chat so far leave "
            f"{formatting.MACHINE}: {_contents(reply.prompt)}. Later messages of this chat go there without a question."
        )
        window = QApplication.activeWindow() or self.area.window()
        what = f"“{chat.title}”" if chat.id else "this"
        box = ask(window, f"Send {what} to {model.server}?", detail, "Send", lambda: None)
        self._question = box

        def end() -> None:
            self._question = None
            if box.buttonRole(box.clickedButton()) is QMessageBox.ButtonRole.AcceptRole:
                replies.agree(reply, model.device)
            elif any(each.request is None for each in replies.live):
                # The reply still waits for this answer: it has no request yet. Where it has one, another model was
                # chosen meanwhile, which writes it.
                replies.stop_replies(chat.id)

        box.finished.connect(end)

    def _end_question(self) -> None:
        """Close the question once no reply waits for it: it was stopped, or another model writes it."""
        if self._question is not None and all(each.request is not None for each in self._controller.replies.live):
            self._question.reject()

    def show_banner(
        self,
        key: str,
        title: str,
        detail: str = "",
        *sign: str,
        actions: Sequence[Action] = (),
        lasts_ms: int | None = None,
    ) -> Banner:
        """Show a banner instead of an earlier one of its key; `sign` is an icon and its colour."""
        banner = Banner(self._theme, title, detail, *sign)
        for action in actions:
            banner.add_action(*action)
        self.area.show_banner(banner, key, lasts_ms)
        return banner

    def show_notice(self, notice: Notice) -> None:
        self.show_banner(f"notice {notice.title}", notice.title, notice.detail)

    def show_storage_failure(self, notice: Notice) -> None:
        self.show_banner("storage", notice.title, notice.detail, *_DANGER)

    def show_refused_model(self, text: str) -> None:
        """Show why a dropped file is no model."""
        self.show_banner("dropped model", "This cannot be loaded as a model", text, *_DANGER)

    # Models

    def _show_unloaded(self) -> None:
        detail = "Its memory is free for other apps. Sending a message loads it again."
        retry = self._controller.model_slot.retry
        self.show_banner("model", "The model was unloaded", detail, actions=[("Load It Again", retry)])

    def _show_failure(self, failure: Failure) -> None:
        slot = self._controller.model_slot
        actions: list[Action] = [("Choose Another Model…", self.choose_model_requested.emit)]
        if slot.chosen is not None:
            actions.append(("Use the Default Model", lambda: slot.load_model(None)))
        actions.append(("Try Again", slot.retry))
        if failure.can_load_anyway:
            tip = "The computer may become slow, and the system may quit rdchat"
            actions.append(("Load Anyway", slot.load_anyway, tip))
        self.show_banner("model", "The model did not load", str(failure), *_DANGER, actions=actions)

    def _show_borrowed(self) -> None:
        """Show which model writes one reply, and which one is loaded again afterwards."""
        borrowed = self._controller.borrowed
        if (loan := borrowed.loan) is None:
            self.area.close_banner("borrowed")
            return
        title = f"{loan.borrowed.name} writes this one reply"
        detail = f"{loan.own_name} is loaded again afterwards."
        self.show_banner("borrowed", title, detail, "model", actions=[("Keep This Model", borrowed.stay)])

    # New versions

    def look_for_updates(self, check: UpdateCheck) -> None:
        """Look for a new version; ask the person first, if that was never answered."""
        if not check.unanswered:
            check.look_for_update()
            return
        where = urlsplit(check.address).netloc
        detail = (
            f"Once a day rdchat would ask {where} for the newest version. It installs nothing. You can change this in "
            "Settings."
        )
        actions = (
            ("Look Once a Day", partial(check.keep_answer, True)),
            ("Do Not Look", partial(check.keep_answer, False)),
        )
        self.show_banner("update", "Look for new versions of rdchat?", detail, actions=actions)

    def show_update(self, update: Update) -> None:
        """Show a new version, with its page to open."""
        title = f"rdchat {update.version} is available. You have {__version__}."
        notes = update.notes.strip()
        action = "Open Page", partial(open_page, update.page), update.page
        self.show_banner("update", title, notes or "There are no release notes.", actions=[action])

    # Undoing

    def _offer_undo(self, done: str) -> None:
        self._offered = self._controller.chats.order.history.last
        self.show_banner("undo", done, actions=[("Undo", self._controller.chats.undo)], lasts_ms=UNDO_MS)

    def _end_offer(self) -> None:
        """Offer no longer to undo what something else was done after: the button would take that back."""
        if self._controller.chats.order.history.last is not self._offered:
            self.area.close_banner("undo")

    # A chat that is too long

    def _show_outgrown(self) -> None:
        """Show a banner with remedies while the chat does not fit, or the remedy under way.

        Called when any of it may have changed, it makes the banner anew only if something has. A banner that the person
        has closed stays away until the chat fits or a message is refused for it (`_show_refused`); work under way is
        shown all the same.
        """
        context = self._controller.context
        # `outgrown` is None for a chat that is shortened by itself: the person has nothing to choose. But if a question
        # waits for that, the work is shown.
        use = context.meter.use if context.is_awaited else context.outgrown
        # If files alone are too long, the person chooses a part of them: leaving out turns would not help.
        use = None if self._controller.chat.files.excess else use
        doing = context.doing
        if (use, doing) == self._outgrown:
            return
        self._outgrown = use, doing
        if use is None:
            self._put_away = False
            self.area.close_banner("context")
            # The note says that the message was too long to be sent.
            self._composer.show_note("")
        elif not self._put_away or doing is not Doing.NOTHING:
            self._outgrown_banner(use, doing).cross.clicked.connect(self._put_outgrown_away)

    def _outgrown_banner(self, use: ContextUse, doing: Doing) -> Banner:
        """Show by how much the chat is too long with the choice of remedies, or the remedy under way."""
        context = self._controller.context
        if doing is not Doing.NOTHING:
            stop = ("Stop", context.stop_work, "The chat stays as it is")
            return self.show_banner("context", doing.value, "", "waiting", "muted", actions=[stop])
        takes = "" if use.tokens is None else f"It has {TokenCount(use.tokens, not use.is_estimate).description}. "
        shorten = "Shorten it" if use.typed else "Edit it to shorten it"
        remedy = "Choose how to shorten it." if use.can_cut else f"{shorten}, or choose another model."
        verb = "may be" if use.may_fit else "is"
        title = f"This {'chat' if use.can_cut else 'message'} {verb} too long for this model ({use.limit:,} tokens)"
        actions: list[Action] = [
            ("Leave Out the Oldest", context.cut_oldest, "They stay in the chat, but are not sent to the model"),
            ("Summarise the Oldest", context.summarise, "A summary of them is sent to the model instead"),
        ]
        # A temporary chat would not stay.
        if not self._controller.chat.temporary:
            tip = "Starts a new chat with a summary; this one stays as it is"
            actions.append(("Start a New Chat", context.start_anew, tip))
        if not use.can_cut:
            actions = []
        if use.may_fit:
            actions.append(("Send Anyway", self._send_anyway, "The server may leave out its beginning, or refuse it"))
        return self.show_banner("context", title, f"{takes}{remedy}", "warning", "warning", actions=actions)

    def _send_anyway(self) -> None:
        self._controller.context.accept_length()
        if self._composer.text.strip():
            self._composer.field.submit_requested.emit()

    def _show_summary_progress(self, progress: SummaryProgress) -> None:
        part = f"Part {progress.part} of {progress.parts}: " if progress.parts > 1 else ""
        done = f"{progress.read:,} of {progress.to_read:,} tokens read"
        if progress.written:
            done = f"{counted(progress.written, 'token')} written"
        if banner := self.area.banner("context"):
            banner.progress.show_text(part + done)

    def _put_outgrown_away(self) -> None:
        self._put_away = True

    def _show_refused(self, text: str, reason: str) -> None:
        """Give a prompt back with the reason; if the chat is too long, its banner is shown, even if it was closed."""
        self._put_away = False
        # So that the banner is made anew.
        self._outgrown = None
        self._show_outgrown()
        self._composer.give_back(text, reason)


def _contents(prompt: ChatPrompt) -> str:
    """Return what a prompt has, such as `5 messages, 1 file and 2 tool results`."""
    path = [*seen(prompt.path)]
    files = (*prompt.files, *(file for each in path for file in each.files))
    kinds = [file.kind is FileKind.IMAGE for file in files]
    counts = {
        "message": sum(bool(each.text.strip() or each.files or each.tool_calls) for each in path),
        "image": sum(kinds),
        "file": kinds.count(False),
        "tool result": sum(each.role is Role.TOOL for each in path),
        "note": len(prompt.notes),
    }
    parts = [counted(count, name) for name, count in counts.items() if count]
    return f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
