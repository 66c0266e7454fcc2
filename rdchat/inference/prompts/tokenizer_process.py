"""The app's side of the process that runs tokenizers and chat templates, because they are foreign data.

`TokenizerProcess` sends requests to it. `tokenizer_view` prepares a model's folder, in both processes.

A tokenizer's configuration can name code in the folder or on the hub (`auto_map`); transformers then asks on standard
output whether to run it. So transformers is given a folder of links to the known files, without such references.

Where there is a tokenizer.json, it decides how text becomes tokens: transformers would build some classes anew, and
drop what the file says. All chat templates become one.
"""

import hashlib
import inspect
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError, PromptTooLongError, RdchatError, ShapeRefusedError
from rdchat.files import TEMPLATES, TOKENIZER_FILES, check_file, opened, read_bytes, read_errors, read_object, read_text
from rdchat.inference.api import SHAPE_HINT, AnswerShape, ThinkingChoice, ToolCall
from rdchat.inference.prompts.encoding import LENGTH_HINT, Marks
from rdchat.work import ChildEndedError, ChildError, ChildProcess, FrameError, Limits

_FILES = (
    *TOKENIZER_FILES,
    "added_tokens.json",
    "special_tokens_map.json",
    "tekken.json",
    "tokenizer.json",
    "vocab.json",
)
_TEMPLATE_FILE = "chat_template.jinja"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# A tokenizer reads no other keys of config.json.
_MODEL_KEYS = ("model_type", "tokenizer_class", "transformers_version")
_LONGEST_TEMPLATE = 2**20
# Files that decide what tokens mean, and the limit of each.
_KEY_FILES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "merges.txt", "tekken.json")
_MAX_KEY_BYTES = 2**28
_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "tekken.json")
MODEL_HINT = "Download the model again, or choose another one."
NO_CODE = {"trust_remote_code": False, "local_files_only": True}
"""How every tokenizer and configuration is read."""
SAMPLE_CALL = ToolCall("qzcalledqz", '{"qzkeyqz": "qzvalueqz"}')
"""A call that no template has, to see how templates write calls."""
# The largest tokenizers, with 260,000 tokens, take 2 s and half a gigabyte.
_LOAD_S = 20.0
_LOAD_BYTES = 2 * 2**30
_TRY_S = 5.0
_ENCODE_S = 10.0
_ENCODE_BYTES = 3 * 2**28
_SHAPE_S = 5.0
_SHAPE_BYTES = 2**30
_SETTINGS_LIMITS = Limits(60.0, 2**30)
# Limits for encoding: per byte of text, and in all.
_BYTES_PER_BYTE = 1000
_MAX_ENCODE_BYTES = 4 * 2**30
# How often a request is sent, if requests of other threads end the child.
_TRIES = 3
Waiting = Callable[[], None]
"""Called every 20 ms during a request; an exception from it ends the request."""


def tokenizer_key(folder: Path) -> str:
    """Return a name for a model's tokenizer: models with the same files have the same; empty without such files."""
    digest = hashlib.sha256()
    files = [folder / name for name in _KEY_FILES if (folder / name).exists()]
    for file in files:
        digest.update(file.name.encode() + read_bytes(file, "Download the model again.", _MAX_KEY_BYTES))
    return digest.hexdigest()[:16] if files else ""


@contextmanager
def tokenizer_view(folder: Path) -> Iterator[Path]:
    """Make a folder of the same name with links to the tokenizer's files, which lasts as long as the block.

    `tokenizer_config.json` and `config.json` are copies without references to code.

    Raises:
        ModelError: If the tokenizer consists of code, its configuration is damaged, or a file is not a regular file.
    """
    with tempfile.TemporaryDirectory(prefix="rdchat-tokenizer-") as root:
        view = Path(root) / (folder.name or "model")
        view.mkdir()
        for path in (*(folder / name for name in _FILES), *folder.glob("*.tiktoken")):
            if path.exists() and path.name != _TEMPLATE_FILE:
                _link_or_copy(path, view / path.name)
        _write_configurations(folder, view)
        yield view


def _link_or_copy(path: Path, target: Path) -> None:
    """Link to a file; copy it without its byte order mark, if it has one."""
    check_file(path)
    with read_errors(path), opened(path) as file:
        is_marked = file.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK
    if is_marked:
        target.write_bytes(read_bytes(path).removeprefix(_BYTE_ORDER_MARK))
    else:
        target.symlink_to(path.resolve())


def _write_configurations(folder: Path, view: Path) -> None:
    """Write `config.json` and `tokenizer_config.json` of a view: what a tokenizer reads of the folder's own.

    With a tokenizer.json, transformers gets its plain class for such files, and no model type. The special tokens that
    the folder's own class would add are then written here, since that class is not used.
    """
    model = _read(folder / "config.json")
    tokenizer = _read(folder / "tokenizer_config.json")
    copied = {key: model[key] for key in _MODEL_KEYS if isinstance(model.get(key), str)}
    # `NewlineTokenizer` keeps its class: it is mlx-lm's own, and does more than the file says.
    if (view / "tokenizer.json").exists() and tokenizer.get("tokenizer_class") != "NewlineTokenizer":
        named = _read(folder / "special_tokens_map.json") | tokenizer
        tokenizer |= {key: text for key, text in _usual_tokens(folder, copied | tokenizer).items() if key not in named}
        # Without a type, transformers would guess one from the folder's name.
        copied = {"model_type": ""}
        tokenizer["tokenizer_class"] = "TokenizersBackend"
    (view / "config.json").write_text(json.dumps(copied), encoding="utf-8")
    code = tokenizer.pop("auto_map", None)
    if code is not None and not any((view / name).exists() for name in _VOCABULARIES):
        raise ModelError(
            f"The tokenizer of {folder.name} needs its own code ({_class_of(code)}), which rdchat does not run.",
            "Choose a model that comes with a tokenizer.json.",
        )
    if (template := _chat_template(folder, tokenizer)) is not None:
        tokenizer["chat_template"] = template
    if len(json.dumps(tokenizer.get("chat_template"))) > _LONGEST_TEMPLATE:
        raise ModelError(
            f"The chat template of {folder.name} has more than {_LONGEST_TEMPLATE:,} characters.",
            "Most have a few thousand. Choose another model, or use the template of its original model.",
        )
    (view / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def _usual_tokens(folder: Path, named: dict[str, Any]) -> dict[str, str]:
    """Return the special tokens that a tokenizer's class has where no file names them, if tokenizer.json has them.

    Args:
        folder: The model's.
        named: Names of its `tokenizer_class` and `model_type`.
    """
    from transformers.models.auto import tokenization_auto as auto  # noqa: PLC0415  takes a second

    name = named.get("tokenizer_class") or auto.TOKENIZER_MAPPING_NAMES.get(named.get("model_type", ""))
    known = auto.tokenizer_class_from_name(name) if isinstance(name, str) else None
    usual = inspect.signature(known).parameters if known is not None else {}
    texts = {key: each.default for key, each in usual.items() if key.endswith("_token") and type(each.default) is str}
    spelled = read_bytes(folder / "tokenizer.json") if texts else b""
    return {key: text for key, text in texts.items() if json.dumps(text, ensure_ascii=False).encode() in spelled}


def has_template(folder: Path) -> bool:
    """Return whether a model's folder has a chat template.

    Raises:
        ModelError: If a file that may have one is damaged.
    """
    return _chat_template(folder, _read(folder / "tokenizer_config.json")) is not None


def _chat_template(folder: Path, tokenizer: dict[str, Any]) -> Any:
    """Return a folder's chat template, from whichever of its files has it; None if it has none.

    The first of `tokenizer_config.json`, `chat_template.json` and `processor_config.json` that has templates counts.
    Files of their own (`.jinja`) then replace those of the same name. A template named `tool_use` is the one for tools,
    and becomes a branch of the other.
    """
    # One template, a list or a dict of templates with names, or None.
    stated = tokenizer.get("chat_template")
    for file in ("chat_template.json", "processor_config.json"):
        if stated is None:
            stated = _read(folder / file).get("chat_template")
    if stated is None:
        stated = {}
    if isinstance(stated, list):
        stated = {each["name"]: each["template"] for each in stated}
    templates = dict(stated) if isinstance(stated, dict) else {"default": stated}
    for path in (folder / _TEMPLATE_FILE, *sorted((folder / TEMPLATES).glob("*.jinja"))):
        if path.exists():
            name = "default" if path.name == _TEMPLATE_FILE else path.stem
            templates[name] = read_text(path, MODEL_HINT, _LONGEST_TEMPLATE)
    default = templates.get("default")
    tools = templates.get("tool_use")
    if isinstance(default, str) and isinstance(tools, str):
        return joined_templates(tools, default)
    # Without a default, transformers chooses by name: `tool_use` where there are tools.
    if default is None and templates:
        return [{"name": name, "template": text} for name, text in templates.items()]
    return default


def joined_templates(tools: str, default: str) -> str:
    """Return one chat template that writes what `tools` writes where there are tools, and `default` elsewhere."""
    # A line end after a tag, and one at the end of a template, are not rendered; `+` keeps blanks before a tag.
    branches = tools.removesuffix("\n"), default.removesuffix("\n")
    return "{{% if tools %}}\n{}{{%+ else %}}\n{}{{%+ endif %}}".format(*branches)


def _class_of(auto_map: object) -> str:
    """Return the class named in an `auto_map`, for people."""
    named = auto_map.get("AutoTokenizer") if isinstance(auto_map, dict) else auto_map
    if isinstance(named, list):
        named = next((name for name in named if name), None)
    return str(named)[:100]


def _read(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file; empty without the file."""
    return read_object(path) if path.exists() else {}


def tool_of(name: str) -> dict[str, Any]:
    """Return a tool with the arguments of `SAMPLE_CALL`, as a client sends it."""
    properties = {key: {"type": "string", "description": "What"} for key in json.loads(SAMPLE_CALL.arguments)}
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return {"type": "function", "function": {"name": name, "description": "Does", "parameters": schema}}


@cache
def shared_tokenizers() -> "TokenizerProcess":
    """Return the tokenizer process that all models share, since starting one takes a second."""
    return TokenizerProcess()


@dataclass(frozen=True, slots=True)
class TemplateHabits:
    """What a chat template does with thoughts, tools and calls, and how it ends a reply.

    Attributes:
        drops: Whether it removes the thoughts of earlier replies.
        thought: What it writes before a reply's thought, and between it and the answer; empty where unknown.
        choices: The variables that switch thinking, by choice; empty where the template has no switch.
        default: The choice whose prompt is the one without a choice; None where it is none of them.
        takes_tools: Whether it writes tools.
        call: A chat with `SAMPLE_CALL` as it writes it; empty where it leaves out the call, None where that is unknown.
        names_form: Whether the tokenizer's configuration names the form of calls.
        end: The control token directly after a reply; None where there is none.
    """

    drops: bool = False
    thought: Sequence[str] = ()
    choices: Mapping[ThinkingChoice, Mapping[str, Any]] = field(default_factory=dict)
    default: ThinkingChoice | None = None
    takes_tools: bool = False
    call: str | None = ""
    names_form: bool = False
    end: int | None = None


class TokenizerProcess:
    """The child process, which keeps the tokenizers that it read last; others are read again when needed.

    Any thread may call it: tokens are counted while a reply waits for its prompt.
    """

    def __init__(self) -> None:
        self.child = ChildProcess("tokenizers")
        # By folder, until its tokenizer is read anew.
        self._habits: dict[Path, TemplateHabits] = {}

    def start_child(self) -> None:
        """Start the child, which takes a second or two; the first request waits for it."""
        with _errors_of("The process for tokenizers"):
            self.child.start_child()

    def read_tokenizer(self, folder: Path, waiting: Waiting = lambda: None, *, reread: bool = False) -> dict[str, int]:
        """Read and test a model folder's tokenizer, unless that is done; return text and id of control tokens.

        Args:
            folder: The model's folder.
            waiting: See `ModelPrompts.encode`.
            reread: Read it again, since the files may have changed.

        Raises:
            ModelError: If it cannot be read, or takes too long or too much memory.
        """
        if reread:
            self._habits.pop(folder, None)
        limits = Limits(_LOAD_S, _LOAD_BYTES)
        request = {"reread": reread}
        return self._request(
            "read_tokenizer",
            folder,
            request,
            limits,
            waiting=waiting,
            read=lambda answer: {text: _token_id(number) for text, number in dict(answer["control"]).items()},
        )

    def encode(self, folder: Path, waiting: Waiting, **request: Any) -> list[int]:
        """Return the token ids from `TokenizerCalls.encode`; `ModelPrompts.encode` lists the errors.

        Args:
            folder: The model's folder.
            waiting: See `ModelPrompts.encode`.
            request: The arguments of `TokenizerCalls.encode`.
        """
        size = len(json.dumps(request, ensure_ascii=False, default=str).encode("utf-8", "replace"))
        memory = min(_ENCODE_BYTES + _BYTES_PER_BYTE * size, _MAX_ENCODE_BYTES)
        limits = Limits(_ENCODE_S * (1 + size / 2**20), memory)
        return self._request(
            "encode",
            folder,
            request,
            limits,
            waiting=waiting,
            read=lambda answer: [_token_id(each) for each in answer["ids"]],
        )

    def encode_text(self, folder: Path, text: str) -> list[int]:
        """Return the ids of a text as it would be inside a message; raises as `encode` does."""
        return self.encode(folder, lambda: None, text=text, marks=Marks.for_texts([text]), limit=2**31)

    def habits(self, folder: Path, waiting: Waiting = lambda: None) -> TemplateHabits:
        """Return what a chat template does; the defaults where it cannot be tried."""
        if folder not in self._habits:
            limits = Limits(_TRY_S, _ENCODE_BYTES)
            # Errors of reading are not the template's.
            self.read_tokenizer(folder, waiting)
            try:
                habits = self._request("habits", folder, {}, limits, waiting=waiting, read=_habits_of)
            except _InterruptedError:
                # It is not the template's fault: the next call tries again.
                return TemplateHabits()
            except ModelError:
                # Encoding a conversation will report it.
                habits = TemplateHabits()
            self._habits[folder] = habits
        return self._habits[folder]

    def settings(self, config: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return `class_settings` of a config.json.

        Raises:
            ModelError: If that takes too long or too much memory.
        """
        try:
            answer = self.child.submit("settings", {"config": config}, _SETTINGS_LIMITS).result()
        except RdchatError as error:
            raise ModelError("The model's config.json could not be read in time.", "Load it again.") from error
        return list(answer["parts"])

    def check_shape(self, shape: AnswerShape, waiting: Waiting = lambda: None) -> None:
        """Compile the shape of an answer, so that a wrong or too large shape fails outside this process.

        Raises:
            ShapeRefusedError: If it cannot be used; the message says why.
        """
        self._check(shape, "shape", {"kind": shape.kind, "source": shape.source}, waiting)

    def check_answer(self, shape: AnswerShape, answer: str) -> None:
        """Check a finished answer with the schemas that its shape's grammar does not enforce.

        Raises:
            ModelError: If it does not fit, or the check takes too long.
        """
        self._check(shape, "answer", {"answer": answer, "schemas": shape.unenforced})

    def _check(self, shape: AnswerShape, do: str, arguments: dict[str, Any], waiting: Waiting = lambda: None) -> None:
        """Send a request about a shape; an error of the child becomes one about the shape."""
        try:
            self.child.submit(do, arguments, Limits(_SHAPE_S, _SHAPE_BYTES)).result(waiting)
        except ChildError as error:
            hint = error.hint if error.interrupted else SHAPE_HINT
            raise ShapeRefusedError(f"The {shape.label} {error.reason}.", hint) from error

    def _request[T](
        self,
        do: str,
        folder: Path,
        request: dict[str, Any],
        limits: Limits,
        *,
        waiting: Waiting,
        read: Callable[[Any], T],
    ) -> T:
        """Return `read` of the child's answer to a request about a folder, which the child reads first if necessary."""
        arguments = {"folder": str(folder), **request}

        def read_known(answer: Any) -> T | None:
            return None if "unread" in answer else read(answer)

        with _errors_of(f"The {'tokenizer' if do == 'read_tokenizer' else 'chat template'} of {folder.name}"):
            for _ in range(_TRIES):
                job = self.child.submit(do, arguments, limits, read=read_known)
                answer: T | None = job.result(waiting)
                if answer is not None:
                    return answer
                # The child is a new one, or it dropped the tokenizer.
                self.read_tokenizer(folder, waiting)
            raise ChildEndedError("ended again and again")


class _InterruptedError(ModelError):
    """The child was killed or stopped; the model is not at fault."""


@contextmanager
def _errors_of(what: str) -> Iterator[None]:
    """Turn errors of the child into errors about `what`."""
    try:
        yield
    except FrameError as error:
        raise PromptTooLongError("This chat is too long for any model.", LENGTH_HINT) from error
    except ChildError as error:
        kind = _InterruptedError if error.interrupted else ModelError
        raise kind(f"{what} {error.reason}.", error.hint if error.interrupted else MODEL_HINT) from error


# Readers of the child's answers: an answer of another form makes the request fail.


def _habits_of(answer: Any) -> TemplateHabits:
    given = answer["choices"]
    default = answer["default"]
    call = answer["call"]
    end = answer["end"]
    return TemplateHabits(
        drops=bool(answer["drops"]),
        thought=[*map(str, answer["thought"])],
        choices={each: dict(given[each.value]) for each in ThinkingChoice if each.value in given},
        default=None if default is None else ThinkingChoice(default),
        takes_tools=bool(answer["takes_tools"]),
        call=None if call is None else str(call),
        names_form=bool(answer["names_form"]),
        end=None if end is None else _token_id(end),
    )


def _token_id(number: object) -> int:
    if type(number) is not int or not 0 <= number < 2**31:
        raise TypeError("no token's id")
    return number
