"""What the open chat's next reply is asked for with."""

from collections.abc import Callable, Sequence

from rdchat.chat.attachments.file_texts import FileTexts
from rdchat.chat.conversation import MadeWith, Message, Notice
from rdchat.chat.message_path import MessagePath, from_cut, uncut
from rdchat.inference.api.requests import ChatMessage, Role, SamplingParams
from rdchat.services.chat.chat_history import told
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.reply_recorder import ReplyRecorder
from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.context.context_meter import OpenPath
from rdchat.services.files.pending_files import PendingFiles

NO_QUESTION = Notice("There is no question to answer", "Type one below, or start a new chat.")


class AskedWith:
    """The messages, the system prompt and the sampling: the chat's own, else those that the person prefers.

    Args:
        chat: The open one.
        preferences: What the person prefers.
        recorder: Has the text that is being written.
        files: Those of the message that is typed.
        texts: Of the files that were sent.
    """

    def __init__(
        self,
        chat: OpenChat,
        preferences: SettingsControl,
        recorder: ReplyRecorder,
        files: PendingFiles,
        texts: FileTexts,
    ) -> None:
        self._chat, self._preferences, self._recorder = chat, preferences, recorder
        self._files, self._texts = files, texts

    @property
    def messages(self) -> MessagePath:
        """The active path, with the text that is being written; to be changed in copies only."""
        path = self._chat.path
        live = [message_id for message_id in self._recorder.held if self._chat.has(message_id)]
        if not live:
            return path
        path = path[:]
        for message in filter(None, map(path.find, live)):
            path.put(self._recorder.shown(message))
        return path

    @property
    def system_prompt(self) -> str:
        own = self._chat.system_prompt
        return self._preferences.settings.system_prompt if own is None else own

    @property
    def sampling(self) -> SamplingParams:
        return self._chat.sampling or self._preferences.settings.sampling

    def open_path(self) -> OpenPath:
        """Return all of it, with the files of the message that is typed."""
        return OpenPath(self.messages.told(), self.system_prompt, self.sampling, self._files.blocks)

    def made_with(self, continued: Message | None = None) -> MadeWith:
        """Return what a reply is to be made with: one that was to be different is written on as it was begun."""
        before = continued.made_with if continued else None
        return before if before is not None and before.once else MadeWith(self.sampling)

    def sampling_of(self, reply: Message) -> SamplingParams:
        """Return how a reply is sampled; its own wish counts."""
        return (reply.made_with or MadeWith()).sampling or self.sampling

    def telling(
        self, path: Sequence[Message], reply: Message
    ) -> Callable[[Callable[[], object]], tuple[ChatMessage, ...]]:
        """Return what reads, on any thread, what the model is told for a reply to the path; its own wishes count.

        It is given a function that it calls before each message, and that ends it by raising. Reading raises
        StorageError; of a long chat it takes some tenths of a second.
        """
        own = (reply.made_with or MadeWith()).system_prompt
        system_prompt = self.system_prompt if own is None else own
        path = from_cut(path.told() if isinstance(path, MessagePath) else path)
        return lambda waiting: told(self._texts.spelled_out(path, waiting), system_prompt, waiting=waiting)


def ends_with_question(path: Sequence[Message]) -> bool:
    """Whether there is something to answer at the end of a path."""
    said = (message.role for message in reversed(uncut(path)) if message.text.strip())
    return next(said, None) is Role.USER
