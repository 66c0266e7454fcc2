"""The prompt of a chat: the messages that the model gets, with the texts of their files."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rdchat.chat.attachments.attached_file import AttachedFile, block_of
from rdchat.chat.conversation import Message, cut_of, uncut
from rdchat.inference.api.messages import ChatMessage, Role, join_neighbours

_SUMMARY_NOTE = "This is a summary of the conversation so far; what follows goes on from it."

type FileText = Callable[[AttachedFile], str]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A path of messages with a system prompt. Its messages may be read on any thread, which raises StorageError.

    Attributes:
        path: From the root, or the last context cut, to the last message that the model gets.
        system_prompt: It may be blank.
        typed: A question that is not sent yet, with its files; blank for none.
    """

    path: Sequence[Message]
    system_prompt: str
    typed: str = ""

    def with_files(self, text_of: FileText, check: Callable[[], object] = lambda: None) -> "ChatPrompt":
        """Return the prompt with the files of each message before its text.

        Args:
            text_of: Reads the text of a file.
            check: Called before each message; what it raises ends the work.
        """
        path: list[Message] = []
        for each in self.path:
            check()
            blocks = [block_of(file, text_of(file)) for file in each.files]
            texts = [*blocks, each.text] if each.text.strip() else blocks
            path.append(replace(each, text="\n\n".join(texts)) if blocks else each)
        return replace(self, path=path)

    def turns(self, check: Callable[[], object] = lambda: None) -> tuple[ChatMessage, ...]:
        """Return what a chat template takes: messages that are not cut, with a summary of those that are.

        `check` is called before each message, and may raise.
        """
        cut = cut_of(self.path)
        summary = cut.context_cut.summary if cut and cut.context_cut else ""
        turns = history(uncut(self.path), with_summary(self.system_prompt, summary), check)
        typed = self.typed
        if not typed.strip():
            return turns
        if turns and turns[-1].role is Role.USER:
            turns, typed = turns[:-1], f"{turns[-1].content}\n\n{typed}"
        return (*turns, ChatMessage(Role.USER, typed))


EMPTY_PROMPT = ChatPrompt((), "")


def history(
    path: Sequence[Message], system_prompt: str, check: Callable[[], object] = lambda: None
) -> tuple[ChatMessage, ...]:
    """Turn a path of messages into what a chat template takes; a system prompt that is not blank comes first.

    Replies that never got a word are left out, and the prompts on either side of them joined: many templates refuse
    empty replies and two prompts in a row, and a question that broke off must not be lost silently.
    """

    def written() -> Iterator[ChatMessage]:
        for message in path:
            check()
            if message.text.strip():
                yield ChatMessage(message.role, message.text, message.control_offsets, _answer(message))

    turns = join_neighbours(written())
    if system_prompt.strip():
        turns.insert(0, ChatMessage(Role.SYSTEM, system_prompt))
    return tuple(turns)


def _answer(message: Message) -> tuple[tuple[int, int], ...] | None:
    """Return the spans of a reply's answer; None where all of the text is its answer."""
    if message.role is not Role.ASSISTANT:
        return None
    spans = message.parts.spans
    return None if spans == ((0, len(message.text)),) else spans


def ends_with_question(path: Sequence[Message]) -> bool:
    """Whether there is a question to answer at the end of a path."""
    roles = (message.role for message in reversed(uncut(path)) if message.text.strip())
    return next(roles, None) is Role.USER


def with_summary(system_prompt: str, summary: str) -> str:
    """Return a system prompt that has a summary of the messages before."""
    if not summary.strip():
        return system_prompt
    return f"{system_prompt}\n\n{_SUMMARY_NOTE}\n\n{summary}".strip()
