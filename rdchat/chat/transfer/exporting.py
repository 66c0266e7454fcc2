"""Exports chats as JSON, or the visible path of a chat as Markdown. A file is written completely or not at all.

`export_chats` is the entry. It runs in the transfer process, or in `rdchat chats export`. The functions that yield
strings yield blocks of Markdown, which `as_markdown` separates by blank lines.
"""

import re
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from html import escape
from itertools import chain, count
from pathlib import Path
from typing import Any
from unicodedata import normalize
from urllib.parse import quote

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, image_data
from rdchat.chat.attachments.html_text import fenced
from rdchat.chat.conversation import MadeWith, Message, MessageStatus
from rdchat.chat.option_order import ChatValues, OptionOrder
from rdchat.chat.projects import Folder
from rdchat.chat.settings import Settings
from rdchat.chat.storage import (
    FullChat,
    folders_listed,
    read_chat,
    read_project,
    reading,
    rows_of,
    text_column,
    visible_ids,
)
from rdchat.chat.summaries import ContextCut
from rdchat.chat.transfer.chat_import import ExportReport, TaskProgress
from rdchat.chat.transfer.rdchat_json import write_chats
from rdchat.errors import ImageRefusedError, StorageError, file_errors
from rdchat.files import chosen_file, folder_beside, from_plain
from rdchat.inference.api import SAMPLING_NUMBERS, FinishReason, Role, SamplingDefaults, SamplingParams
from rdchat.inference.vision.image_process import AS_IT_IS, as_file, shared_images
from rdchat.work import Job

# Finish reasons that are named in the export; for others, nothing is said.
_ENDS = {
    FinishReason.LENGTH: "ended at the token limit",
    FinishReason.STOP_STRING: "ended at a stop string",
    FinishReason.CONTEXT_FULL: "ended because the context was full",
    FinishReason.CANCELLED: "stopped",
}

# The fence of a code block: its indent, its signs, and what follows them.
_FENCE = re.compile(r"^( {0,3})(`{3,}+(?=[^`]*$)|~{3,}+)(.*)$")
# The most characters of a name without its ending, and half of the most bytes: file systems allow 255 bytes in all.
_LONGEST_NAME = 80
_HAS_IMAGES = """
    SELECT 1 FROM message_files WHERE kind = 'image' UNION SELECT 1 FROM folder_files WHERE kind = 'image' LIMIT 1
"""
_NO_BRACKETS = str.maketrans("[]", "()")
_NOT_IN_NAMES = re.compile(r'[\x00-\x1f\x7f/\\:*?"<>|]+')
type Family = tuple[int | None, Role]
"""The parent and the role that alternatives have in common."""
type TextOf = Callable[[FullChat, Path], str]
"""Returns a chat's Markdown; its images are written to a folder with this path."""


def as_markdown(
    chat: FullChat,
    values: ChatValues,
    images: Mapping[str, str],
    *,
    details: bool,
    shared: Sequence[AttachedFile] = (),
) -> str:
    """Return a chat as Markdown.

    Args:
        chat: The chat.
        values: Its options.
        images: Addresses of its images, by digest; others are named only.
        details: Whether to add dates, settings, statistics and the texts of files.
        shared: The files of its project; those without a digest are named only.
    """
    parts = [f"# {' '.join(chat.conversation.title.split()) or 'Chat'}"]
    if details:
        parts.append("\n".join(_settings(chat, values.sampling)))
        if prompt := values.system_prompt.strip():
            parts.append(f"## System prompt\n\n{prompt}")
    if shared:
        listed = (block for file in shared for block in _file(file, chat.texts, images, details=details))
        parts.append("\n\n".join(["## Files of the project", *listed]))
    path = _display_path(chat.messages)
    # The last message on the path that hides those before it from the model.
    hiding = (message for message in reversed(path) if message.context_cut and not message.context_cut.shortens)
    cut = next(hiding, None)
    families = defaultdict[Family, list[int]](list)
    for message in chat.messages:
        families[message.parent_id, message.role].append(message.id)
    for number, message in enumerate(path, start=1):
        blocks = [*_message(chat, message, images, details=details)]
        figures = ", ".join(_figures(families[message.parent_id, message.role], message)) if details else ""
        if figures:
            blocks.append(f"*{figures[0].upper()}{figures[1:]}*")
        parts.append("\n\n".join(blocks))
        if message is cut and message.context_cut is not None:
            parts.append("\n\n".join(_cut(message.context_cut, number)))
    return "\n\n".join(parts) + "\n"


def _display_path(messages: Sequence[Message]) -> list[Message]:
    """Return the visible path: from a first message to the one activated last."""
    step = max(messages, key=lambda message: message.activated, default=None)
    path = []
    while step is not None:
        path.append(step)
        step = None if step.parent_id is None else messages[step.parent_id]
    return path[::-1]


def _settings(chat: FullChat, sampling: SamplingParams) -> Iterator[str]:
    if chat.conversation.created_at is not None:
        yield f"- Begun: {date_text(chat.conversation.created_at)}"
    if chat.conversation.updated_at is not None:
        yield f"- Last changed: {date_text(chat.conversation.updated_at)}"
    models = dict.fromkeys(message.model for message in chat.messages if message.model)
    if models:
        yield f"- {'Models' if len(models) > 1 else 'Model'}: {', '.join(models)}"
    yield f"- Sampling: {', '.join(_sampling(sampling))}"


def _sampling(sampling: SamplingParams) -> Iterator[str]:
    for name, number in SAMPLING_NUMBERS.items():
        value = getattr(sampling, name)
        if name in {"temperature", "top_p"} or value != getattr(SamplingParams(), name):
            yield f"{number.label} {value if isinstance(value, int) else format(value, 'g')}"
    yield f"at most {sampling.max_tokens:,} tokens"
    if sampling.stop:
        yield f"stop at {', '.join(map(repr, sampling.stop))}"


def _message(chat: FullChat, message: Message, images: Mapping[str, str], *, details: bool) -> Iterator[str]:
    others = {Role.USER: "You", Role.TOOL: f"Result of {message.tool_name}"}
    who = others.get(message.role, message.model or "Reply")
    yield f"## {who}{' (edited)' if message.edited else ''}"
    for file in message.files:
        yield from _file(file, chat.texts, images, details=details)
    text = message.text
    if message.role is Role.ASSISTANT:
        # An unfinished reply is exported as it is now.
        parts = replace(message, status=MessageStatus.COMPLETE).parts
        text = parts.answer
        if parts.thought:
            yield "\n".join(f"> {line}".rstrip() for line in ["**Thinking**", "", *parts.thought.splitlines()])
    if text.strip():
        yield fenced(text) if message.role is Role.TOOL else _closed(text.strip("\n"))
    for call in message.tool_calls:
        yield f"**Calls {call.name}**\n\n{fenced(call.arguments, 'json')}"
        if call.refusal:
            yield f"*Not run: {call.refusal}*"
    if message.status is MessageStatus.FAILED:
        yield f"*Failed: {message.error or 'reason unknown'}*"
    elif message.status is not MessageStatus.COMPLETE:
        yield "*Interrupted*"


def _closed(text: str) -> str:
    """Close a code block in which a text broke off; otherwise what follows would be code too."""
    indent = ""
    fence = ""
    for line in text.split("\n"):
        match = _FENCE.match(line)
        if match is None:
            continue
        if not fence:
            indent = match[1]
            fence = match[2]
        elif match[2].startswith(fence) and not match[3].strip():
            fence = ""
    return f"{text}\n{indent}{fence}" if fence else text


def _cut(cut: ContextCut, messages: int) -> Iterator[str]:
    """Yield a note on what the model does not get: the last cut of a path counts, and those before it do not."""
    above = "message above" if messages == 1 else f"{messages:,} messages above"
    yield "---"
    if cut.summary:
        by = f", by {cut.model}" if cut.model else ""
        edited = ", edited by a person" if cut.edited else ""
        sources = f", with text from {', '.join(cut.sources)}" if cut.sources else ""
        yield f"*The model gets a summary of the {above}{by}{edited}{sources}:*"
        yield "\n".join(f"> {line}".rstrip() for line in cut.summary.strip().splitlines())
    else:
        yield f"*The model does not get the {above}.*"
    yield "---"


def _file(file: AttachedFile, texts: Mapping[str, str], images: Mapping[str, str], *, details: bool) -> Iterator[str]:
    """Yield an image by its address, or a file's name; with details, also its text, folded."""
    if image := images.get(file.digest):
        yield f"![{file.name.translate(_NO_BRACKETS)}]({image})"
        return
    named = f"{file.name} ({file.taken})" if file.taken else file.name
    if not details or not file.digest or file.kind is FileKind.IMAGE:
        yield f"*File: {named}*"
        return
    yield f"<details><summary>File: {escape(named)}</summary>"
    yield fenced(texts[file.digest])
    yield "</details>"


def _figures(family: Sequence[int], message: Message) -> Iterator[str]:
    """Yield the details of a message, such as its date and speed; `family` has the ids of its alternatives."""
    if len(family) > 1:
        kind = "reply" if message.role is Role.ASSISTANT else "version"
        yield f"{kind} {family.index(message.id) + 1} of {len(family)}"
    if message.created_at is not None:
        yield date_text(message.created_at)
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
    if message.drafting is not None and message.drafting.mode and statistics.acceptance_rate is not None:
        yield f"drafted by {message.drafting.mode.label.lower()}, {statistics.acceptance_rate:.0%} accepted"


def _once(made_with: MadeWith) -> Iterator[str]:
    if made_with.sampling is not None:
        yield f"temperature {made_with.sampling.temperature:g}"
    if made_with.system_prompt is not None:
        prompt = made_with.system_prompt.strip()
        yield f"system prompt “{prompt}”" if prompt else "no system prompt"


def date_text(seconds: float) -> str:
    """Return a date and a time of day: `2026-11-29 16:30`."""
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M}"


def export_chats(
    job: Job[Any],
    database: str,
    path: str,
    *,
    kind: str,
    chats: list[int] | None,
    details: bool,
    shares: bool = False,
    settings: Mapping[str, Any],
    sampling: Mapping[str, Any],
    model: str = "",
) -> dict[str, Any]:
    """Export chats in their state at one moment; return an `ExportReport` as JSON.

    Args:
        job: Receives the progress.
        database: The store's file.
        path: The file or folder to write.
        kind: `json`; `markdown` for one chat in a file; `folder` for a Markdown file per chat.
        chats: Their ids; None for all.
        details: Whether Markdown includes settings and statistics.
        shares: Whether the projects of some chats have their files and notes; all chats have them always.
        settings: The app's settings.
        sampling: That of the model.
        model: Folder of the model; empty without one.

    Raises:
        StorageError: If a chat is gone, the file cannot be written, or the folder already exists.
    """
    defaults = SamplingDefaults(from_plain(SamplingParams(), sampling)[0])
    order = OptionOrder(from_plain(Settings(), settings)[0], defaults, Path(model) if model else None)
    with reading(Path(database)) as connection:
        # The transaction ends when the connection closes.
        connection.execute("BEGIN")
        folders = {each.id: each for each in folders_listed(rows_of(connection))}
        order = replace(order, find_folder=folders.get)
        ids = visible_ids(connection) if chats is None else chats
        shares = shares or chats is None
        full_chats = _read(connection, ids, TaskProgress(job))
        if kind == "json":
            with chosen_file(Path(path)) as temporary, temporary.open("w", encoding="utf-8") as file:
                usual = order.usual()
                has_images = connection.execute(_HAS_IMAGES).fetchone() is not None
                entries = _with_projects(
                    connection, full_chats, order, folders.values(), shares=shares, everything=chats is None
                )
                write_chats(file, entries, usual.system_prompt, usual.sampling, has_images=has_images)
        else:

            def text_of(chat: FullChat, images: Path) -> str:
                shared = order.files(chat.conversation)
                addresses = _write_images(chat, images, job)
                values = order.effective_values(chat.conversation)
                files = shared if shares else _named(shared)
                return text_column(as_markdown(chat, values, addresses, details=details, shared=files))

            if kind == "folder":
                _write_folder(Path(path), full_chats, text_of)
            else:
                _write_one(Path(path), next(full_chats), text_of)
    return asdict(ExportReport(path, len(ids)))


def _read(connection: sqlite3.Connection, chats: Sequence[int], progress: TaskProgress) -> Iterator[FullChat]:
    for number, conversation in enumerate(chats):
        progress.report("Exporting", number / len(chats))
        yield read_chat(connection, conversation)


def _with_projects(
    connection: sqlite3.Connection,
    chats: Iterable[FullChat],
    order: OptionOrder,
    folders: Iterable[Folder],
    *,
    shares: bool,
    everything: bool,
) -> Iterator[FullChat]:
    """Yield chats, each project behind its first chat; with everything, also those without a chat.

    Unless it `shares`, a project has no notes, and the names of its files alone.
    """
    unwritten = {folder.id: folder for folder in folders if folder.is_project}
    for chat in chats:
        yield chat
        folder = order.project_folder(chat.conversation)
        if folder is None or not unwritten.pop(folder.id, None):
            continue
        if shares:
            yield read_project(connection, folder)
        else:
            yield replace(read_project(connection, replace(folder, files=_named(folder.files))), notes=())
    if everything:
        yield from (read_project(connection, folder) for folder in unwritten.values())


def _named(files: Iterable[AttachedFile]) -> tuple[AttachedFile, ...]:
    """Return files without what leads to their content."""
    return tuple(replace(file, digest="") for file in files)


def _write_images(chat: FullChat, folder: Path, job: Job[Any]) -> dict[str, str]:
    """Write the images of a visible path to a new folder, as PNG without metadata; return their addresses by digest.

    An image that cannot be read is left out.
    """
    files = {file.digest: file for message in _display_path(chat.messages) for file in message.files}
    addresses = dict[str, str]()
    for file in files.values():
        if file.kind is not FileKind.IMAGE:
            continue
        with suppress(ImageRefusedError, ValueError), as_file(image_data(chat.texts[file.digest])) as path:
            pixels = shared_images().scale_image(path, AS_IT_IS, name=file.name, waiting=job.check_cancelled)
            folder.mkdir(exist_ok=True)
            target = folder / f"{len(addresses) + 1}.png"
            target.write_bytes(pixels)
            addresses[file.digest] = f"{quote(folder.name)}/{target.name}"
    return addresses


def _write_one(path: Path, chat: FullChat, text_of: TextOf) -> None:
    """Write a chat to a file, and its images to a new folder beside it."""
    names = chain([f"{path.stem} images"], (f"{path.stem} images {number}" for number in count(2)))
    images = next(each for each in map(path.with_name, names) if not each.exists(follow_symlinks=False))
    try:
        with chosen_file(path) as temporary:
            made = temporary.with_name(images.name)
            temporary.write_text(text_of(chat, made), encoding="utf-8")
            if made.exists():
                made.rename(images)
    except BaseException:
        shutil.rmtree(images, ignore_errors=True)
        raise


def _write_folder(folder: Path, chats: Iterator[FullChat], text_of: TextOf) -> None:
    """Write chats to files of a new folder, which appears when it is complete or not at all."""
    if folder.exists(follow_symlinks=False):
        raise StorageError(f"{folder} already exists.", "Choose another name.")
    with folder_beside(folder) as partial, file_errors(f"{folder} cannot be written", "Choose another folder."):
        names = dict[str, int]()
        for chat in chats:
            target = partial / _free_name(chat.conversation.title, names)
            with target.open("x", encoding="utf-8") as file:
                file.write(text_of(chat, target.with_name(f"{target.stem} images")))
        partial.rename(folder)


def file_name(title: str, ending: str) -> str:
    """Return a file name for a chat that every file system accepts: `A title.md`."""
    name = " ".join(_NOT_IN_NAMES.sub(" ", text_column(title)).split()).strip(" .")[: _LONGEST_NAME * 2]
    while len(name.encode()) > _LONGEST_NAME * 2:
        name = name[:-1]
    return f"{name[:_LONGEST_NAME].rstrip(' .') or 'Chat'}{ending}"


def _free_name(title: str, taken: dict[str, int]) -> str:
    """Return an unused name, also on file systems that ignore case and the form of accents.

    Args:
        title: The chat's title.
        taken: For each name in use, the number to try next; the new one is added.
    """
    name = file_name(title, ".md")
    first = _folded(name)
    while _folded(name) in taken:
        name = file_name(title, f" {taken[first]}.md")
        taken[first] += 1
    taken[_folded(name)] = 2
    return name


def _folded(name: str) -> str:
    return normalize("NFD", normalize("NFD", name).casefold())
