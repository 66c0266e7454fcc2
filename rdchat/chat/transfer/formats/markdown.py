"""Writes the shown path of a chat as Markdown, with settings and statistics if wanted."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from html import escape

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import ContextCut, MadeWith, Message, MessageStatus
from rdchat.chat.storage.whole_chat import WholeChat
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.requests import Role, SamplingParams

_ENDS = {
    FinishReason.LENGTH: "ended at the token limit",
    FinishReason.STOP_STRING: "ended at a stop string",
    FinishReason.CONTEXT_FULL: "ended as the context was full",
    FinishReason.CANCELLED: "stopped",
}

_FENCE = re.compile(r"^( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)$")


def as_markdown(chat: WholeChat, system_prompt: str, sampling: SamplingParams, *, details: bool) -> str:
    """Return a chat as Markdown.

    Args:
        chat: The chat.
        system_prompt: Of the preferences, which holds where the chat has none of its own.
        sampling: Likewise.
        details: Whether to add dates, settings and statistics.
    """
    prompt = system_prompt if chat.about.system_prompt is None else chat.about.system_prompt
    parts = [f"# {' '.join(chat.about.title.split()) or 'Chat'}"]
    if details:
        parts.append("\n".join(_settings(chat, chat.about.sampling or sampling)))
        if prompt.strip():
            parts.append(f"## System prompt\n\n{prompt.strip()}")
    path = _shown_path(chat.messages)
    cut = next((message for message in reversed(path) if message.context_cut is not None), None)
    for place, message in enumerate(path, start=1):
        parts.append("\n\n".join(_message(chat, message, details=details)))
        if message is cut and message.context_cut is not None:
            parts.append("\n\n".join(_cut(message.context_cut, place)))
    return "\n\n".join(parts) + "\n"


def _shown_path(messages: Sequence[Message]) -> list[Message]:
    """Return the path that is shown: from a first message to the one that was activated last."""
    step = max(messages, key=lambda message: message.activated, default=None)
    path = []
    while step is not None:
        path.append(step)
        step = None if step.parent_id is None else messages[step.parent_id]
    return path[::-1]


def _alternatives(messages: Sequence[Message], message: Message) -> list[Message]:
    """Return the message and its alternatives, in the order in which they were written."""
    return [each for each in messages if (each.parent_id, each.role) == (message.parent_id, message.role)]


def _settings(chat: WholeChat, sampling: SamplingParams) -> Iterator[str]:
    if chat.about.created_at is not None:
        yield f"- Begun: {_date(chat.about.created_at)}"
    if chat.about.updated_at is not None:
        yield f"- Last changed: {_date(chat.about.updated_at)}"
    models = dict.fromkeys(message.model for message in chat.messages if message.model)
    if models:
        yield f"- {'Models' if len(models) > 1 else 'Model'}: {', '.join(models)}"
    yield f"- Sampling: {_sampling(sampling)}"


def _sampling(sampling: SamplingParams) -> str:
    parts = [f"temperature {sampling.temperature:g}", f"top-p {sampling.top_p:g}"]
    parts += [f"top-k {sampling.top_k}"] if sampling.top_k else []
    parts += [f"min-p {sampling.min_p:g}"] if sampling.min_p else []
    parts += [f"repetition penalty {sampling.repetition_penalty:g}"] if sampling.repetition_penalty != 1 else []
    parts += [f"at most {sampling.max_tokens:,} tokens"]
    parts += [f"stop at {', '.join(map(repr, sampling.stop))}"] if sampling.stop else []
    return ", ".join(parts)


def _message(chat: WholeChat, message: Message, *, details: bool) -> Iterator[str]:
    who = "You" if message.role is Role.USER else message.model or "Reply"
    yield f"## {who}{' (edited)' if message.edited else ''}"
    for file in message.files:
        yield from _file(file, chat.texts[file.digest], details=details)
    text = message.text
    if message.role is Role.ASSISTANT:
        parts = replace(message, status=MessageStatus.COMPLETE).parts  # one that is still written as it is now
        text = parts.answer
        if parts.thought:
            yield "\n".join(f"> {line}".rstrip() for line in ["**Thinking**", "", *parts.thought.splitlines()])
    if text.strip():
        yield _closed(text.strip("\n"))
    if message.status is MessageStatus.FAILED:
        yield f"*Failed: {message.error or 'no reason is known'}*"
    elif message.status is not MessageStatus.COMPLETE:
        yield "*Interrupted*"
    if details and (figures := ", ".join(_figures(chat, message))):
        yield f"*{figures[0].upper()}{figures[1:]}*"


def _closed(text: str) -> str:
    """Return a text with the block of code ended in which it broke off: what follows would be code, too."""
    indent = fence = ""
    for line in text.split("\n"):
        found = _FENCE.match(line)
        if found is None:
            continue
        if not fence:
            indent, fence = found[1], found[2]
        elif found[2].startswith(fence) and not found[3].strip():
            fence = ""
    return f"{text}\n{indent}{fence}" if fence else text


def _cut(cut: ContextCut, messages: int) -> Iterator[str]:
    """Say what the model is not told of: the last cut of a path counts, and those before it do not."""
    above = "message above" if messages == 1 else f"{messages:,} messages above"
    yield "---"
    if cut.summary:
        by = f", by {cut.model}" if cut.model else ""
        yield f"*The model gets a summary of the {above}{by}:*"
        yield "\n".join(f"> {line}".rstrip() for line in cut.summary.strip().splitlines())
    else:
        yield f"*The model is not told the {above}.*"
    yield "---"


def _file(file: AttachedFile, text: str, *, details: bool) -> Iterator[str]:
    """Yield a file by its name; with details, its text folded below."""
    named = f"{file.name} ({file.taken})" if file.taken else file.name
    if not details:
        yield f"*File: {named}*"
        return
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    yield f"<details><summary>File: {escape(named)}</summary>"
    yield f"{fence}\n{text}\n{fence}"
    yield "</details>"


def _figures(chat: WholeChat, message: Message) -> Iterator[str]:
    others = _alternatives(chat.messages, message)
    if len(others) > 1:
        place = next(place for place, each in enumerate(others, start=1) if each is message)
        yield f"{'reply' if message.role is Role.ASSISTANT else 'version'} {place} of {len(others)}"
    if message.created_at is not None:
        yield _date(message.created_at)
    if message.finish_reason in _ENDS:
        yield _ENDS[message.finish_reason]
    made_with = message.made_with
    if made_with is not None and made_with.once:
        yield "for this reply alone: " + "; ".join(_once(made_with))
    if (statistics := message.statistics) is None:
        return
    if statistics.generated_tokens:
        yield f"{statistics.generated_tokens:,} tokens"
    if statistics.decode_tps:
        yield f"{statistics.decode_tps:,.1f} tokens/s"
    if statistics.ttft_ms > 0:
        yield f"{statistics.ttft_ms / 1000:.2f} s to the first token"
    if message.drafting is not None and statistics.acceptance_rate is not None:
        yield f"drafted by {message.drafting.mode.words.lower()}, {statistics.acceptance_rate:.0%} accepted"


def _once(made_with: MadeWith) -> Iterator[str]:
    if made_with.sampling is not None:
        yield f"temperature {made_with.sampling.temperature:g}"
    if made_with.system_prompt is not None:
        yield (
            f"system prompt “{made_with.system_prompt.strip()}”"
            if made_with.system_prompt.strip()
            else "no system prompt"
        )


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M}"
