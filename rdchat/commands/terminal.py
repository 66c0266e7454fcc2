"""What the commands share: safe output on a terminal, a progress line, Ctrl-C, and options of several commands."""

import argparse
import io
import json
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from math import inf
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import TYPE_CHECKING, Any

from rdchat import paths
from rdchat.chat.settings import SettingsStore
from rdchat.errors import InvalidSettingError, file_errors, one_line, without_controls
from rdchat.files import FileLock, make_folder
from rdchat.inference.api import EXAMPLE, Dtype, LoadProgress, ModelInfo, ranked_address

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# The shell's status for a process that Ctrl-C ended.
INTERRUPTED = 130
_ERASE = "\r\x1b[K"
LOAD_ANYWAY = "--load-anyway"
# Begins the help of options that take a model or a drafter.
NAMED = "a name from `rdchat models list`, or"
SHARED: dict[str, dict[str, Any]] = {
    "model": {"metavar": "MODEL", "help": "a name from `rdchat models list`"},
    "host": {"metavar": "HOST", "help": "its name for ssh, such as studio.local or anna@studio.local"},
    "name": {"metavar": "NAME", "help": "your name for the server"},
    "address": {"metavar": "ADDRESS", "help": f"such as {EXAMPLE}"},
    "--revision": {"default": "main", "metavar": "R", "help": "a branch, tag or commit in the Hugging Face cache"},
    "--yes": {"action": "store_true", "help": "do not ask for confirmation"},
    "--force": {"action": "store_true", "help": "replace an existing file"},
    "--json": {"action": "store_true", "help": "print one JSON object"},
}
"""Arguments that several commands share; the table of commands names them."""


class TerminalStream(io.TextIOWrapper):
    """Standard output or error on a terminal: what models, servers and files say cannot control it.

    Each write is checked for itself, so an escape sequence in several parts is no exception.

    Args:
        stream: The stream as Python opened it.
    """

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(stream.buffer, stream.encoding, stream.errors, line_buffering=True)
        # If Python freed it while this stream is in use, it would close the file that both write to.
        self._original = stream

    def write(self, text: str) -> int:
        return super().write(without_controls(text))

    def erase_line(self) -> None:
        super().write(_ERASE)


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """Shows progress on standard error: on a terminal; in a file or pipe, nothing or a line for each stage.

    Args:
        verbose: Whether to print a line for each stage if it is not a terminal.
        repeat_s: Seconds after which a stage's line is printed again there.
    """

    def __init__(self, verbose: bool = False, repeat_s: float = inf) -> None:
        self._stream = sys.stderr
        self._verbose = verbose
        self._repeat_s = repeat_s
        self._terminal = self._stream.isatty()
        # The last stage that was shown; before the first one there is nothing to erase.
        self._stage = ""
        # When a line was last printed in a file or pipe, by the monotonic clock.
        self._printed_at = 0.0

    def show_stage(self, progress: LoadProgress) -> None:
        """Show the stage and, on a terminal, its percentage."""
        percent = "" if progress.fraction is None or not self._terminal else f" {progress.fraction:4.0%}"
        self.show_text(f"{progress.stage}…{percent}", progress.stage)

    def show_text(self, text: str, stage: str) -> None:
        """Show a text instead of the last one; in a file or pipe, only the first text of a stage."""
        if self._terminal:
            # A line that wraps could not be erased.
            room = shutil.get_terminal_size().columns - 1
            self._erase()
            self._stream.write(one_line(text)[:room])
        elif self._verbose and (stage != self._stage or monotonic() - self._printed_at > self._repeat_s):
            self._stream.write(f"{text}\n")
            self._printed_at = monotonic()
        self._stage = stage
        self._stream.flush()

    def print_line(self, text: str) -> None:
        """Write a line that stays."""
        self.erase()
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def erase(self) -> None:
        """Erase the line, before something else is printed."""
        if self._terminal and self._stage:
            self._erase()
            self._stream.flush()

    def _erase(self) -> None:
        if isinstance(self._stream, TerminalStream):
            self._stream.erase_line()

    def __exit__(self, *_error: object) -> None:
        self.erase()


@contextmanager
def ctrl_c_calls(cancel: Callable[[], None]) -> Iterator[None]:
    """Call `cancel` at the first Ctrl-C in the block; a second one interrupts at once."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        cancel()

    before = signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def agreed(yes: bool, question: str) -> bool:
    """Print what will be done, and ask unless `--yes` was given.

    Raises:
        InvalidSettingError: If there is nobody to ask.
    """
    print(question, file=sys.stderr)
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidSettingError("There is no terminal to ask you.", "Add --yes.")
    print("Continue? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines, with columns as wide as their widest cell; foreign text cannot break a line."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def add_model(parser: argparse.ArgumentParser, *, dtype: bool = True, remote: bool = False) -> None:
    """Add the options for the model: `--model`, `--dtype` and `--load-anyway`."""
    elsewhere = ", or remote:SERVER/MODEL" if remote else ""
    parser.add_argument("--model", help=f"{NAMED} a path{elsewhere} (default: SmolLM2-135M-Instruct)")
    if dtype:
        parser.add_argument(
            "--dtype", choices=[d.value for d in Dtype], default="auto", help="precision of the weights"
        )
    parser.add_argument(LOAD_ANYWAY, action="store_true", help="continue even if memory seems too small")


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """Add the option for a model over several Macs; see `engine_address`."""
    text = "run the model on these Macs together, such as localhost,studio.local (`rdchat cluster add`)"
    parser.add_argument("--hosts", metavar="A,B", help=text)


def engine_address(args: argparse.Namespace) -> str | None:
    """Return the address of the model in the options, as an engine takes it."""
    return ranked_address(tuple(args.hosts.split(",")), args.model) if args.hosts else args.model


def add_fields(
    parser: Any, defaults: "DataclassInstance", helps: Mapping[str, str], *, unset: bool = False, **metavars: str
) -> None:
    """Add an option for each named field of a dataclass, with its default and type.

    Args:
        parser: The parser, or a group of its options.
        defaults: The dataclass.
        helps: The help of each field.
        unset: Whether an option that is not given is None, whatever the default.
        metavars: Name of the value in the help, by field; by default the option's name.
    """
    for name, text in helps.items():
        value = getattr(defaults, name)
        option = f"--{name.replace('_', '-')}"
        metavar = metavars.get(name)
        default = None if unset else value
        parser.add_argument(option, type=type(value), default=default, metavar=metavar, help=text)


def from_options[D: DataclassInstance](kind: type[D], args: argparse.Namespace, **more: Any) -> D:
    """Return a dataclass filled from the options with the names of its fields, and `more`."""
    names = {field.name for field in fields(kind)} & vars(args).keys()
    return kind(**{name: getattr(args, name) for name in names} | more)


def change_list(name: str, change: Callable[[Sequence[Any]], Iterable[Any]]) -> None:
    """Change a list in the settings, unless a window is open, which has settings of its own.

    Args:
        name: Of the setting.
        change: Returns the list for the present one.
    """
    make_folder(paths.data_dir())
    with FileLock(paths.data_dir() / "instance.lock", "the settings", "Use Models in its window, or quit it first."):
        store = SettingsStore(paths.settings_path())
        values: dict[str, Any] = {name: tuple(change(getattr(store.settings, name)))}
        store.save_settings(replace(store.settings, **values))


def print_warning(info: ModelInfo) -> None:
    """Print the warning that memory is tight, if there is one, on standard error."""
    if info.warning:
        print(f"rdchat: {one_line(info.warning)}", file=sys.stderr)


def print_json(report: Any) -> None:
    """Print one JSON object on one line."""
    print(json.dumps(report, ensure_ascii=False))


def print_result(args: argparse.Namespace, report: Any, text: str | Iterable[str]) -> None:
    """Print a result: one JSON object with `--json`, else its text or lines."""
    if args.json:
        print_json(report)
    else:
        for line in [text] if isinstance(text, str) else text:
            print(line)


def write_errors(path: Path) -> AbstractContextManager[None]:
    """Raise StorageError if a file cannot be written in the block."""
    return file_errors(f"The file {path} cannot be written", "Choose another path.")


def check_writable(path: Path) -> None:
    """Check before long work that a file can be written; creates none."""
    existed = path.exists()
    with write_errors(path):
        path.open("ab").close()
        if not existed:
            path.unlink()
