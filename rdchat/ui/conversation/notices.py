"""The banners above the transcript: messages of the services to the person, with possible actions."""

from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QApplication, QMessageBox

from rdchat import __version__
from rdchat.chat.attachments.attached_file import FileKind
from rdchat.chat.conversation import Notice
from rdchat.hub.updates import Update
from rdchat.inference.api.messages import Role
from rdchat.services.app.update_check import UpdateCheck
from rdchat.services.chat.chat_context import ContextUse, Doing, SummaryProgress
from rdchat.services.chat.reply import Reply
from rdchat.services.chat_controller import ChatController
from rdchat.services.chat_list.chat_order import Step
from rdchat.services.engine.engine_request import Failure
from rdchat.services.files.part_choice import TokenCount
from rdchat.ui.conversation.banner import UNDO_MS, Banner, BannerArea
from rdchat.ui.conversation.composer import Composer
from rdchat.ui.style import formatting
from rdchat.ui.style.opening import ask, open_page
from rdchat.ui.style.theme import Theme

type Action = tuple[str, Callable[[], object]] | tuple[str, Callable[[], object], str]
"""The text of a button, what it does, and perhaps a tooltip."""

_DANGER = ("warning", "danger")
_DOING = {
    Doing.LEAVING_OUT: "Finding out how much fits…",
    Doing.SUMMARISING: "Summarising the oldest messages…",
    Doing.STARTING_ANEW: "Summarising this chat for a new one…",
}


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
        # The state in the banner of a chat that is too long, and whether the person has closed it.
        self._outgrown: tuple[ContextUse | None, Doing] | None = None
        self._put_away = False
        # The step that can be undone.
        self._offered: Step | None = None
        slot = controller.model_slot
        slot.failed.connect(self._show_failure)
        slot.unload_started.connect(self._show_unloaded)
        slot.load_started.connect(lambda: self.area.close_banner("model"))
        controller.notice_raised.connect(self.show_notice)
        controller.storage.failed.connect(self.show_storage_failure)
        controller.storage.recovered.connect(lambda: self.area.close_banner("storage"))
        controller.borrowed.changed.connect(self._show_borrowed)
        controller.chats.order.undo_offered.connect(self._offer_undo)
        controller.chats.conversations_changed.connect(self._end_offer)
        controller.context.changed.connect(self._show_outgrown)
        controller.context.summary_progressed.connect(self._show_summary_progress)
        controller.chat.files.changed.connect(self._show_outgrown)
        controller.prompt_refused.connect(self._show_refused)
        controller.replies.sending_asked.connect(self._ask_to_send)
        # The question whether a chat may go to a remote server.
        self._question: QMessageBox | None = None

    def _ask_to_send(self, reply: Reply) -> None:
        """Say what of a chat would go to a remote server, and ask; without a yes its reply is stopped."""
        replies = self._controller.replies
        chat = reply.conversation
        path = reply.prompt.path
        if self._question is not None or (model := replies.model.info) is None:
            return
        kinds = [file.kind is FileKind.IMAGE for each in path for file in each.files]
        counts = {
            "message": sum(bool(each.text.strip() or each.files or each.tool_calls) for each in path),
            "image": sum(kinds),
            "file": kinds.count(False),
            "result of a tool": sum(each.role is Role.TOOL for each in path),
        }
        parts = [formatting.counted(count, name) for name, count in counts.items() if count]
        what = f"{', '.join(parts[:-1])} and {parts[-1]}" if len(parts) > 1 else parts[0]
        detail = (
            f"{model.name} runs on {model.server} ({model.device}). What you ask now and the chat so far leave "
            f"{formatting.MACHINE}: {what}. Later messages of this chat go there without a question."
        )
        window = QApplication.activeWindow() or self.area.window()
        title = f"Send “{chat.title}” to {model.server}?" if chat.id else f"Send this to {model.server}?"
        box = self._question = ask(window, title, detail, "Send", lambda: None)

        def end() -> None:
            self._question = None
            if box.buttonRole(box.clickedButton()) is QMessageBox.ButtonRole.AcceptRole:
                replies.agree(reply, model.device)
            elif any(each.request is None for each in replies.live):
                # Otherwise another model was chosen meanwhile, which answers.
                replies.stop(chat.id)

        box.finished.connect(end)

    def show(
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
        self.show(f"notice {notice.title}", notice.title, notice.detail)

    def show_storage_failure(self, notice: Notice) -> None:
        self.show("storage", notice.title, notice.detail, *_DANGER)

    def show_refused_model(self, text: str) -> None:
        """Show why a dropped file is no model."""
        self.show("dropped model", "This cannot be loaded as a model", text, *_DANGER)

    # Models

    def _show_unloaded(self) -> None:
        detail = "Its memory is free for other apps. Sending a message loads it again."
        retry = self._controller.model_slot.retry
        self.show("model", "The model was unloaded", detail, actions=[("Load It Again", retry)])

    def _show_failure(self, failure: Failure) -> None:
        slot = self._controller.model_slot
        detail = f"{failure.message} {failure.hint}".strip()
        actions: list[Action] = [("Choose Another Model…", self.choose_model_requested.emit)]
        if slot.chosen is not None:
            actions.append(("Use the Default Model", lambda: slot.load(None)))
        actions.append(("Try Again", slot.retry))
        if failure.can_load_anyway:
            tip = "The computer may become slow, and the system may quit rdchat"
            actions.append(("Load Anyway", slot.load_anyway, tip))
        self.show("model", "The model did not load", detail, *_DANGER, actions=actions)

    def _show_borrowed(self) -> None:
        """Show which model writes one reply, and which one is loaded again afterwards."""
        borrowed = self._controller.borrowed
        if (loan := borrowed.loan) is None:
            self.area.close_banner("borrowed")
            return
        title = f"{loan.borrowed.name} writes this one reply"
        detail = f"{loan.own_name} is loaded again afterwards."
        self.show("borrowed", title, detail, "model", actions=[("Keep This Model", borrowed.stay)])

    # New versions

    def look_for_updates(self, check: UpdateCheck) -> None:
        """Look for a new version; ask the person first, if that was never answered."""
        if not check.unanswered:
            check.look()
            return
        where = urlsplit(check.address).netloc
        detail = (
            f"Once a day rdchat would ask {where} for the newest version. It installs nothing. You can change this in "
            "Settings."
        )
        actions = ("Look Once a Day", partial(check.answer, True)), ("Do Not Look", partial(check.answer, False))
        self.show("update", "Look for new versions of rdchat?", detail, actions=actions)

    def show_update(self, update: Update) -> None:
        """Show a new version, with its page to open."""
        title = f"rdchat {update.version} is available. You have {__version__}."
        notes = update.notes.strip()
        action = "Open Page", partial(open_page, update.page), update.page
        self.show("update", title, notes or "There are no notes.", actions=[action])

    # Undoing

    def _offer_undo(self, done: str) -> None:
        self._offered = self._controller.chats.order.history.last
        self.show("undo", done, actions=[("Undo", self._controller.chats.undo)], lasts_ms=UNDO_MS)

    def _end_offer(self) -> None:
        """Offer no longer to undo what something else was done after: the button would take that back."""
        if self._controller.chats.order.history.last is not self._offered:
            self.area.close_banner("undo")

    # A chat that is too long

    def _show_outgrown(self) -> None:
        """Offer the choice while the chat does not fit, once for each state of it."""
        context = self._controller.context
        # If files alone are too long, the person chooses a part of them: leaving out turns would not help.
        use = None if self._controller.chat.files.excess else context.outgrown
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
            self._outgrown_banner(use, doing).dismissed.connect(self._put_outgrown_away)

    def _outgrown_banner(self, use: ContextUse, doing: Doing) -> Banner:
        """Show by how much the chat is too long with the choice of remedies, or the remedy under way."""
        context = self._controller.context
        if doing is not Doing.NOTHING:
            stop = ("Stop", context.stop, "The chat stays as it is")
            return self.show("context", _DOING[doing], "", "waiting", "muted", actions=[stop])
        takes = "" if use.tokens is None else f"It has {TokenCount(use.tokens, not use.is_estimate).text}. "
        shorten = "Shorten it" if use.typed else "Edit it to shorten it"
        remedy = "Choose how to shorten it." if use.can_cut else f"{shorten}, or choose another model."
        title = f"This {'chat' if use.can_cut else 'message'} is too long for this model ({use.limit:,} tokens)"
        actions: list[Action] = [
            ("Leave Out the Oldest", context.leave_out, "They stay in the chat, but are not sent to the model"),
            ("Summarise the Oldest", context.summarise, "A summary of them is sent to the model instead"),
            ("Start a New Chat", context.start_anew, "Starts a new chat with a summary; this one stays as it is"),
        ]
        sign = ("warning", "warning")
        return self.show("context", title, f"{takes}{remedy}", *sign, actions=actions if use.can_cut else ())

    def _show_summary_progress(self, progress: SummaryProgress) -> None:
        part = f"Part {progress.part} of {progress.parts}: " if progress.parts > 1 else ""
        done = f"{progress.read:,} of {progress.to_read:,} tokens read"
        if progress.written:
            done = f"{formatting.counted(progress.written, 'token')} written"
        if banner := self.area.banner("context"):
            banner.progress.show_text(part + done)

    def _put_outgrown_away(self) -> None:
        # It comes back when the chat fits, or when the message is sent all the same.
        self._put_away = True

    def _show_refused(self, text: str, reason: str) -> None:
        self._put_away = False
        self._outgrown = None
        self._show_outgrown()
        self._composer.give_back(text, reason)
