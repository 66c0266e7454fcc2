"""Shortens the open chat if it is too long for the model.

The person chooses how it is shortened: the oldest turns are left out, or a summary replaces them, or a new chat begins
with a summary. Two of these also begin by themselves, if the chat's options say so. `cut_plan` plans on a thread which
messages are cut; a summary is written by the model, in requests that any other request stops.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat import machine
from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import Notice
from rdchat.chat.presets import LongChats
from rdchat.chat.summaries import ContextCut
from rdchat.inference.api import FinishReason, Mode, ModelInfo, PrefillProgress, ReplyEnd, Role, ThinkingChoice
from rdchat.services.background_work import BackgroundWork
from rdchat.services.chat.context_meter import ContextMeter, ContextUse
from rdchat.services.chat.cut_plan import NEXT, Budget, CutPlan, CutPlanner
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.summary_requests import asked_of_piece, whole_sentences
from rdchat.services.chat.unsent_memory import WaitingMessage
from rdchat.services.engine.engine_request import EngineEvent, EngineRequest, EngineState, Failure, ReplyProgress
from rdchat.services.storage_watch import StorageWatch
from rdchat.work import Job

# The next reply gets this part of the context (a quarter), or its limit of tokens if that is less.
_REPLY_SHARE = 4
TOO_LONG = "Too long for this model. Shorten the chat or your message, or choose another model."
# A chat is shortened by itself after so long without an event: the person may be about to go on.
_CALM_MS = 1500
_CONTINUES = Notice("This chat continues from a summary of the last one", "The summary stands at its beginning.")
_STOPPED = Notice("The summary was stopped", "The chat is unchanged.")
_NO_SUMMARY = Notice("The model wrote no summary", "The chat is unchanged.")
_NOT_SENT = Notice("This chat was not sent to the model's server yet", "Send a message first: then rdchat asks you.")
_ALONE = Notice(
    "The last message alone is too long for this model",
    "Nothing was left out. Shorten it, or choose a model with a longer context.",
)


class Doing(Enum):
    """How a chat is being shortened, by the name that is shown."""

    NOTHING = ""
    LEAVING_OUT = "Finding out how much fits…"
    SUMMARISING = "Summarising the oldest messages…"
    STARTING_ANEW = "Summarising this chat for a new one…"


# How a chat is shortened by itself, by its option; `LongChats.ASK` is not among them.
_BY_ITSELF = {LongChats.LEAVE_OUT: Doing.LEAVING_OUT, LongChats.COMPACT: Doing.SUMMARISING}


@dataclass(frozen=True, slots=True)
class SummaryProgress:
    """How far a summary is.

    Attributes:
        part: Number of the part of the text being summarised, from 1; 0 before the first.
        parts: Number of parts.
        read: Tokens of the part's prompt that are processed.
        to_read: Tokens of the part's prompt; 0 if unknown.
        written: Tokens of the part's summary.
    """

    part: int
    parts: int
    read: int = 0
    to_read: int = 0
    written: int = 0


class ChatContext(QObject):
    """Shortens the prompt of the open chat. Nothing is deleted from the chat, and each cut can be undone.

    If the chat's options say so, this begins by itself once the chat nearly fills the context: when the next question
    is sent, which waits for it (`make_room`), or if it is summarised, already after a reply, while nothing happens and
    not on battery (`calm`).

    Args:
        chat: The open conversation.
        storage: Reports failed reads of the store.
        notify: Shows a notice to the person.

    Attributes:
        meter: Counts the chat's tokens.
        doing: The work under way.
        is_awaited: Whether it has begun by itself, and a question waits for it: one that was sent (`make_room`), or the
            last one of the chat, which is answered again then (`_finish`).
        calm: Runs until the chat may be shortened by itself.
    """

    changed = Signal()
    summary_progressed = Signal(SummaryProgress)
    # The id of a reply that failed because the chat was too long, and now fits.
    reply_requested = Signal(int)

    def __init__(self, chat: OpenChat, storage: StorageWatch, notify: Callable[[Notice], object]) -> None:
        super().__init__(chat)
        self._chat = chat
        self._storage = storage
        self._notify = notify
        self._replies = chat.replies
        self._model = chat.replies.model
        self.meter = ContextMeter(chat)
        self.meter.changed.connect(self.changed)
        self.doing = Doing.NOTHING
        self.is_awaited = False
        # Whether the work has begun by itself; `_start` sets it, and the end of the work clears it (`_begin`).
        self._by_itself = False
        # The id of the last message and the typed text when the last work ended: none begins by itself with the same.
        # Another chat or model clears it (`cancel_work`).
        self._tried: tuple[int | None, str] | None = None
        # Whether the person sends the open chat although it is too long by an estimate.
        self._accepted = False
        # Chats whose summary failed: they ask, until another model is loaded.
        self._failed: set[int | None] = set()
        self._model.load_started.connect(lambda: self._failed.clear())  # noqa: PLW0108  it takes no arguments
        self.calm = QTimer(self, singleShot=True, interval=_CALM_MS)
        self.calm.timeout.connect(self._shorten_in_calm)
        for happened in (self.meter.changed, chat.replies.state_changed, chat.typed_changed):
            happened.connect(self.calm.start)
        # Id of the last message when the work began: a plan or a summary counts only while it is still the last one.
        self._path_end: int | None = None
        self._task = BackgroundWork("cut", self)
        self._progress = SummaryProgress(0, 0)
        self._request: EngineRequest | None = None
        for another in (chat.opened, self._model.load_started, self._model.unload_started):
            another.connect(self.cancel_work)

    @property
    def outgrown(self) -> ContextUse | None:
        """The token count of the open chat if the person has to shorten it.

        None if it fits, was not counted since its last message, is shortened by itself, or is sent anyway.
        """
        use = self.meter.use
        if use is None or use.fits or use.last_id != self._chat.path.last_id:
            return None
        return None if self.wants_room or (self._accepted and use.may_fit) else use

    @property
    def wants_room(self) -> bool:
        """Whether the open chat nearly fills the context, and is to be shortened by itself.

        Not if there is nothing to cut, if the count is older than the last message, if it was tried with the same chat
        and text (`_tried`), if a summary of the chat failed, or if the chat's options say to ask.
        """
        use = self.meter.use
        if use is None or not use.can_cut or use.last_id != self._chat.path.last_id:
            return False
        if (use.last_id, use.typed) == self._tried or self._chat.id in self._failed:
            return False
        if use.tokens is not None and use.tokens <= use.limit - self._reserve:
            return False
        doing = _BY_ITSELF.get(self._chat.values.long_chats)
        if doing is Doing.SUMMARISING:
            # A summary sends the chat to the model, perhaps on a remote server.
            return self._replies.may_send(self._chat.conversation)
        return doing is Doing.LEAVING_OUT

    @property
    def _reserve(self) -> int:
        """Tokens to keep free for the next reply."""
        info = self._model.info
        return min(self._chat.values.sampling.max_tokens, info.context_length // _REPLY_SHARE) if info else 0

    def refuses(self, text: str) -> bool:
        """Return whether the open chat was counted with just this text as its next message, and is too long."""
        use = self.outgrown
        return use is not None and self.meter.current and use.typed == text.strip()

    def accept_length(self) -> None:
        """Let the chat be sent that may fit, until another chat is opened or another model is loaded."""
        self._accepted = True
        self.changed.emit()

    def cut_oldest(self) -> None:
        """Leave the oldest turns out of the prompt; they stay in the chat."""
        self._start(Doing.LEAVING_OUT)

    def summarise(self) -> None:
        """Replace the oldest turns in the prompt with a summary; they stay in the chat."""
        self._start(Doing.SUMMARISING)

    def start_anew(self) -> None:
        """Begin a new chat with a summary of this one."""
        self._start(Doing.STARTING_ANEW)

    def make_room(self, question: WaitingMessage) -> bool:
        """Return whether a question of the open chat has to wait until that is shortened, which begins if needed.

        It waits for work that began by itself, now or before; not for work that the person began.
        """
        if self.doing is Doing.NOTHING and self.wants_room:
            self._start(_BY_ITSELF[self._chat.values.long_chats], question, by_itself=True)
        if self._by_itself and not self.is_awaited:
            self.is_awaited = True
            self.changed.emit()
        return self.is_awaited

    def _shorten_in_calm(self) -> None:
        """Shorten the chat by itself, while nothing happens and nothing is typed. There are two cases:

        - The last question has no answer, since the chat is too long: it is shortened, and the question waits.
        - The chat ends with a reply: it is summarised, unless on battery. Turns are left out only for a question.
        """
        use = self.meter.use
        is_calm = self.meter.current and self._replies.free and self._replies.state is EngineState.IDLE
        if use is None or not is_calm or self.doing is not Doing.NOTHING or use.typed or not self.wants_room:
            return
        doing = _BY_ITSELF[self._chat.values.long_chats]
        if use.answered:
            begins = doing is Doing.SUMMARISING and not machine.on_battery()
        else:
            begins = not use.fits
            self.is_awaited = begins
        if begins:
            self._start(doing, by_itself=True)

    def _start(self, doing: Doing, question: WaitingMessage | None = None, *, by_itself: bool = False) -> None:
        """Plan on a thread how the chat is shortened; `_on_planned` goes on.

        Nothing happens without a model, or while other work is under way. `question` is the one that waits.
        """
        info = self._model.info
        if info is None or self.doing is not Doing.NOTHING:
            return
        self._by_itself = by_itself
        budget = Budget(info.context_length, self._reserve, by_itself, self._may_think(info))
        prompt = self._chat.prompt(question)
        answered = self.meter.use is not None and self.meter.use.answered
        # Only a command of the person may cut the last turn, and only a turn with another question behind it is cut.
        if answered and not (by_itself or prompt.asks):
            prompt = replace(prompt, typed=NEXT)
        replies = self._replies
        count = replies.counter(self._chat.conversation)

        def work(job: Job[CutPlan | None]) -> CutPlan | None:
            complete = replies.complete(prompt, count, job.check_cancelled)
            planner = CutPlanner(prompt, complete, budget, count, replies.file_text)
            # By itself, what loses least comes first: results of earlier turns, the cut, results of the last turn.
            plan = planner.shortened() if by_itself else None
            if plan is None and doing is Doing.LEAVING_OUT:
                plan = planner.without_oldest()
            elif plan is None:
                stored = replies.complete(prompt.without_typed, count, job.check_cancelled)
                plan = planner.with_summary(stored, to_end=doing is Doing.STARTING_ANEW)
            return planner.shortened(in_last_turn=True) if plan is None and by_itself else plan

        self._begin(doing)
        self._task.replace(work, self._on_planned, failed=lambda error: self._fail(Notice(error.message, error.hint)))

    def _may_think(self, info: ModelInfo) -> bool:
        """Return whether the model may think before a summary, so that this needs tokens too."""
        # A remote server does not say whether a model thinks without a switch, nor do markers of plain text.
        last = self._chat.path.last_reply
        thinks = info.may_think or bool(info.server) or (last is not None and bool(last.parts.thought))
        return thinks and self._chat.values.thinking_choice is not ThinkingChoice.OFF

    def undo_cut(self, message_id: int) -> None:
        """Remove a cut: its messages are in the prompt again, and stay there until the next reply."""
        self.stop_work()
        self._chat.set_cut(message_id, None)

    def edit_summary(self, message_id: int, text: str) -> None:
        """Give the model another summary."""
        message = self._chat.path.find_message(message_id)
        if message is not None and message.context_cut is not None:
            self.cancel_work()
            self._chat.set_cut(message_id, replace(message.context_cut, summary=text.strip(), edited=True))

    def stop_work(self) -> None:
        """Stop the work as the person asks for it; a question that waits for it is typed again."""
        self._give_back_question()
        self._drop_work()

    def _give_back_question(self) -> None:
        """Put questions that wait for the work back into the message field; the work does not begin by itself again."""
        if self.is_awaited:
            for message in reversed(self._chat.unsent.waiting_in(self._chat.id)):
                self._chat.take_back(message)
        self._tried = self._chat.path.last_id, self._chat.typed.strip()

    def cancel_work(self) -> None:
        """Cancel the work, and forget what was tried: nothing of a temporary chat stays."""
        self._tried = None
        self._accepted = False
        self._drop_work()

    def _drop_work(self) -> None:
        """Drop the work under way; the chat stays as it is."""
        self._task.drop_jobs()
        if self._request is not None:
            self._request.cancel()
        self._request = None
        self._begin(Doing.NOTHING)

    def end_threads(self) -> None:
        """End the background threads."""
        # Silenced, not stopped: an event of the chat may start this timer again.
        self.calm.blockSignals(True)
        self.meter.stop_counting()
        self._task.finish_work()

    def _begin(self, doing: Doing) -> None:
        """Note what is done from now on; `Doing.NOTHING` ends the work."""
        self._path_end = self._chat.path.last_id
        if doing is Doing.NOTHING:
            self._by_itself = False
            self.is_awaited = False
        if doing is not self.doing:
            self.doing = doing
            self.changed.emit()

    def _on_planned(self, plan: CutPlan | None) -> None:
        """Carry out a plan: cut at once, or have the first piece summarised. A chat that has changed is left alone."""
        if self._path_end != self._chat.path.last_id:
            self._begin(Doing.NOTHING)
        elif plan is None:
            self._fail(_ALONE)
        elif not plan.max_tokens:
            self._finish(plan.message_id, plan.cut)
        elif not self._replies.may_send(self._chat.conversation):
            self._fail(_NOT_SENT)
        elif plan.asked:
            self._progress = SummaryProgress(1, 1)
            take = lambda event: self._on_event(request, plan, event)  # noqa: E731
            conversation = self._chat.conversation
            request: EngineRequest = self._replies.ask_of_chat(conversation, plan.asked, plan.max_tokens, take)
            self._request = request
        else:
            self._summarise_pieces(plan)

    def _summarise_pieces(self, plan: CutPlan) -> None:
        self._progress = SummaryProgress(0, len(plan.pieces))
        self._summarise_next(plan, "")

    def _summarise_next(self, plan: CutPlan, earlier: str) -> None:
        """Request the summary of the next piece, given the summary of the pieces before it.

        It is a background request: any other request to the engine stops it.
        """
        # `part` is the number of the last piece, counted from 1, and so the index of the next one.
        messages = asked_of_piece(plan.pieces[self._progress.part], earlier)
        choices = self._model.info.thinking if self._model.info else ()
        thinking = ThinkingChoice.OFF if ThinkingChoice.OFF in choices else None
        self._progress = SummaryProgress(self._progress.part + 1, self._progress.parts)
        take = lambda event: self._on_event(request, plan, event)  # noqa: E731
        request: EngineRequest = self._replies.ask_aside(messages, plan.max_tokens, take, Mode.AUTO, thinking=thinking)
        self._request = request

    def _on_event(self, request: EngineRequest, plan: CutPlan, event: EngineEvent) -> None:
        """Take an event of the summary that is being written; a request that was cancelled may still send some."""
        if request is not self._request:
            return
        match event:
            case PrefillProgress():
                self._show_progress(read=event.processed, to_read=event.total)
            case ReplyProgress():
                self._show_progress(written=self._progress.written + len(event.tokens))
            case ReplyEnd():
                self._request = None
                self._take_summary(plan, event)
            case Failure():
                self._request = None
                self._fail(Notice(event.message, event.hint))

    def _show_progress(self, **figures: int) -> None:
        self._progress = replace(self._progress, **figures)
        self.summary_progressed.emit(self._progress)

    def _take_summary(self, plan: CutPlan, end: ReplyEnd) -> None:
        """End the work if this is no summary. Otherwise continue with the next piece, or use that of the last one."""
        is_cut_off = end.finish_reason in (FinishReason.LENGTH, FinishReason.CONTEXT_FULL)
        answer = end.told.answer.strip()
        summary = "" if end.told.unclosed or end.tool_calls else answer
        summary = whole_sentences(summary) if is_cut_off else summary
        was_cancelled = end.finish_reason is FinishReason.CANCELLED
        if was_cancelled and self._by_itself:
            # Another request stopped it: it begins again in a while.
            self._begin(Doing.NOTHING)
            self.calm.start()
        elif was_cancelled:
            self._fail(_STOPPED)
        elif not summary and plan.asked and not is_cut_off:
            # The model went on with the chat. A text to summarise leaves it no such choice.
            self._summarise_pieces(replace(plan, asked=()))
        elif not summary:
            self._fail(_NO_SUMMARY)
        elif self._progress.part < self._progress.parts:
            self._summarise_next(plan, summary)
        else:
            self._use_summary(plan, summary)

    def _use_summary(self, plan: CutPlan, summary: str) -> None:
        """Begin a new chat with the summary of all pieces, or set the cut; a chat that has changed is left alone."""
        info = self._model.info
        # A remote model is named with its server.
        names = (info.name, info.server) if info else ()
        cut = replace(plan.cut, summary=summary, model=" on ".join(filter(None, names)), written_at=time.time())
        if self._path_end != self._chat.path.last_id:
            self._begin(Doing.NOTHING)
        elif self.doing is Doing.STARTING_ANEW:
            self._begin(Doing.NOTHING)
            # This reads the texts of files; if that fails, the chat stays as it is.
            with self._storage.reading():
                self._go_on_anew(cut)
        else:
            self._finish(plan.message_id, cut)

    def _go_on_anew(self, cut: ContextCut) -> None:
        """Open a chat that begins with a summary, and move the typed or unanswered question to it."""
        chat = self._chat
        before = chat.id
        typed = chat.typed.strip()
        # What is typed counts; only without it the unanswered question moves.
        question, files = (typed, []) if typed or chat.files.images else self._unanswered()
        chat.begin_chat(f"{chat.conversation.title} (continued)", cut)
        self._notify(_CONTINUES)
        if question or files:
            chat.files.follow(before, chat.id)
            chat.files.restore_files(files)
            chat.set_typed(question)

    def _fail(self, why: Notice) -> None:
        """End the work without a cut; say why, unless it began by itself and nothing waits for it.

        After a failure of work that began by itself, the chat asks the person from then on. `_ALONE` is no such
        failure: it is about one message, which the person can shorten.
        """
        notifies = self.is_awaited or not self._by_itself
        if self._by_itself and why is not _ALONE:
            self._failed.add(self._chat.id)
        self._give_back_question()
        self._begin(Doing.NOTHING)
        if notifies:
            self._notify(why)

    def _finish(self, message_id: int, cut: ContextCut) -> None:
        """Set the cut; request the last reply again if it is empty and nothing is typed."""
        # The text of the count, not of the message field: it may have been sent since, and wait now.
        self._tried = self._chat.path.last_id, self.meter.use.typed if self.meter.use else ""
        self._begin(Doing.NOTHING)
        self._chat.set_cut(message_id, cut)
        last = self._chat.path[-1]
        is_typed = self._chat.typed.strip() or self._chat.files.images
        is_empty = last.role is not Role.TOOL and not (last.text.strip() or last.files or last.tool_calls)
        if is_empty and not is_typed:
            self.reply_requested.emit(last.id)

    def _unanswered(self) -> tuple[str, list[tuple[AttachedFile, str]]]:
        """Return the last question and its files with their texts if it has no reply."""
        last = next((each for each in reversed(self._chat.path) if each.text.strip() or each.files), None)
        if last is None or last.role is not Role.USER:
            return "", []
        return last.text, [(file, self._replies.file_text(file)) for file in last.files]
