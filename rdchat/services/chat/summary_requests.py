"""The texts of summaries: what a model is asked, and what is taken of its answer.

A summary is asked of the model with the chat's own prompt and one message behind it (`asked_of_chat`), so that its KV
cache is read on. Where that does not fit, the text of the turns is summarised in pieces (`pieces_of`): each request has
the summary of the pieces before.
"""

import re
from collections.abc import Sequence

from rdchat.chat.attachments.attached_file import free_tag, piece_end
from rdchat.chat.conversation import Message
from rdchat.errors import PromptTooLongError
from rdchat.inference.api import ChatMessage, Role, join_neighbours
from rdchat.services.chat.chat_prompt import Count

SUMMARY_WISH = (
    "for yourself, so that you can go on with it without having read it. Keep names, numbers, decisions, open questions"
    " and what the person wants, and what failed or was refused. Write only the summary, in the conversation's own"
    " language."
)
"""Part of each request for a summary."""
_SPEAKERS = {Role.USER: "Person", Role.ASSISTANT: "Assistant", Role.TOOL: "Tool"}
# In characters; a context with less room cannot be used for a summary.
_MIN_PIECE = 200
# Characters of the question that ends what is summarised, so that the model finds it.
_LONGEST_BEGINNING = 80
# A shorter beginning of a summary is of no use.
_MIN_SUMMARY = 100
_SENTENCE_END = re.compile(r"[.!?\u2026][\"'\u201d\u2019\u00bb)\]]*(?=\s|$)|[\u3002\uff01\uff1f]")


def asked_of_chat(turns: Sequence[ChatMessage], until: str) -> tuple[ChatMessage, ...]:
    """Return the request for a summary of a chat: its own prompt, and one message.

    Args:
        turns: The chat's prompt.
        until: The first question that stays; blank where all of the prompt is to be summarised.
    """
    beginning = " ".join(until.split())[:_LONGEST_BEGINNING]
    span = f"up to the question that begins “{beginning}”" if beginning else "so far"
    wish = f"Do not go on with our conversation, and call no tool. Summarise it {span}, {SUMMARY_WISH}"
    return tuple(join_neighbours([*turns, ChatMessage(Role.USER, wish)]))


def asked_of_piece(piece: str, earlier: str) -> tuple[ChatMessage, ...]:
    """Return the request for the summary of a piece; `earlier` is the summary of the pieces before it."""
    turn = piece.partition(">")[0] + ">"
    # The model that wrote the summary may have repeated the marks that it saw.
    text = f"{turn}Summary of what came before: {earlier.replace(turn, ' ')}\n\n{piece}" if earlier else piece
    tag = free_tag("text", text)
    wish = f"Summarise the conversation below {SUMMARY_WISH} Only {turn} begins a turn in it."
    return (ChatMessage(Role.USER, f"{wish}\n\n<{tag}>\n{text}\n</{tag}>"),)


def text_of(turns: Sequence[ChatMessage]) -> str:
    """Return a conversation as plain text, without its thoughts; images are only named.

    Each turn begins with a mark that stands nowhere else, so that no text in it can look like another turn.
    """
    parts = []
    for turn in turns:
        lines = [f"(image: {image.name})" for image in turn.images]
        spans = turn.answer or ((0, len(turn.content)),)
        lines.append("".join(turn.content[start:end] for start, end in spans))
        lines += [f"Calls {call.name} with {call.arguments}" for call in turn.tool_calls]
        text = "\n".join(lines).strip()
        if text:
            parts.append(f"{_SPEAKERS[turn.role]}: {text}")
    tag = free_tag("turn", "\n".join(parts))
    return "\n\n".join(f"<{tag}>{part}" for part in parts)


def pieces_of(text: str, count: Count, room: int) -> list[str]:
    """Split a text into pieces that fit the context with the request for a summary.

    A piece ends at a paragraph, a line, a sentence or a word, where there is one. One that begins within a turn has
    the turn's mark and speaker again.

    Args:
        text: Not blank, of `text_of`.
        count: Returns the tokens of a conversation.
        room: Maximum tokens of such a request.

    Raises:
        PromptTooLongError: If the context is too small.
    """
    pieces = []
    size = len(text)
    mark = text.partition(">")[0] + ">"
    while text:
        while counted_tokens(count, asked_of_piece(text[:size], "")) > room:
            size = size * 4 // 5
            if size < _MIN_PIECE:
                raise PromptTooLongError(
                    "The model's context is too small for a summary.", "Choose a model with a longer context."
                )
        end = piece_end(text, 0, size)
        head = text[text.rfind(mark, 0, end) :].partition(": ")[0] + ": "
        pieces.append(text[:end])
        text = text[end:]
        if text and not text.startswith(mark):
            text = head + text
    return pieces


def whole_sentences(text: str) -> str:
    """Return a summary that was cut off up to its last whole sentence; empty if that is too short to be of use."""
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    kept = text[: ends[-1]] if ends else ""
    return kept if len(kept) >= _MIN_SUMMARY else ""


def sources_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """Return the names of the tools, remote servers and files that texts of some messages come from."""
    names: list[str] = []
    for message in messages:
        names += message.context_cut.sources if message.context_cut else ()
        names += [message.tool_name, message.drafting.server if message.drafting else ""]
        names += [file.name for file in message.files]
    return tuple(dict.fromkeys(filter(None, names)))


def counted_tokens(count: Count, messages: Sequence[ChatMessage]) -> int:
    """Return the tokens of a conversation; more than any budget if they are too many to be counted."""
    try:
        return count(messages)
    except PromptTooLongError:
        return 2**62
