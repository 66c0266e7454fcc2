"""A case of the corpus: how it is made, and its expected result."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

SAYS_YES = b"y\nyes\n" * 64  # on standard input, for whoever asks whether to run something


class Kind(StrEnum):
    """What the hostile thing is."""

    FOLDERS = "folders"
    DRAFTERS = "drafters"
    TEMPLATES = "templates"
    STORES = "stores"
    PROMPTS = "prompts"
    MARKDOWN = "markdown"
    LABELS = "labels"
    ARGUMENTS = "arguments"
    BACKUPS = "backups"
    NAMES = "names"
    HUB = "hub"
    IMPORTS = "imports"


@dataclass(frozen=True, slots=True)
class Call:
    """What a case runs, once its files are there.

    Attributes:
        arguments: Of `rdchat`; empty where a database is opened instead.
        model: The folder that is picked where the case is tried in the window.
        drafter: The drafter that is chosen there, if any.
        data: The data folder (`RDCHAT_DATA_DIR`); None is an empty one.
        store: The database that is opened and read whole, in the place of a command.
        text: What a reply in the window says (markdown).
        only_model: In the window, the chats of this model alone are listed, and the pointer rests on every part.
        stdin: What standard input holds.
        closed: Descriptors that are closed when the process starts; needs `own_process`.
        own_process: Start Python anew rather than fork a process that has imported all: for what Python itself reads.
        environment: Variables to set; None takes one away.
        statuses: Exit statuses that are right.
        words: What the line on standard error must have.
        tells_progress: Whether lines of progress may come before that line.
        told: What was not done may be told on standard output, so none need be on standard error.
        memory_bytes: The most that its processes may hold; None for the usual limit.
        plain: Arguments of the same reply decoded plainly. Where both print JSON, their tokens must be the same.
    """

    arguments: tuple[str, ...] = ()
    model: Path | None = None
    drafter: Path | None = None
    data: Path | None = None
    store: Path | None = None
    text: str | None = None
    only_model: str | None = None
    stdin: bytes = SAYS_YES
    closed: tuple[int, ...] = ()
    own_process: bool = False
    environment: Mapping[str, str | None] = field(default_factory=dict)
    statuses: tuple[int, ...] = (0, 1, 2)
    words: str = ""
    tells_progress: bool = False
    told: bool = False
    memory_bytes: int | None = None
    plain: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One hostile thing.

    Attributes:
        kind: What it is.
        name: Unique among its kind; names the fault.
        make: Makes the files in an empty folder. Evil code in them makes `evil_mark` of that folder.
    """

    kind: Kind
    name: str
    make: Callable[[Path], Call]

    @property
    def id(self) -> str:
        return f"{self.kind}: {self.name}"


def evil_mark(folder: Path) -> Path:
    """Return the file that evil code of a case would make: it must not be there afterwards."""
    return folder / "evil-code-ran"


def ask(model: Path, *options: str, prompt: str = "Hello", **more: object) -> Call:
    """Return the call that has a model answer with a few tokens."""
    # --seed and --temperature: the same every time
    arguments = ("ask", "--model", str(model), "--max-tokens", "4", "--temperature", "0", *options, prompt)
    return Call(arguments, model=model, **more)  # type: ignore[arg-type]  # the caller's own fields
