"""The libraries to which rdchat gives texts of others: the process of each, its limit, and what runs it."""

import ast
import asyncio
import html
import json
import os
import shutil
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from sqlite3 import connect

from PySide6.QtCore import QByteArray, QMimeData, QUrl
from PySide6.QtGui import QImage, QTextDocument
from PySide6.QtSvg import QSvgRenderer

from rdchat.chat import reply_trace
from rdchat.chat.attachments import file_reader
from rdchat.chat.attachments.file_reader import FileReader
from rdchat.chat.rendering import code_colours, formulas
from rdchat.chat.rendering.code_colours import READER, GrowingCode
from rdchat.chat.rendering.formulas import FormulaDrawer
from rdchat.chat.storage import search_text
from rdchat.errors import RdchatError
from rdchat.files import json_or_none
from rdchat.hub.endpoint import AnswerLimits
from rdchat.inference.api import MAX_SOURCE_BYTES, AnswerShape, ShapeKind
from rdchat.inference.calls.offered import python_json
from rdchat.inference.prompts import tokenizer_process
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess
from rdchat.inference.vision import image_process
from rdchat.inference.vision.image_process import as_file, shared_images
from rdchat.json_schema import JoinedSchemas, SchemaError
from rdchat.server.guard import _address
from rdchat.server.interfaces.fields import ApiError, parse_body
from rdchat.server.server_settings import Limits as RequestLimits
from rdchat.tools.built_in import TIME, BuiltInServer
from rdchat.tools.definitions import ServerLimits, ToolServer
from rdchat.tools.streams import parse_messages
from rdchat.tools.tool_results import result_fields
from rdchat.ui.conversation.alternatives_window import _Matcher, differences
from rdchat.ui.transcript.markdown.copying import blocks_of
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from rdchat.ui.transcript.markdown.text_body import FIRST_CHARACTERS
from rdchat.web_address import is_server_address
from rdchat.work import Limits
from tests.chat.attachments.documents import docx, paragraph, pdf
from tests.project.scripts import ROOT, module_tree

APP = "app"
"""The app's own process, or that of the command."""
# Of the standard library, and installed: no text of others is read by them, or bytes of a fixed form.
READ_NO_TEXT = frozenset(
    [
        "abc",
        "argparse",
        "array",
        "asyncio",
        "atexit",
        "bisect",
        "collections",
        "collections.abc",
        "concurrent.futures",
        "contextlib",
        "contextvars",
        "copy",
        "csv",
        "ctypes",
        "dataclasses",
        "datetime",
        "enum",
        "errno",
        "fcntl",
        "functools",
        "gc",
        "getpass",
        "hashlib",
        "heapq",
        "hmac",
        "importlib",
        "importlib.metadata",
        "importlib.resources",
        "importlib.util",
        "inspect",
        "io",
        "itertools",
        "logging",
        "logging.handlers",
        "lzma",
        "math",
        "mmap",
        "operator",
        "os",
        "os.path",
        "pathlib",
        "platform",
        "plistlib",
        "pwd",
        "queue",
        "random",
        "runpy",
        "secrets",
        "select",
        "shlex",
        "shutil",
        "signal",
        "socket",
        "ssl",
        "stat",
        "statistics",
        "struct",
        "subprocess",
        "sys",
        "tempfile",
        "textwrap",
        "threading",
        "time",
        "tomllib",
        "traceback",
        "types",
        "typing",
        "urllib.request",
        "weakref",
        "_typeshed",
        "anyio",
        "cryptography",
        "gguf",
        "keyring",
        "mlx",
        "numpy",
        "platformdirs",
        "psutil",
        "send2trash",
        "shiboken6",
        "socksio",
    ]
)
# Names of Qt that read a text, a picture or an address. Those that rdchat uses are libraries too.
_QT_READERS = frozenset(
    [
        "QDomDocument",
        "QImageReader",
        "QJsonDocument",
        "QMovie",
        "QPdfDocument",
        "QRegularExpression",
        "QStringDecoder",
        "QSvgRenderer",
        "QSvgWidget",
        "QTextDocumentFragment",
        "QUrl",
        "QXmlStreamReader",
        "addApplicationFontFromData",
        "fromData",
        "fromHtml",
        "fromMarkdown",
        "insertHtml",
        "insertMarkdown",
        "loadFromData",
        "setHtml",
        "setMarkdown",
    ]
)
# A library that rdchat imports brings these, and gives them texts.
BROUGHT = {"jinja2": "transformers"}


@dataclass(frozen=True)
class Library:
    """A library that reads texts of others.

    Attributes:
        processes: Where it does: names of `rdchat.children.CHILDREN`, or `APP`.
        limit: Time and memory of a request to the child; in the app the most characters, bytes or steps.
        read: Has it read a text, in its process; gets a model's folder too.
        modules: Modules that may import it; all, if empty.
    """

    processes: tuple[str, ...]
    limit: Limits | int
    read: Callable[[str, Path], object]
    modules: frozenset[str] = frozenset()


@cache
def imports() -> dict[str, frozenset[str]]:
    """Return the modules of rdchat that import each library: a package, or a module of the standard library."""
    found = defaultdict[str, set[str]](set)
    for path in (ROOT / "rdchat").rglob("*.py"):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for name in _imported(module_tree(path)):
            top = name.partition(".")[0]
            found[name if top in sys.stdlib_module_names else top].add(module)
        for name in _QT_READERS & _names(module_tree(path)):
            found[f"PySide6 {name}"].add(module)
    # `xml.etree` is imported for `xml.etree.ElementTree`.
    found.pop("xml.etree")
    return {name: frozenset(modules) for name, modules in found.items() if name not in ("rdchat", "__future__")}


def _imported(tree: ast.Module) -> set[str]:
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def _names(tree: ast.Module) -> set[str]:
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {
        node.id for node in ast.walk(tree) if isinstance(node, ast.Name)
    }


@cache
def modules_of(start: str) -> frozenset[str]:
    """Return a module of rdchat with all that it imports of rdchat, at any depth."""
    found = set[str]()
    left = [start]
    while left:
        module = left.pop()
        path = ROOT / module.replace(".", "/")
        file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
        if module in found or not file.exists():
            continue
        found.add(module)
        for node in ast.walk(module_tree(file)):
            if isinstance(node, ast.Import):
                left += [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module:
                left += [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
    return frozenset(found)


def refused(read: Callable[[str, Path], object]) -> Callable[[str, Path], object]:
    """Return a reader that may refuse a text."""

    def try_to_read(text: str, folder: Path) -> object:
        with suppress(RdchatError, SchemaError, ApiError):
            return read(text, folder)
        return None

    return try_to_read


def in_app(read: Callable[[str], object]) -> Callable[[str, Path], object]:
    return refused(lambda text, _folder: read(text))


# One process for all texts
file_process = cache(FileReader)
tokenizer_child = cache(TokenizerProcess)
formula_drawer = cache(FormulaDrawer)


def read_code(text: str, _folder: Path) -> object:
    lines = text.split("\n")
    return [
        (READER.read(language, lines, ()), GrowingCode(language).read_lines(lines))
        for language in ("scala", "autoit", "html+jinja", "python")
    ]


def read_file(data: Callable[[str], bytes], name: str) -> Callable[[str, Path], object]:
    """Return a reader that attaches a file made of a text."""

    def attach(text: str, _folder: Path) -> object:
        with as_file(data(text)) as path:
            return file_process().read_file(path.rename(path.with_name(name)))

    return refused(attach)


def as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def as_docx(text: str) -> bytes:
    return docx(paragraph(html.escape("".join(filter(str.isprintable, text)))))


def as_pdf(text: str) -> bytes:
    return pdf([text.encode("latin-1", "replace").decode("latin-1")])


def look_at_image(text: str, _folder: Path) -> object:
    with as_file(b"\x89PNG\r\n\x1a\n" + as_bytes(text)) as path:
        return shared_images().check_image(path)


def ask_tokenizers(ask: Callable[[TokenizerProcess, str, Path], object]) -> Callable[[str, Path], object]:
    """Return a reader that asks the child for tokenizers."""
    return refused(lambda text, folder: ask(tokenizer_child(), text, folder))


def try_template(process: TokenizerProcess, text: str, folder: Path) -> object:
    """Have a model whose chat template is the text."""
    copy = folder.with_name(f"template-{os.getpid()}")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    (copy / "chat_template.jinja").write_text(f"{{{{ messages[0].content }}}}{text}", "utf-8", "replace")
    process.read_tokenizer(copy, reread=True)
    return process.habits(copy)


def check_answer(process: TokenizerProcess, text: str, _folder: Path) -> None:
    schema = json_text({"": {"pattern": "(a|a)*$", "enum": [text], "anyOf": [{"const": text}, {"pattern": text}]}})
    process.check_answer(AnswerShape(ShapeKind.JSON, unenforced=schema), json_text(text))


def check_shape(process: TokenizerProcess, text: str, _folder: Path) -> None:
    process.check_shape(AnswerShape(ShapeKind.REGEX, text))


def json_text(value: object) -> str:
    return json.dumps(value)


def draw(text: str, _folder: Path) -> object:
    formula = formula_drawer().draw_formula(text[:2000], True)
    return formula and QSvgRenderer(QByteArray(formula.svg.encode())).isValid()


def search(text: str) -> object:
    """Index a text with FTS5 as the store does, and search it."""
    with closing(connect(":memory:")) as database:
        database.execute("CREATE VIRTUAL TABLE t USING fts5 (text, tokenize='unicode61 remove_diacritics 2', prefix=1)")
        database.execute("INSERT INTO t VALUES (?)", (search_text.index_text(text),))
        query = " ".join(f'"{phrase}"' for phrase in search_text.search_phrases(text)) or '"a"'
        return database.execute("SELECT count(*) FROM t WHERE t MATCH ?", (query,)).fetchall()


def read_picture(text: str) -> object:
    return result_fields({"content": [{"type": "image", "data": text}]})


def time_in(text: str) -> object:
    server = BuiltInServer(ToolServer("time", (TIME,)))
    return asyncio.run(server.call_tool("current_time", {"zone": text}))


def lay_out(text: str) -> object:
    return QTextDocument(text[:FIRST_CHARACTERS]).size()


def mix_up(text: str) -> object:
    half = len(text) // 2
    return differences(text, text[half:] + text[:half])


_FILES = ("files",)
_FILE_LIMIT = file_reader._LIMITS
_FILE_READER = frozenset({"rdchat.chat.attachments.file_reader"})
_FORMULAS = Limits(formulas._SECONDS, formulas._MEMORY_BYTES)
_TOKENIZERS = ("tokenizers",)
_LOADING = Limits(tokenizer_process._LOAD_S, tokenizer_process._LOAD_BYTES)
_ENCODING = Limits(tokenizer_process._ENCODE_S, tokenizer_process._ENCODE_BYTES)
_SHAPES = Limits(tokenizer_process._SHAPE_S, tokenizer_process._SHAPE_BYTES)
_TOOLS = Limits(ServerLimits().call_s, ServerLimits().memory_bytes)
_encode = ask_tokenizers(lambda process, text, folder: process.encode_text(folder, text))
_read_docx = read_file(as_docx, "a.docx")
_read_pdf = read_file(as_pdf, "a.pdf")
_read_messages = in_app(lambda text: parse_messages(as_bytes(text)))
_read_request = in_app(lambda text: parse_body(as_bytes(text)))
_BODY = RequestLimits().body_bytes

LIBRARIES: dict[str, Library] = {
    # In children
    "pygments": Library(
        ("lexers",), code_colours._LIMITS, read_code,
        # The window reads the names of the lexers.
        frozenset({"rdchat.chat.rendering.lexers_child", "rdchat.ui.transcript.markdown.decorations"}),
    ),
    "ziamath": Library(
        ("formulas",), _FORMULAS, draw, frozenset({"rdchat.chat.rendering.formulas"})
    ),
    "PIL": Library(
        ("images",), image_process._LIMITS, refused(look_at_image),
        frozenset({"rdchat.inference.vision.pixels_child", "rdchat.inference.vision.processors"}),
    ),
    "pypdf": Library(_FILES, _FILE_LIMIT, _read_pdf, _FILE_READER),
    "fontTools": Library(_FILES, _FILE_LIMIT, _read_pdf, _FILE_READER),
    "mammoth": Library(_FILES, _FILE_LIMIT, _read_docx, frozenset({"rdchat.chat.attachments.docx_text"})),
    "xml.etree.ElementTree": Library(
        _FILES, _FILE_LIMIT, read_file(docx, "a.docx"),
        frozenset({"rdchat.chat.attachments.docx_text"}),
    ),
    "html.parser": Library(
        _FILES, _FILE_LIMIT, read_file(lambda text: f"<html>{text}".encode("utf-8", "replace"), "a.html"),
        frozenset({"rdchat.chat.attachments.html_text"}),
    ),
    "codecs": Library((*_FILES, APP), _FILE_LIMIT, read_file(lambda text: text.encode("cp1252", "replace"), "a.txt")),
    "zipfile": Library(
        (*_FILES, "transfer"), _FILE_LIMIT, read_file(lambda text: b"PK\3\4" + as_bytes(text), "a.docx")
    ),
    "transformers": Library(_TOKENIZERS, _LOADING, _encode),
    "jinja2": Library(_TOKENIZERS, _ENCODING, ask_tokenizers(try_template)),
    # The app reads a tokenizer only after the child has tried it, for decoding alone.
    "tokenizers": Library((APP,), _LOADING, _encode, frozenset({"rdchat.inference.prompts.model_prompts"})),
    "mlx_lm": Library(_TOKENIZERS, _ENCODING, _encode),
    "llguidance": Library(_TOKENIZERS, _SHAPES, ask_tokenizers(check_shape)),
    "jsonschema": Library(
        _TOKENIZERS, _SHAPES, ask_tokenizers(check_answer), frozenset({"rdchat.json_schema"})
    ),
    "mcp": Library(
        ("tools",), _TOOLS, _read_messages, frozenset({"rdchat.tools.streams", "rdchat.tools.connection"})
    ),
    "mcp_types": Library(
        ("tools",), _TOOLS, _read_messages, frozenset({"rdchat.tools.streams", "rdchat.tools.connection"})
    ),
    "pydantic_core": Library(("tools",), _TOOLS, _read_messages, frozenset({"rdchat.tools.streams"})),
    "zoneinfo": Library(("tools",), _TOOLS, in_app(time_in), frozenset({"rdchat.tools.built_in"})),
    # In the app
    "referencing": Library(
        (APP,), MAX_SOURCE_BYTES,
        in_app(
            lambda text: JoinedSchemas(10**6).add_schema({"$defs": {text: {"$id": text}}, "$ref": text}, soften=True)
        ),
        frozenset({"rdchat.json_schema"}),
    ),
    "pydantic": Library(
        (APP, "transfer"), reply_trace._MAX_BYTES,
        in_app(lambda text: reply_trace.packed_trace([json_or_none(text), {"tokens": [text] * 9}])),
        frozenset({"rdchat.chat.reply_trace", "rdchat.inference.rank_processes.ranks_engine"}),
    ),
    "zlib": Library(
        (APP, "transfer"), reply_trace._MAX_BYTES,
        in_app(lambda text: reply_trace.decode(as_bytes(text) + zlib.compress(as_bytes(text)))),
    ),
    "sqlite3": Library((APP, "transfer"), search_text._LONGEST, in_app(search)),
    "unicodedata": Library((APP,), search_text._LONGEST, in_app(search_text.index_text)),
    "markdown_it": Library((APP,), FIRST_CHARACTERS, in_app(lambda text: blocks_of(text, MarkdownParser()))),
    "re": Library((APP,), FIRST_CHARACTERS, in_app(lambda text: blocks_of(text, MarkdownParser()))),
    "html": Library((APP, "transfer"), search_text._LONGEST, in_app(html.unescape)),
    "difflib": Library(
        (APP,), _Matcher._left, in_app(mix_up), frozenset({"rdchat.ui.conversation.alternatives_window"})
    ),
    "ast": Library((APP,), _BODY, in_app(python_json)),
    "json": Library((APP,), _BODY, _read_request),
    "base64": Library((APP,), _BODY, in_app(read_picture)),
    "starlette": Library((APP,), _BODY, _read_request),
    "uvicorn": Library((APP,), RequestLimits().header_bytes, _read_request, frozenset({"rdchat.server.server"})),
    "httpx2": Library((APP, "downloads", "tools"), AnswerLimits().bytes, in_app(is_server_address)),
    "urllib.parse": Library((APP,), AnswerLimits().bytes, in_app(is_server_address)),
    "ipaddress": Library((APP,), RequestLimits().header_bytes, in_app(_address)),
    # Qt, which reads in the app; a test lays out what it shows
    "PySide6": Library((APP,), FIRST_CHARACTERS, in_app(lay_out)),
    "PySide6 QSvgRenderer": Library((APP,), _FORMULAS, draw, frozenset({"rdchat.ui.style.theme"})),
    "PySide6 fromData": Library(
        (APP,), image_process._LIMITS.memory_bytes or 0, in_app(lambda text: QImage.fromData(as_bytes(text))),
        frozenset({"rdchat.ui.files.chips"}),
    ),
    "PySide6 setHtml": Library(
        (APP,), FIRST_CHARACTERS, in_app(lambda text: QMimeData().setHtml(text)),
        frozenset({"rdchat.ui.transcript.markdown.copying"}),
    ),
    "PySide6 QUrl": Library((APP,), FIRST_CHARACTERS, in_app(lambda text: QUrl(text).toString())),
}  # fmt: skip
"""By name: a package, a module of the standard library, or a name of Qt."""
