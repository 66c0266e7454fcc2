"""Law: no reader of foreign text takes time or memory that grows faster than the text, or exceeds a limit."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.sax.saxutils import escape

import pytest
from PySide6.QtWidgets import QApplication

from rdchat.chat.attachments.attached_file import FileKind, ReadFile, passages_of, printable_name, ranked
from rdchat.chat.attachments.docx_text import docx_text
from rdchat.chat.attachments.file_reader import pdf_texts
from rdchat.chat.attachments.html_text import fenced, html_to_text, notebook_text
from rdchat.chat.attachments.kinds import decoded, kind_of
from rdchat.chat.conversation import Conversation, Message
from rdchat.chat.option_order import ChatValues
from rdchat.chat.presets import PLACEHOLDER, LongChats, unused_names
from rdchat.chat.storage import DamagedChatError, FullChat, search_text
from rdchat.chat.storage.search import _snippet
from rdchat.chat.storage.search_text import WordMatcher, index_text, search_phrases
from rdchat.chat.titles import tidy_title, title_from_model, title_from_prompt
from rdchat.chat.transfer import chat_apps, rdchat_json
from rdchat.chat.transfer.exporting import _free_name, as_markdown, file_name
from rdchat.chat.transfer.foreign_chats import ForeignChat
from rdchat.chat.transfer.message_trees import MessageTree
from rdchat.chat.transfer.transfer_process import FORMATS
from rdchat.children import CHILDREN
from rdchat.errors import RdchatError, one_line
from rdchat.inference.api import MAX_SOURCE_BYTES, RemoteServer, Role, SamplingParams
from rdchat.inference.remote.remote_reply import StreamedCalls, delta_texts
from rdchat.inference.remote.server_connection import Connection
from rdchat.json_schema import JoinedSchemas, SchemaError, expanded
from rdchat.server.interfaces.chat_messages import message_of, thought_of
from rdchat.server.interfaces.fields import ApiError, parse_body
from rdchat.services.models.card_text import plain_card
from rdchat.tools.definitions import listed_tools
from rdchat.tools.imported_servers import read_servers
from rdchat.tools.streams import parse_messages
from rdchat.tools.tool_results import result_fields
from rdchat.ui.transcript.markdown.blocks import display_end, pieces
from rdchat.ui.transcript.markdown.copying import blocks_of
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.work import Limits
from tests.chat.attachments.documents import docx, paragraph, pdf
from tests.chat.transfer.full_samples import deepseek_node, open_webui_chat, open_webui_message
from tests.chat.transfer.samples import (
    chatgpt_chat,
    chatgpt_node,
    claude_chat,
    jan_line,
    jan_text,
    lm_studio_chat,
)
from tests.foreign_libraries import APP, BROUGHT, LIBRARIES, READ_NO_TEXT, imports, modules_of
from tests.grids import share
from tests.growth import SHAPES, Text, assert_grows_no_faster, nested, repeated
from tests.time_limits import at_most

VALUES = ChatValues("", SamplingParams(), None, None, None, None, LongChats.ASK)
OWN: dict[str, Text] = {
    "a picture without end": repeated("A", "iVBORw0KGgo"),
    "pictures in lines": repeated("A" * 60 + "\n", "iVBORw0KGgo"),
    "slashes in a picture": repeated("\\", "iVBORw0KGgo" + "A" * 40),
    "a price without end": repeated("1,", "$", "$"),
    "figures in a formula": repeated("7", "$", "$"),
    "stars between words": repeated("*a "),
    "code between words": repeated("`a "),
    "marks of ChatGPT": repeated("\ue200a"),
    "empty lists": repeated("[],", "[", "[]]"),
    "empty objects": repeated('{"":0},', "[", "{}]"),
    "marks of an Indic script": repeated("\u093c\u094d", "\u0915"),
    "vowels of Korean": repeated("\u1161", "\u1100"),
    "items": repeated("- a\n"),
    "lists in lists of Markdown": repeated("- "),
    "definitions": repeated("[a]: b\n"),
    "tables in tables": nested("<table><tr><td>", "</td></tr></table>"),
    "cells": repeated("<td>"),
    "declarations": repeated("<!"),
    "comments with a wrong end": repeated("<!-- --! >"),
}
WITH_OWN = SHAPES | OWN


def as_title(text: str) -> object:
    return (
        title_from_prompt(text),
        title_from_model(text),
        tidy_title(text),
        one_line(text),
        printable_name(text[:1000]),
    )


def as_replaced(sample: Any, text: str) -> Any:
    """Return a sample's JSON with a text in the place of each long one."""
    match sample:
        case dict():
            return {name: as_replaced(each, text) for name, each in sample.items()}
        case list():
            return [as_replaced(each, text) for each in sample]
        case str() if " " in sample:
            return text
    return sample


def import_chat(data: Any) -> FullChat:
    return next(kind for kind in FORMATS if kind.is_ours(data)).read(data)


DEEPSEEK = ("REQUEST", "A river?"), ("THINK", "Which one?"), ("RESPONSE", "The Elbe.")


def in_format(sample: Callable[[], Any]) -> Callable[[str], object]:
    return lambda text: import_chat(as_replaced(sample(), text))


def jan_chat(text: str) -> object:
    return chat_apps.jan_chat(
        {"title": text}, chat_apps.jan_lines(json.dumps(jan_line("m0", "user", jan_text(text))).encode())
    )


def chat_of(texts: list[str]) -> FullChat:
    about = Conversation(0, "A chat", None, None, None, None)
    kinds = Role.USER, Role.ASSISTANT
    messages = [Message(at, 0, at - 1 if at else None, kinds[at % 2], text) for at, text in enumerate(texts)]
    return FullChat(about, tuple(messages))


def export_chat(text: str) -> object:
    chat = chat_of([text, text])
    return as_markdown(chat, VALUES, {}, details=True), rdchat_json.read(rdchat_json.plain_chat(chat))


def list_tools(text: str) -> object:
    tool = {"name": "a", "description": text, "inputSchema": {"type": "object", "properties": {"a": {"const": text}}}}
    return listed_tools([tool, {"name": text}])


def read_damaged(read: Callable[[], object]) -> object:
    try:
        return read()
    except (RdchatError, DamagedChatError, ApiError) as error:
        return error


def index_anew(text: str) -> object:
    """Index a text whose letters are not known yet."""
    search_text._folded.cache_clear()
    return index_text(text)


def read_delta(text: str) -> object:
    calls = StreamedCalls()
    for each in (text[: len(text) // 2], text):
        calls.add_piece({"id": "a", "function": {"name": "f", "arguments": each}})
    return [*delta_texts({"content": [{"type": "text", "text": text}], "reasoning": [text]})], calls.finished()


class StreamedAnswer(Connection):
    """A connection whose server sends one text, in small pieces."""

    sent = b""

    @asynccontextmanager
    async def _response(self, *_request: object) -> AsyncIterator[Any]:
        async def pieces() -> AsyncIterator[bytes]:
            for at in range(0, len(self.sent), 256):
                yield self.sent[at : at + 256]

        yield SimpleNamespace(headers={"content-type": "text/event-stream"}, aiter_raw=pieces)


def read_events(text: str) -> object:
    class Sending(StreamedAnswer):
        sent = f"data: {json.dumps({'a': text})}\n\n{text}\n\ndata: [DONE]\n".encode("utf-8", "replace")

    async def read() -> list[Any]:
        return [event async for event in Sending(RemoteServer("a", "https://a")).events("/", {})]

    return read_damaged(lambda: asyncio.run(read()))


def embed_schema(schema: dict[str, Any]) -> object:
    try:
        return expanded(schema), JoinedSchemas(MAX_SOURCE_BYTES).add_schema(schema, soften=True)
    except SchemaError as error:
        return error


def read_docx(body: str) -> object:
    return read_damaged(lambda: docx_text(docx(body), "a"))


def librechat_chat() -> dict[str, Any]:
    message = {"messageId": "a", "sender": "User", "isCreatedByUser": True, "text": "a question"}
    reply = message | {"messageId": "b", "parentMessageId": "a", "isCreatedByUser": False, "content": "an answer"}
    return {"conversationId": "a", "title": "a title", "messages": [message, reply]}


READERS: dict[str, Callable[[str], object]] = {
    "the search index": index_anew,
    "a search": search_phrases,
    "words found": lambda text: WordMatcher("needle a").spans(f"needle {text}"),
    "a result's text": lambda text: result_fields({"content": [{"type": "text", "text": text}]}),
    "a result's data": lambda text: result_fields({"structuredContent": {"a": text}}),
    "a result's resource": lambda text: result_fields({"content": [{"type": "resource", "resource": {"blob": text}}]}),
    "a tool": list_tools,
    "a tool's message": lambda text: parse_messages(text.encode("utf-8", "replace")),
    "a reply of a server": read_delta,
    "events of a server": read_events,
    "a snippet": lambda text: _snippet(f"needle {text}", WordMatcher("needle a")),
    "a schema": lambda text: embed_schema({"properties": {text: {"pattern": text, "enum": [text], "$ref": text}}}),
    "a model's card": plain_card,
    "a Word document": lambda text: read_docx(paragraph(escape(text))),
    "a PDF": lambda text: read_damaged(
        lambda: pdf_texts(pdf([text.encode("latin-1", "replace").decode("latin-1")]), "a", lambda _: None)
    ),
    "LibreChat": in_format(librechat_chat),
    "a list of servers": lambda text: read_damaged(lambda: read_servers(text)),
    "Markdown": lambda text: blocks_of(text, MarkdownParser()),
    "lines shown": lambda text: (display_end(text, 1000), pieces(text)),
    "HTML": html_to_text,
    "a fence": fenced,
    "a notebook": lambda text: notebook_text(
        json.dumps({"cells": [{"cell_type": "code", "source": text, "outputs": [{"data": {"text/html": text}}]}]})
    ),
    "a text file": lambda text: read_damaged(
        lambda: (kind_of(text.encode("utf-8", "replace"), "a.txt"), decoded(text.encode("utf-8", "replace"), "a.txt"))
    ),
    "an old text file": lambda text: read_damaged(lambda: decoded(text.encode("cp1252", "replace") + b"\xe9", "a.txt")),
    "passages": lambda text: ranked(passages_of(ReadFile("a", FileKind.TEXT, (text,), "")), text),
    "titles and names": lambda text: (as_title(text), file_name(text, ".md")),
    "placeholders": PLACEHOLDER.findall,
    "an export": export_chat,
    "ChatGPT": lambda text: import_chat(chatgpt_chat(chatgpt_node("a", None, "assistant", text))),
    "Claude": in_format(claude_chat),
    "DeepSeek": in_format(lambda: {"mapping": {"1": deepseek_node("1", None, *DEEPSEEK)}}),
    "Open WebUI": in_format(lambda: open_webui_chat([open_webui_message("1", None, "assistant", "The Elbe.")], "1")),
    "LM Studio": in_format(lm_studio_chat),
    "Jan": jan_chat,
    "a request": lambda text: read_damaged(lambda: parse_body(text.encode("utf-8", "replace"))),
    "a part": lambda text: (
        message_of(Role.USER, [{"type": "text", "text": text}] * 2, "content", strict=True),
        message_of(Role.USER, {"a": text}, "content", strict=False),
        thought_of([{"text": text}]),
    ),
}
"""Readers of one text."""
# They take long for any text.
_OF_FEW_SHAPES = {"a Word document", "a PDF", "a schema", "a snippet"}


@pytest.mark.parametrize(
    ("reader", "shape"),
    [
        ("the search index", "combining marks"),
        ("the search index", "marks of an Indic script"),
        ("the search index", "vowels of Korean"),
        ("words found", "combining marks"),
        ("a result's text", "a picture without end"),
        ("a result's text", "slashes in a picture"),
        ("a result's text", "empty lists"),
        ("Markdown", "a price without end"),
        ("titles and names", "only a letter"),
        ("titles and names", "stars between words"),
        ("titles and names", "code between words"),
        ("HTML", "tables in tables"),
        ("HTML", "comments with a wrong end"),
        ("a notebook", "base64 without end"),
        ("ChatGPT", "marks of ChatGPT"),
        ("an export", "fences without end"),
        ("a part", "lists of text"),
        ("a Word document", "only blanks"),
        ("a Word document", "only right to left"),
        ("a snippet", "combining marks"),
        ("a snippet", "only links"),
        ("a PDF", "brackets without end"),
        ("a PDF", "only letters and lines"),
        ("a schema", "only a letter"),
        ("a schema", "only slashes"),
    ],
)
def test_a_reader_takes_no_longer_than_its_text(reader: str, shape: str) -> None:
    assert_grows_no_faster(READERS[reader], WITH_OWN[shape], longest=50_000)


@pytest.mark.slow
@pytest.mark.parametrize("reader", [each for each in READERS if each not in _OF_FEW_SHAPES])
def test_a_reader_takes_no_longer_than_any_text(reader: str) -> None:
    for name, text in WITH_OWN.items():
        try:
            assert_grows_no_faster(READERS[reader], text, longest=16_000)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def read_strings_of_a_result(text: str) -> object:
    words = text.split()
    words[-1] = "needle"
    content = [{"type": "text", "text": f"{text}needle"}]
    return result_fields({"content": content, "structuredContent": ["needle"] * len(words)})


def import_branches(text: str) -> object:
    nodes = [chatgpt_node(f"n{at}", "n0" if at else None, "assistant", "a") for at in range(len(text) // 200)]
    return import_chat(chatgpt_chat(chatgpt_node("q", None, "user", "a"), *nodes))


def import_long_chat(text: str) -> object:
    nodes = [
        chatgpt_node(f"n{at}", f"n{at - 1}" if at else None, ("user", "assistant")[at % 2], "a")
        for at in range(1 + len(text) // 200)
    ]
    return import_chat(chatgpt_chat(*nodes))


def import_many_messages_of_jan(text: str) -> object:
    return chat_apps.jan_chat({}, [jan_line(f"m{at}", "user", jan_text("a")) for at in range(len(text) // 200)])


def export_long_chat(text: str) -> object:
    return as_markdown(chat_of(["a"] * (1 + len(text) // 100)), VALUES, {}, details=True)


def name_chats_alike(text: str) -> object:
    taken = dict[str, int]()
    return [_free_name("A chat", taken) for _ in range(len(text) // 100)]


def read_anchors(text: str) -> object:
    numbers = [str(at) for at in range(len(text) // 200)]
    anchors = {each: {"$anchor": f"a{each}", "type": "string"} for each in numbers}
    return embed_schema({"$defs": anchors, "properties": {each: {"$ref": f"#a{each}"} for each in numbers}})


def read_alternatives(text: str) -> object:
    numbers = [str(at) for at in range(len(text) // 100)]
    tags = {"properties": {each: {"const": 1} for each in numbers}}
    branches = {each: {"oneOf": [{"$ref": "#/$defs/a"}] * 50} for each in numbers[::50]}
    return embed_schema({"$defs": {"a": tags}, "properties": branches})


def read_pieces_of_a_name(text: str) -> object:
    calls = StreamedCalls()
    for _ in range(len(text)):
        calls.add_piece({"index": 0, "function": {"name": "a"}})
    return calls.is_too_long


def import_images_in_replies(text: str) -> object:
    image = {"type": "image", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    tree = MessageTree(
        ForeignChat(), lambda chat, _: (Role.ASSISTANT, chat.text_of([dict(image)]), {}), "p", joins=True
    )
    tree.add_messages([{"p": str(at)} for at in range(len(text) // 50)])
    return tree.chat.take_messages()


def import_nested_messages(text: str) -> object:
    chat = librechat_chat()
    message: dict[str, Any] = {}
    for _ in range(len(text) // 100):
        message = chat["messages"][1] | {"children": [message]}
    return import_chat(chat | {"messages": [message]})


MANY = {
    "anchors of a schema": read_anchors,
    "alternatives of a schema": read_alternatives,
    "pieces of a call's name": read_pieces_of_a_name,
    "images in replies": import_images_in_replies,
    "messages in messages of LibreChat": import_nested_messages,
    "deletions in deletions of Word": lambda text: read_docx(nested("<w:del>", "</w:del>", paragraph("a"))(len(text))),
    "glosses in glosses of Word": lambda text: read_docx(nested("<w:ruby>", "</w:ruby>", paragraph("a"))(len(text))),
    "fields of Word": lambda text: read_docx(f"<w:p><w:r>{'<w:fldChar/>' * (len(text) // 20)}</w:r></w:p>"),
    "presets of one name": lambda text: unused_names(["a"] * (len(text) // 10), []),
    "strings of a result": read_strings_of_a_result,
    "branches of a chat": import_branches,
    "messages of a chat": import_long_chat,
    "messages of Jan": import_many_messages_of_jan,
    "messages in an export": export_long_chat,
    "chats of one name": name_chats_alike,
}
"""Readers of many parts, whose number grows with the text."""


@pytest.mark.parametrize("reader", share(MANY, 2))
def test_many_parts_take_no_longer_than_their_number(reader: str) -> None:
    assert_grows_no_faster(MANY[reader], repeated("ab "), longest=200_000)


def test_each_library_that_reads_foreign_text_has_a_process_and_a_limit() -> None:
    """What is imported anew is either in `READ_NO_TEXT`, or it is a reader with both."""
    assert imports().keys() - READ_NO_TEXT == LIBRARIES.keys() - BROUGHT.keys()
    assert not LIBRARIES.keys() & READ_NO_TEXT
    assert imports().keys() >= set(BROUGHT.values())
    for name, library in LIBRARIES.items():
        match library.limit:
            case Limits(seconds, memory):
                assert (seconds or 0) > 0 < (memory or 0), name
            case number:
                assert number > 0, name


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_is_in_its_process(name: str) -> None:
    library = LIBRARIES[name]
    modules = imports().get(name, frozenset())
    assert not library.modules or modules == library.modules
    assert library.processes
    for process in set(library.processes) - {APP}:
        assert name in BROUGHT or modules & modules_of(CHILDREN[process])


TAKE_LONG = {"difflib", "jinja2", "llguidance", "mlx_lm", "tokenizers", "transformers"}


def read_hostile(name: str, text: Text, folder: Path) -> None:
    """Have a library read a text, in the app in a time that grows with the text, in a child within the limit."""
    library = LIBRARIES[name]
    if isinstance(library.limit, Limits):
        with at_most(120):
            library.read(text(2_000), folder)
    else:
        assert_grows_no_faster(lambda made: library.read(made, folder), text, longest=16_000)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        pytest.param(name, shape, marks=pytest.mark.slow if name in TAKE_LONG else ())
        for name, shape in zip(LIBRARIES, cycle(SHAPES))
    ],
)
def test_a_library_reads_a_hostile_text(name: str, shape: str, small_model: Path, qapp: QApplication) -> None:
    read_hostile(name, SHAPES[shape], small_model)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_reads_each_hostile_text(name: str, small_model: Path, qapp: QApplication) -> None:
    """Of the shapes an eighth, and all where everything hostile is asked for."""
    step = 1 if os.environ.get("HOSTILE") == "all" else 8
    for shape, text in [*SHAPES.items()][[*LIBRARIES].index(name) % step :: step]:
        try:
            read_hostile(name, text, small_model)
        except AssertionError as error:
            raise AssertionError(f"{shape}: {error}") from error
