"""The prompt of a chat: what the model gets of its messages, notes, files and those of its project.

A `ChatPrompt` is a path of stored messages with what belongs to it. `ChatPrompt.with_files` reads the texts and
images, and makes a `FilledPrompt` of it, whose `turns` are what a chat template takes. This reads much from the disk,
so it runs on the engine's thread or on one that counts tokens. `ProjectTexts` are what the files of a project add
(`project_files`). What a model reads, what is counted, and what a summary is made of are all written by `history`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, block_of
from rdchat.chat.conversation import Message, MessagePath, MessageStatus, uncut
from rdchat.chat.notes import Note, notes_text
from rdchat.chat.summaries import SUMMARY_NOTE, ContextCut
from rdchat.inference.api import MAX_IMAGES, ChatImage, ChatMessage, Role, ToolCall, join_neighbours

type FileText = Callable[[AttachedFile], str]
type ImageOf = Callable[[AttachedFile, Callable[[], None]], ChatImage | None]
type Images = Mapping[int, tuple[ChatImage, ...]]
type LeftOut = Mapping[int, Sequence[str]]
"""Digests of the images that the model does not get since a chat has too many, by the ids of their messages."""
Count = Callable[[Sequence[ChatMessage]], int]
# What is left of a long result of a tool that is shortened, in characters; a third of it is from the end, where errors
# and exit codes stand.
_LONG_RESULT = 600
_RESULT_END = 200

NOT_RUN = "The person did not run this call."
"""What the model gets as the result of a call that the person refused, or passed over with another question."""
_LEFT_OUT = "(an image that is left out)"
_INTERRUPTED = "This call was interrupted. Whether it had effects is unknown."


@dataclass(frozen=True, slots=True)
class ProjectTexts:
    """What the files of a project add to a prompt.

    Attributes:
        opening: What stands before the first question: the files that are whole, and the names of all.
        images: The project's images.
        passages: Passages of the other files by the id of the question they stand before; None is the question that is
            not sent yet.
        in_passages: The files that are not whole.
        found: Those that have passages before the last question, which `taken` names.
    """

    opening: str = ""
    images: Sequence[AttachedFile] = ()
    passages: Mapping[int | None, str] = field(default_factory=dict)
    in_passages: Sequence[AttachedFile] = ()
    found: Sequence[AttachedFile] = ()


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A path of messages with a system prompt. Its messages may be read on any thread, which raises StorageError.

    Attributes:
        path: From the root, or the last context cut, to the last message that the model gets.
        system_prompt: It may be blank.
        typed: A question that is not sent yet; blank for none.
        typed_files: Its files, as they stand in the prompt.
        typed_images: Its images.
        files: The files of the project.
        notes: The notes, the newest last.
    """

    path: Sequence[Message]
    system_prompt: str
    typed: str = ""
    typed_files: str = ""
    typed_images: tuple[ChatImage, ...] = ()
    files: Sequence[AttachedFile] = ()
    notes: Sequence[Note] = ()

    @property
    def asks(self) -> bool:
        """Whether there is a question that is not sent yet."""
        return bool(self.typed.strip() or self.typed_files or self.typed_images)

    @property
    def without_typed(self) -> "ChatPrompt":
        """The prompt without the question that is not sent yet."""
        return replace(self, typed="", typed_files="", typed_images=())

    @property
    def ends_with_result(self) -> bool:
        """Whether the model gets results of tools to answer, or refusals, if none of its calls can be run."""
        return bool(self.path) and (self.path[-1].role is Role.TOOL or self.path[-1].runs_nothing)

    def permission(self, address: str) -> str:
        """Return what allows a chat to go to a server: its address, with digests of the project's files and notes."""
        digests = sorted({file.digest for file in self.files})
        if self.notes:
            digests.append(sha256(notes_text(self.notes).encode()).hexdigest())
        return " ".join([address, *digests])

    def with_files(
        self,
        text_of: FileText,
        check: Callable[[], None] = lambda: None,
        *,
        image_of: ImageOf = lambda _file, _check: None,
        shared: ProjectTexts = ProjectTexts(),
    ) -> "FilledPrompt":
        """Return the prompt with what the model sees of its path (`seen`), and the files before each message's text.

        Where there are more images than a prompt may have, a line stands for each of the oldest.

        Args:
            text_of: Reads the text of a file.
            check: Called before each message; what it raises ends the work.
            image_of: Reads an image; None if it cannot be read, for which there is a line of text.
            shared: What the files of the project add.
        """
        of_project = [(file, image_of(file, check)) for file in shared.images]
        unreadable = [block_of(file, "") for file, image in of_project if image is None]
        text = "\n\n".join(filter(None, [shared.opening, *unreadable]))
        opening = ChatMessage(Role.USER, text, images=tuple(image for _, image in of_project if image))
        path: list[Message] = []
        images: dict[int, tuple[ChatImage, ...]] = {}
        for each in seen(self.path):
            check()
            pairs = [(file, image_of(file, check) if file.kind is FileKind.IMAGE else None) for file in each.files]
            images[each.id] = tuple(image for _, image in pairs if image)
            blocks = [block_of(file, text_of(file)) for file, image in pairs if image is None]
            parts = [*blocks, shared.passages.get(each.id, ""), each.text]
            path.append(replace(each, text="\n\n".join(part for part in parts if part.strip())))
        # Images beyond the limit: the first messages give theirs up, oldest first, until there are few enough. Those of
        # the project and of the typed question stay.
        excess = len(opening.images) + len(self.typed_images) + sum(map(len, images.values())) - MAX_IMAGES
        left_out: dict[int, Sequence[str]] = {}
        for index, each in enumerate(path):
            if excess > 0 and (oldest := images[each.id][:excess]):
                lines = [_LEFT_OUT] * len(oldest) + ([each.text] if each.text else [])
                path[index] = replace(each, text="\n".join(lines))
                images[each.id] = images[each.id][excess:]
                left_out[each.id] = [image.digest for image in oldest]
                excess -= len(oldest)
        typed = "\n\n".join(filter(None, [self.typed_files, shared.passages.get(None, ""), self.typed]))
        return FilledPrompt(
            path, self.system_prompt, opening, self.notes, typed, self.typed_images, images, left_out, shared
        )


@dataclass(frozen=True, slots=True)
class FilledPrompt:
    """A prompt with the texts of its files and its images.

    Attributes:
        path: What the model sees of the messages, each with its files and passages before its text.
        system_prompt: It may be blank.
        opening: What stands before the first question: the project's files.
        notes: They stand behind the opening, the newest last.
        typed: A question that is not sent yet, with its files and passages; blank for none.
        typed_images: The images of that question.
        images: The images of the path's messages, by their ids.
        left_out: The oldest images of many, in whose place a line stands.
        shared: What the files of the project add.
    """

    path: Sequence[Message]
    system_prompt: str
    opening: ChatMessage
    notes: Sequence[Note]
    typed: str
    typed_images: tuple[ChatImage, ...]
    images: Images
    left_out: LeftOut
    shared: ProjectTexts

    @property
    def asks(self) -> bool:
        """Whether there is a question that is not sent yet."""
        return bool(self.typed.strip() or self.typed_images)

    @property
    def beginning(self) -> tuple[ChatMessage, ...]:
        """What all chats of the project begin with; none without files."""
        has_files = self.opening.content or self.opening.images
        return (*history((), self.system_prompt), self.opening) if has_files else ()

    @property
    def stored(self) -> "FilledPrompt":
        """The prompt without the question that is not sent yet."""
        return replace(self, typed="", typed_images=())

    def turns(self, check: Callable[[], object] = lambda: None) -> tuple[ChatMessage, ...]:
        """Return what a chat template takes; `check` is called before each message, and may raise."""
        turns = list(history(self.path, self.system_prompt, check, self.images))
        # The opening and the notes come behind the system prompt, if there is one.
        first = 1 if turns and turns[0].role is Role.SYSTEM else 0
        before = (self.opening, ChatMessage(Role.USER, notes_text(self.notes)))
        turns[first:first] = [each for each in before if each.content or each.images]
        if self.asks:
            turns.append(ChatMessage(Role.USER, self.typed, images=self.typed_images))
        return tuple(join_neighbours(turns))


def seen(path: Sequence[Message]) -> Iterator[Message]:
    """Yield what a model sees of a path: one message in place of those that are cut, and then the others.

    The message in place of others has their summary, and those of their files that stay whole; where there is neither,
    nothing stands in their place. The messages behind the cut are whole, but for long results of tools up to a cut that
    shortens them.
    """
    messages = MessagePath.as_path(path)
    cut_index = messages.cut_index
    if cut_index >= 0:
        message = messages[cut_index]
        cut = message.context_cut or ContextCut()
        if cut.summary.strip() or cut.files:
            text = f"{SUMMARY_NOTE}\n\n{cut.summary}" if cut.summary.strip() else ""
            chat = message.conversation_id
            yield Message(message.id, chat, None, Role.USER, text, files=cut.files, context_cut=cut)
    shortened_index = messages.shortened_index
    for index in range(cut_index + 1, len(messages)):
        yield shortened(messages[index]) if index <= shortened_index else messages[index]


def shortened(message: Message) -> Message:
    """Return a result of a tool without its images and the middle of a long text, and any other message as it is."""
    excess = len(message.text) - _LONG_RESULT
    if message.role is not Role.TOOL or (excess <= 0 and not message.files):
        return message
    lines = [message.text]
    if excess > 0:
        begin = message.text[: _LONG_RESULT - _RESULT_END]
        lines = [begin, f"(left out: {excess:,} characters)", message.text[-_RESULT_END:]]
    lines += [f"(left out: {file.name})" for file in message.files]
    return replace(message, text="\n".join(lines), files=())


def history(
    path: Sequence[Message],
    system_prompt: str,
    check: Callable[[], object] = lambda: None,
    images: Images | None = None,
) -> tuple[ChatMessage, ...]:
    """Turn a path of messages into what a chat template takes; a system prompt that is not blank comes first.

    Replies that never got a word are left out, and the prompts on either side of them joined: many templates refuse
    empty replies and two prompts in a row, and a question that broke off must not be lost silently. Each call of a
    reply is followed by its result, where there is none by its refusal or `NOT_RUN`: templates refuse other orders, and
    calls without a result. A result of no call is left out. `images` are those of the messages, by their ids.
    """
    images = images or {}

    def written() -> Iterator[ChatMessage]:
        # The calls of the last reply, and their results by the calls' ids. The results are yielded, in the order of the
        # calls, when the next message that is no result comes, or at the end.
        calls = tuple[ToolCall, ...]()
        results = dict[str, ChatMessage]()
        for message in path:
            check()
            own_images = images.get(message.id, ())
            if message.role is Role.TOOL:
                results[message.tool_call_id] = ChatMessage(Role.TOOL, _result(message), images=own_images)
                continue
            yield from _answered(calls, results)
            calls = message.tool_calls
            results = {}
            if message.text.strip() or calls or own_images:
                control = message.control_offsets
                yield ChatMessage(message.role, message.text, control, _answer(message), calls, images=own_images)
        yield from _answered(calls, results)

    turns = join_neighbours(written())
    if system_prompt.strip():
        turns.insert(0, ChatMessage(Role.SYSTEM, system_prompt))
    return tuple(turns)


def _answered(calls: Sequence[ToolCall], results: Mapping[str, ChatMessage]) -> Iterator[ChatMessage]:
    """Yield the result of each call, in their order; its refusal, or `NOT_RUN`, where there is none."""
    for call in calls:
        refused = ChatMessage(Role.TOOL, f"Error: {call.refusal or NOT_RUN}")
        yield replace(results.get(call.call_id, refused), tool_call_id=call.call_id, name=call.name)


def _result(message: Message) -> str:
    """Return what the model gets as the result of a call."""
    if message.status is MessageStatus.COMPLETE:
        return message.text
    failed = message.status is MessageStatus.FAILED
    return f"Error: {(message.text or message.error) if failed else _INTERRUPTED}"


def _answer(message: Message) -> tuple[tuple[int, int], ...] | None:
    """Return the spans of a reply's answer; None where all of the text is its answer."""
    if message.role is not Role.ASSISTANT:
        return None
    spans = message.parts.spans
    return None if spans == ((0, len(message.text)),) else spans


def ends_with_question(path: Sequence[Message]) -> bool:
    """Whether there is a question, or a result or a refusal of a call, to answer at the end of a path."""
    last = next(filter(is_said, reversed(uncut(path))), None)
    return last is not None and (last.role is not Role.ASSISTANT or last.runs_nothing)


def is_said(message: Message) -> bool:
    """Whether a message has anything, unlike a reply that never got a word."""
    return bool(message.text.strip() or message.files or message.tool_calls) or message.role is Role.TOOL
