"""Options and functions that several commands share."""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdchat import paths
from rdchat.chat.settings import SettingsStore
from rdchat.errors import file_errors, one_line
from rdchat.files.atomic_file import FileLock, make_folder
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.api.model_address import ranked_address
from rdchat.inference.api.requests import Dtype
from rdchat.inference.remote.server_list import EXAMPLE

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from rdchat.commands.terminal import ProgressLine
    from rdchat.inference.verification.target import LoadedModel

LOAD_ANYWAY = "--load-anyway"
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


def chosen[D: DataclassInstance](kind: type[D], args: argparse.Namespace, **more: Any) -> D:
    """Return a dataclass filled from the options with the names of its fields, and `more`."""
    names = {field.name for field in fields(kind)} & vars(args).keys()
    return kind(**{name: getattr(args, name) for name in names} | more)


def load_chosen(args: argparse.Namespace, progress: "ProgressLine") -> "LoadedModel":
    """Load the model in the options."""
    from rdchat.inference.loading import load_model  # noqa: PLC0415  MLX: only once the arguments are right

    return load_model(args.model, Dtype(args.dtype), progress.show, anyway=args.load_anyway)


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
        store.save(replace(store.settings, **values))


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


def writing(path: Path) -> AbstractContextManager[None]:
    """Raise StorageError if a file cannot be written in the block."""
    return file_errors(f"The file {path} cannot be written", "Choose another path.")


def check_writable(path: Path) -> None:
    """Check before long work that a file can be written; creates none."""
    existed = path.exists()
    with writing(path):
        path.open("ab").close()
        if not existed:
            path.unlink()
