"""The prompt of a chat: what the model gets of it, and where it is cut if it is too long."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, block_of
from rdchat.chat.conversation import ContextCut, Message, MessageStatus, cut_of, uncut
from rdchat.chat.notes import Note, notes_text
from rdchat.errors import PromptTooLongError
from rdchat.inference.api.messages import MAX_IMAGES, ChatImage, ChatMessage, Role, ToolCall, join_neighbours

_SUMMARY_NOTE = "This is a summary of the conversation so far; what follows goes on from it."

type FileText = Callable[[AttachedFile], str]
type ImageOf = Callable[[AttachedFile, Callable[[], None]], ChatImage | None]
type Images = Mapping[int, tuple[ChatImage, ...]]
type LeftOut = Mapping[int, Sequence[str]]
"""Digests of the images that the model does not get since a chat has too many, by the ids of their messages."""
Count = Callable[[Sequence[ChatMessage]], int]
# The longest summary, in tokens.
_LONGEST_SUMMARY = 768
# The tokens for thinking before a summary, if it cannot be switched off.
_LONGEST_THOUGHT = 2048
# In characters; a context with less room cannot be used for a summary.
_MIN_PIECE = 200

NOT_RUN = "The person did not run this call."
"""What the model gets as the result of a call that the person refused, or passed over with another question."""
_LEFT_OUT = "(an image that is left out)"
_INTERRUPTED = "This call was interrupted. Whether it had effects is unknown."
_NO_OPENING = ChatMessage(Role.USER, "")
_SPEAKERS = {Role.USER: "Person", Role.ASSISTANT: "Assistant", Role.TOOL: "Tool"}

SUMMARY_WISH = (
    "Summarise the conversation below for yourself, so that you can go on with it without having read it. Keep names,"
    " numbers, decisions, open questions and what the person wants. Write only the summary, in the conversation's own"
    " language."
)


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A path of messages with a system prompt. Its messages may be read on any thread, which raises StorageError.

    Attributes:
        path: From the root, or the last context cut, to the last message that the model gets.
        system_prompt: It may be blank.
        typed: A question that is not sent yet, with its files; blank for none.
        typed_images: The images of that question.
        images: The images of the path's messages, by their ids; `with_files` finds them.
        left_out: The oldest images of many, in whose place a line stands.
        files: The files of the project.
        opening: What stands before the first question: the files that are whole; `with_project` makes it.
        notes: The notes, which stand behind the opening, the newest last.
    """

    path: Sequence[Message]
    system_prompt: str
    typed: str = ""
    typed_images: tuple[ChatImage, ...] = ()
    images: Images = field(default_factory=dict)
    left_out: LeftOut = field(default_factory=dict)
    files: Sequence[AttachedFile] = ()
    opening: ChatMessage = _NO_OPENING
    notes: Sequence[Note] = ()

    @property
    def asks(self) -> bool:
        """Whether there is a question that is not sent yet."""
        return bool(self.typed.strip() or self.typed_images)

    @property
    def ends_with_result(self) -> bool:
        """Whether the model gets results of tools to answer."""
        return bool(self.path) and (self.path[-1].role is Role.TOOL or self.path[-1].runs_nothing)

    @property
    def beginning(self) -> tuple[ChatMessage, ...]:
        """What all chats of the project begin with, once `with_files` has it: none without files."""
        has_files = self.opening.content or self.opening.images
        return (*history((), self.system_prompt), self.opening) if has_files else ()

    def with_project(
        self,
        whole: Sequence[AttachedFile],
        passages: Callable[[str], Sequence[str]],
        text_of: FileText,
        check: Callable[[], None],
    ) -> "ChatPrompt":
        """Return the prompt with its project's files.

        Args:
            whole: Those that are whole; `with_files` adds the images among them.
            passages: Returns the blocks of the others that stand before a question.
            text_of: Reads the text of a file.
            check: Called before each message; what it raises ends the work.
        """
        blocks = [block_of(file, text_of(file)) for file in whole if file.kind is not FileKind.IMAGE]
        path: list[Message] = []
        for each in self.path:
            check()
            asks = each.role is Role.USER and each.text.strip()
            found = list(filter(None, passages(each.text))) if asks else []
            path.append(replace(each, text="\n\n".join([*found, each.text])) if found else each)
        typed = "\n\n".join([*filter(None, passages(self.typed)), self.typed]) if self.typed.strip() else self.typed
        images = [file for file in whole if file.kind is FileKind.IMAGE]
        opening = ChatMessage(Role.USER, "\n\n".join(blocks))
        return replace(self, path=path, typed=typed, files=images, opening=opening)

    def with_files(
        self,
        text_of: FileText,
        check: Callable[[], None] = lambda: None,
        *,
        image_of: ImageOf = lambda _file, _check: None,
    ) -> "ChatPrompt":
        """Return the prompt with the files of each message before its text, and a line for the oldest images of many.

        Args:
            text_of: Reads the text of a file.
            check: Called before each message; what it raises ends the work.
            image_of: Reads an image; None if it cannot be read, for which there is a line of text.
        """
        path: list[Message] = []
        seen = [(file, image_of(file, check)) for file in self.files]
        unseen = [block_of(file, "") for file, image in seen if image is None]
        shared = tuple(image for _, image in seen if image)
        text = "\n\n".join(filter(None, [self.opening.content, *unseen]))
        opening = replace(self.opening, content=text, images=shared)
        images: dict[int, tuple[ChatImage, ...]] = {}
        for each in self.path:
            check()
            pairs = [(file, image_of(file, check) if file.kind is FileKind.IMAGE else None) for file in each.files]
            images[each.id] = tuple(image for _, image in pairs if image)
            blocks = [block_of(file, text_of(file)) for file, image in pairs if image is None]
            texts = [*blocks, each.text] if each.text.strip() else blocks
            path.append(replace(each, text="\n\n".join(texts)) if blocks else each)
        excess = len(shared) + len(self.typed_images) + sum(map(len, images.values())) - MAX_IMAGES
        left_out: dict[int, Sequence[str]] = {}
        for index, each in enumerate(path):
            if excess > 0 and (first := images[each.id][:excess]):
                lines = [_LEFT_OUT] * len(first) + ([each.text] if each.text else [])
                path[index] = replace(each, text="\n".join(lines))
                images[each.id] = images[each.id][excess:]
                left_out[each.id] = [image.digest for image in first]
                excess -= len(first)
        return replace(self, path=path, images=images, opening=opening, left_out=left_out)

    def turns(self, check: Callable[[], object] = lambda: None) -> tuple[ChatMessage, ...]:
        """Return what a chat template takes: messages that are not cut, with a summary of those that are.

        `check` is called before each message, and may raise.
        """
        cut = cut_of(self.path)
        summary = cut.context_cut.summary if cut and cut.context_cut else ""
        turns = list(history(uncut(self.path), with_summary(self.system_prompt, summary), check, self.images))
        first = 1 if turns and turns[0].role is Role.SYSTEM else 0
        before = (self.opening, ChatMessage(Role.USER, notes_text(self.notes)))
        turns[first:first] = [each for each in before if each.content or each.images]
        if self.asks:
            turns.append(ChatMessage(Role.USER, self.typed, images=self.typed_images))
        return tuple(join_neighbours(turns))


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
        calls = tuple[ToolCall, ...]()
        results = dict[str, ChatMessage]()
        for message in path:
            check()
            if message.role is Role.TOOL:
                seen = images.get(message.id, ())
                results[message.tool_call_id] = ChatMessage(Role.TOOL, _result(message), images=seen)
                continue
            yield from _answered(calls, results)
            calls = message.tool_calls
            results = {}
            seen = images.get(message.id, ())
            if message.text.strip() or calls or seen:
                own = message.control_offsets
                yield ChatMessage(message.role, message.text, own, _answer(message), calls, images=seen)
        yield from _answered(calls, results)

    turns = join_neighbours(written())
    if system_prompt.strip():
        turns.insert(0, ChatMessage(Role.SYSTEM, system_prompt))
    return tuple(turns)


def _answered(calls: Sequence[ToolCall], results: Mapping[str, ChatMessage]) -> Iterator[ChatMessage]:
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
    messages = (m for m in reversed(uncut(path)) if m.text.strip() or m.files or m.tool_calls or m.role is Role.TOOL)
    last = next(messages, None)
    return last is not None and (last.role is not Role.ASSISTANT or last.runs_nothing)


def with_summary(system_prompt: str, summary: str) -> str:
    """Return a system prompt that has a summary of the messages before."""
    if not summary.strip():
        return system_prompt
    return f"{system_prompt}\n\n{_SUMMARY_NOTE}\n\n{summary}".strip()


@dataclass(frozen=True, slots=True)
class Budget:
    """The tokens that a chat may have.

    Attributes:
        limit: The model's context.
        reserve: Tokens to leave free for the next reply.
        thinks: Whether the model may think before it answers.
    """

    limit: int
    reserve: int
    thinks: bool = True


@dataclass(frozen=True, slots=True)
class SummaryPlan:
    """A text to summarise, in pieces.

    Attributes:
        message_id: The last message that is summarised.
        pieces: The text.
        max_tokens: Maximum tokens of the summary.
        thoughts: Maximum tokens of thinking before it; 0 if thinking is switched off.
    """

    message_id: int
    pieces: Sequence[str]
    max_tokens: int
    thoughts: int = 0


def plan_summary(prompt: ChatPrompt, budget: Budget, count: Count, *, to_end: bool) -> SummaryPlan | None:
    """Plan a summary of the oldest turns, so that the rest fits, or `to_end` of all turns; None if there is nothing.

    An unanswered question is never summarised.

    Raises:
        PromptTooLongError: If the context is too small for a summary.
    """
    max_tokens = min(_LONGEST_SUMMARY, budget.limit // 4)
    last = _last_answered(prompt.path) if to_end else cut_position(prompt, budget, count, max_tokens)
    text = "" if last is None else text_before(prompt.path, last)
    if last is None or not text:
        return None
    thoughts = min(_LONGEST_THOUGHT, budget.limit // 4) if budget.thinks else 0
    has_thought = any(m.parts.thought for m in prompt.path if m.role is Role.ASSISTANT)
    room = budget.limit - 2 * max_tokens - (thoughts if has_thought else 0)
    return SummaryPlan(last, pieces_of(text, count, room), max_tokens, thoughts)


def cut_position(prompt: ChatPrompt, budget: Budget, count: Count, summary_tokens: int = 0) -> int | None:
    """Return the id of the first message after which the rest of the chat fits; None if the last question is too long.

    Only whole turns are left out. A last question that leaves less than the reserve is kept if it fits.

    Args:
        prompt: The chat, with the texts of its files.
        budget: The tokens that it may have.
        count: Returns the tokens of a conversation.
        summary_tokens: Tokens reserved for the summary of the turns that are left out.
    """
    indexes = _cut_indexes(prompt)
    room = budget.limit - budget.reserve - summary_tokens
    first = bisect_left(indexes, True, key=lambda index: _tokens(prompt, index, count) <= room)
    if first < len(indexes):
        return prompt.path[indexes[first]].id
    if indexes and _tokens(prompt, indexes[-1], count) + summary_tokens < budget.limit:
        return prompt.path[indexes[-1]].id
    return None


def text_before(path: Sequence[Message], message_id: int) -> str:
    """Return the chat up to a message as plain text; an earlier summary replaces the messages that it covers."""
    end = next(index for index, message in enumerate(path) if message.id == message_id) + 1
    before = path[:end]
    earlier = cut_of(before)
    summary = earlier.context_cut.summary if earlier and earlier.context_cut else ""
    parts = [f"Summary of what came before: {summary}"] if summary else []
    for message in uncut(before):
        text = message.parts.answer if message.role is Role.ASSISTANT else message.text
        names = (f"(image: {file.name})" for file in message.files if file.kind is FileKind.IMAGE)
        text = "\n".join([*names, text, *(f"Calls {call.name} with {call.arguments}" for call in message.tool_calls)])
        if text.strip():
            parts.append(f"{_SPEAKERS[message.role]}: {text.strip()}")
    return "\n\n".join(parts)


def pieces_of(text: str, count: Count, room: int) -> list[str]:
    """Split a text into pieces that fit the context with the request for a summary.

    Args:
        text: Not blank.
        count: Returns the tokens of a conversation.
        room: Maximum tokens of such a request.

    Raises:
        PromptTooLongError: If the context is too small.
    """
    pieces = []
    size = len(text)
    while text:
        while _count(count, summary_request(text[:size], "")) > room:
            size = size * 4 // 5
            if size < _MIN_PIECE:
                raise PromptTooLongError(
                    "The model's context is too small for a summary.", "Leave out the oldest turns."
                )
        pieces.append(text[:size])
        text = text[size:]
    return pieces


def summary_request(piece: str, earlier: str) -> tuple[ChatMessage, ...]:
    """Return the request for the summary of a piece; `earlier` is the summary of the pieces before it."""
    before = f"Summary of what came before: {earlier}\n\n" if earlier else ""
    return (ChatMessage(Role.USER, f"{SUMMARY_WISH}\n\n---\n{before}{piece}\n---"),)


def _cut_indexes(prompt: ChatPrompt) -> list[int]:
    """Return the indexes of messages that the path can be cut after: a question follows them."""
    path = prompt.path
    indexes = range(len(path) - len(uncut(path)), len(path))
    return [index for index in indexes if (path[index + 1].role is Role.USER if index + 1 < len(path) else prompt.asks)]


def _last_answered(path: Sequence[Message]) -> int | None:
    replies = (m for m in reversed(path) if m.role is Role.ASSISTANT and not m.tool_calls)
    return next((m.id for m in replies if m.text.strip()), None)


def _tokens(prompt: ChatPrompt, index: int, count: Count) -> int:
    path = [replace(prompt.path[index], context_cut=ContextCut()), *prompt.path[index + 1 :]]
    return _count(count, replace(prompt, path=path).turns())


def _count(count: Count, messages: Sequence[ChatMessage]) -> int:
    try:
        return count(messages)
    except PromptTooLongError:
        return 2**62
