"""What becomes of each input: a prompt, a grammar, an imported chat, a rendered text, a file's text or an answer."""

import json
import tempfile
import unicodedata
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from starlette.datastructures import Headers

from rdchat.chat.attachments.attached_file import Passage, ranked
from rdchat.chat.attachments.file_reader import FileReader
from rdchat.chat.storage import DamagedChatError, WordMatcher
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer import chatgpt
from rdchat.chat.transfer.chat_apps import LM_STUDIO, jan_chat, jan_lines
from rdchat.chat.transfer.source_files import open_source
from rdchat.chat.transfer.transfer_process import recognised
from rdchat.errors import RdchatError
from rdchat.inference.api import (
    AnswerShape,
    DraftSettings,
    FinishReason,
    PartsReader,
    Role,
    SamplingDefaults,
    ShapeKind,
    split_thoughts,
)
from rdchat.inference.decoding.tool_calls import find_tool_calls
from rdchat.inference.prompts.model_prompts import ModelPrompts, read_tokenizer
from rdchat.inference.prompts.shape_grammar import check_grammar
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess, shared_tokenizers
from rdchat.server.guard import Guard
from rdchat.server.interfaces.anthropic_messages import Messages
from rdchat.server.interfaces.chat_completions import ChatCompletions
from rdchat.server.interfaces.client_tools import call_shape
from rdchat.server.interfaces.fields import ApiError, Fields
from rdchat.server.interfaces.interface import event
from rdchat.server.interfaces.responses import Responses
from rdchat.server.server_settings import ServerSettings
from rdchat.tools.imported_servers import read_servers
from rdchat.tools.tool_results import result_fields
from rdchat.ui.transcript.markdown.copying import as_markdown, as_plain, blocks_of
from rdchat.ui.transcript.markdown.parser import MarkdownParser
from tests.cases import INPUTS
from tests.inference.shape_models import takes
from tests.split_replies import client_of

_TOKENS = 4000

Case = dict[str, Any]


@dataclass
class Tokenizers:
    """Copies of a model's tokenizer with another chat template, other control tokens or other configuration files.

    Attributes:
        source: The model's folder.
        folder: Holds the copies.
        process: The child that reads them.
        files: Reads attached files, in one child for all cases.
    """

    source: Path
    folder: Path
    process: TokenizerProcess = field(default_factory=shared_tokenizers)
    files: FileReader = field(default_factory=FileReader)
    _read: dict[str, tuple[ModelPrompts, Any]] = field(default_factory=dict)

    def read(
        self, template: str, renamed: dict[str, str] | None = None, files: dict[str, Any] | None = None
    ) -> tuple[ModelPrompts, Any]:
        """Return the prompts and the tokenizer of a copy.

        Args:
            template: A file among the inputs; empty for the model's own template.
            renamed: Texts to replace in all files, for control tokens with other names.
            files: New values by file and key. The value "-" removes a key, and None a file.
        """
        key = json.dumps([template, renamed, files])
        if key not in self._read:
            copy = Path(tempfile.mkdtemp(dir=self.folder))
            for name, text in self._texts.items():
                changed = text
                for old, new in (renamed or {}).items():
                    changed = changed.replace(old, new)
                (copy / name).write_text(changed)
            if template:
                (copy / "chat_template.jinja").write_text((INPUTS / template).read_text())
                _change(copy / "tokenizer_config.json", {"chat_template": "-"})
            for name, values in (files or {}).items():
                _change(copy / name, values)
            tokenizer = read_tokenizer(copy, self.process)
            self._read[key] = (ModelPrompts(self.process, copy, tokenizer), tokenizer)
        return self._read[key]

    @cached_property
    def _texts(self) -> dict[str, str]:
        """The model's files by name; its tokenizer has its first tokens alone, since all take half a second."""
        names = ("config.json", "generation_config.json", "tokenizer_config.json")
        tokenizer = json.loads((self.source / "tokenizer.json").read_text())
        model = tokenizer["model"]
        model["vocab"] = {token: number for token, number in model["vocab"].items() if number < _TOKENS}
        model["merges"] = [pair for pair in model["merges"] if "".join(pair) in model["vocab"]]
        texts = {name: (self.source / name).read_text() for name in names}
        return texts | {"tokenizer.json": json.dumps(tokenizer)}


def _change(path: Path, values: dict[str, Any] | None) -> None:
    if values is None:
        path.unlink()
        return
    changed = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in changed.items() if value != "-"}))


def prompt(case: Case, tokenizers: Tokenizers) -> str:
    """Return the prompt that a request's body becomes, or why it is refused."""
    prompts, tokenizer = tokenizers.read(case.get("template", ""), case.get("renamed", {}))
    facts = {name: getattr(prompts, name) for name in ("thinking", "tool_markers", "trained_for_tools")}
    info: Any = SimpleNamespace(context_length=8192, name="m", sampling=SamplingDefaults(), **facts)
    body = _json(case)
    name = case.get("file", "")
    named: dict[str, Any] = {"anthropic": Messages(), "responses": Responses()}
    interface: Any = next((named[each] for each in named if f".{each}." in name), ChatCompletions())
    try:
        made = interface.read_request(Fields(body))
        request = made.request(0, info, DraftSettings(), "p")
        if request.shape is not None:
            prompts.process.check_shape(request.shape)
        text = tokenizer.decode(prompts.encode_request(request, 100_000))
    except (ApiError, RdchatError) as error:
        return f"REFUSED {error}"
    again = [interface.read_request(Fields(body)).request(0, info, DraftSettings(), "p").seed for _ in range(2)]
    seeds = "" if "seed" not in body else " SEEDS equal" if again[0] == again[1] else " SEEDS differ"
    shape = f" SHAPE {request.shape.kind.value} {request.shape.source[:300]}" if request.shape else ""
    return f"PROMPT {text!r}{shape}{seeds} IGNORED {','.join(made.ignored)}"


def grammar(case: Case, tokenizers: Tokenizers) -> str:
    """Return whether a schema takes a right and a wrong value, as a tool's parameters and as a response format."""
    given = _json(case)
    outcomes = []
    for way in given.get("ways", ["call", "format"]):
        values = {name: given[name] for name in ("good", "bad") if name in given}
        try:
            if way == "call":
                tool = {"type": "function", "function": {"name": "t", "parameters": given["schema"]}}
                shape = call_shape([tool])
                values = {name: {"name": "t", "arguments": value} for name, value in values.items()}
            else:
                shape = AnswerShape(ShapeKind.SCHEMA, json.dumps(given["schema"]))
            check_grammar(shape)
        except (ApiError, RdchatError) as error:
            outcomes.append(f"{way}: REFUSED {error}")
            continue
        for name, value in values.items():
            outcomes.append(f"{way}: {name} {'accepted' if takes(shape, value) else 'rejected'}")
    return "; ".join(outcomes)


def chat(case: Case, tokenizers: Tokenizers) -> str:
    """Return the messages of an imported chat, its system prompt, and what the report says was left out."""
    path = INPUTS / case["file"]
    try:
        if path.is_dir():
            lines = jan_lines((path / "messages.jsonl").read_bytes())
            whole = jan_chat(json.loads((path / "thread.json").read_text()), lines)
        elif ".chatgpt." in case["file"]:
            whole = chatgpt.FORMAT.read(_json(case)[0])
        else:
            whole = LM_STUDIO.read(_json(case))
    except DamagedChatError as error:
        return f"REFUSED {error}"
    texts = " | ".join(f"{each.role.value}: {each.text}" for each in whole.messages)
    return f"{texts} || SYSTEM {whole.conversation.system_prompt} || WITHOUT {dict(whole.without)}"


def markdown(case: Case, tokenizers: Tokenizers) -> str:
    """Return what a text looks like: marked words, cells of tables, and its copy as Markdown read again."""
    parser = MarkdownParser()
    source = case["given"] if "given" in case else (INPUTS / case["file"]).read_text()
    blocks = blocks_of(source.removesuffix("\n"), parser)
    runs = [run for block in blocks for run in block.runs]
    links = [run.href for run in runs if run.href]
    formulas = [run.maths for run in runs if run.maths]
    again = blocks_of(as_markdown(blocks), parser)
    marked = [run.text for block in blocks for run in block.runs if run.bold or run.strike]
    cells = [["".join(run.text for run in cell) for cell in row] for block in blocks for row in block.rows]
    kinds = [block.kind.name for block in blocks]
    same = [(b.kind, b.level, b.runs, b.rows) for b in blocks] == [(b.kind, b.level, b.runs, b.rows) for b in again]
    copy = "same" if same else f"differs: {as_plain(again)!r}"
    end = f"LINKS {links} MATHS {formulas}"
    return f"SHOWN {as_plain(blocks)!r} {end} KINDS {kinds} MARKED {marked} CELLS {cells} COPY {copy}"


def file(case: Case, tokenizers: Tokenizers) -> str:
    """Return the text of an attached file and its note."""
    try:
        read = tokenizers.files.read_file(INPUTS / case["file"])
    except RdchatError as error:
        return f"REFUSED {error}"
    return f"TEXT {' | '.join(read.parts)!r} NOTE {read.note!r}"


def passages(case: Case, tokenizers: Tokenizers) -> str:
    """Return which passages a question finds."""
    given = _json(case)
    question = unicodedata.normalize(given.get("form", "NFC"), given["question"])
    return f"FOUND {ranked([Passage(each) for each in given['passages']], question)}"


def guard(case: Case, tokenizers: Tokenizers) -> str:
    """Return whether a request with some headers is let in; the key is `key-for-tests`, the port 8817."""
    try:
        Guard(ServerSettings("key-for-tests"), 8817).check_request(Headers(_json(case)))
    except ApiError as error:
        return f"REFUSED {error}"
    return "LET IN"


def ends(case: Case, tokenizers: Tokenizers) -> str:
    """Return the ids that end a reply, with changed configuration files."""
    given = _json(case)
    _, tokenizer = tokenizers.read(given.get("template", ""), files=given["files"])
    return f"ENDS {sorted(tokenizer.eos_token_ids)}"


def _json(case: Case) -> Any:
    return case["given"] if "given" in case else json.loads((INPUTS / case["file"]).read_text())


def stream(case: Case, tokenizers: Tokenizers) -> str:
    """Return what a client gets of a reply letter by letter, and of the whole reply at once."""
    given = _json(case)
    said = []
    text = given["text"]
    finish = FinishReason(given.get("finish", "eos"))
    for label, step in (("STREAM", 1), ("WHOLE", len(text))):
        texts = [text[at : at + step] for at in range(0, len(text), step)]
        client = client_of(texts, PartsReader(given.get("begun", False)), finish=finish)
        thought, answer = client.streamed if step == 1 else client.at_once
        said.append(f"{label} THOUGHT {thought!r} ANSWER {answer!r}")
    return "\n".join(said)


def calls(case: Case, tokenizers: Tokenizers) -> str:
    """Return the calls that are found in a reply, in the form of a family, and the rest of its text."""
    given = _json(case)
    text = given["text"]
    form = import_module(f"mlx_lm.tool_parsers.{given['parser']}")
    spans = split_thoughts(text, begun=given.get("begun", False), ended=True).spans
    marks = form.tool_call_start, form.tool_call_end
    found, rest = find_tool_calls(
        text, marks, form.parse_tool_call, json.dumps(given["tools"]), answers=spans, ended=True
    )
    event({"calls": [{"name": each.name, "arguments": each.arguments} for each in found]}).encode()
    listed = [(each.name, each.arguments) for each in found]
    left = "".join(text[start:end] for start, end in rest)
    return f"CALLS {listed!r} REST {left!r} SENT"


def family(case: Case, tokenizers: Tokenizers) -> str:
    """Return whether a model of a template gets its tools in its own form."""
    prompts, _ = tokenizers.read(case["template"])
    return f"TRAINED {prompts.trained_for_tools} MARKERS {prompts.tool_markers}"


def mcp(case: Case, tokenizers: Tokenizers) -> str:
    """Return the text of a tool's result, or the servers of another program's list."""
    given = _json(case)
    if "result" in given:
        return f"RESULT {result_fields(given['result'])}"
    try:
        read = read_servers(given["config"])
    except RdchatError as error:
        return f"REFUSED {error}"
    return f"SERVERS {[(each.name, each.command, each.url) for each in read.servers]} PROBLEMS {read.problems}"


def search(case: Case, tokenizers: Tokenizers) -> str:
    """Return which chats a search finds."""
    given = _json(case)
    query = unicodedata.normalize(given.get("query_form", "NFC"), given["query"])
    with closing(ConversationStore(Path(tempfile.mkdtemp(dir=tokenizers.folder)) / "chats.db")) as store:
        for title, text in given["chats"].items():
            store.add_message(store.create_conversation(title).id, None, Role.USER, text)
        return f"FOUND {sorted(chat.title for chat in store.conversations(query))}"


def find(case: Case, tokenizers: Tokenizers) -> str:
    """Return where the words of a search stand in a text, as the find bar marks them."""
    given = _json(case)
    return f"FOUND {WordMatcher(given['query']).spans(given['text'])}"


def imported(case: Case, tokenizers: Tokenizers) -> str:
    """Return whose file of chats it is, and the number of its messages."""
    (source,) = open_source(INPUTS / case["file"], [])
    kind, chats = recognised(source)
    return f"rc 0 {kind} {sum(len(make().messages) for *_, make in chats)} messages of 1 chat"


OUTCOMES: dict[str, Callable[[Case, Tokenizers], str]] = {
    each.__name__: each
    for each in (prompt, grammar, chat, markdown, file, passages, guard, ends, stream, calls, family, mcp, search, find)
} | {"import": imported}
