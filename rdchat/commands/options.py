"""Options that several commands share, and what commands do with them."""

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from rdchat.errors import one_line
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.api.requests import Dtype

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from rdchat.commands.progress import ProgressLine
    from rdchat.inference.target.target import LoadedModel

LOAD_ANYWAY = "--load-anyway"
NAMED = "a name that `rdchat models list` gives, or"


def add_model(parser: argparse.ArgumentParser, *, dtype: bool = True) -> None:
    """Add the options for the model: `--model`, `--dtype` and `--load-anyway`."""
    parser.add_argument("--model", help=f"{NAMED} a path (default: SmolLM2-135M-Instruct)")
    if dtype:
        parser.add_argument(
            "--dtype", choices=[d.value for d in Dtype], default="auto", help="precision of the weights"
        )
    parser.add_argument(LOAD_ANYWAY, action="store_true", help="go on where memory seems too small")


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def add_fields(parser: Any, defaults: "DataclassInstance", words: Mapping[str, str], **metavars: str) -> None:
    """Add an option for each named field of a dataclass, with its default and type.

    Args:
        parser: The parser, or a group of its options.
        defaults: The dataclass.
        words: The help of each field.
        metavars: What stands for the value in the help, by field; by default the option's name.
    """
    for name, text in words.items():
        default = getattr(defaults, name)
        option, metavar = f"--{name.replace('_', '-')}", metavars.get(name)
        parser.add_argument(option, type=type(default), default=default, metavar=metavar, help=text)


def chosen[D: DataclassInstance](kind: type[D], args: argparse.Namespace, **more: Any) -> D:
    """Return a dataclass with the options that have the names of its fields, and `more`."""
    names = {field.name for field in fields(kind)} & vars(args).keys()
    return kind(**{name: getattr(args, name) for name in names} | more)


def load_chosen(args: argparse.Namespace, progress: "ProgressLine") -> "LoadedModel":
    """Load the model of the options."""
    from rdchat.inference.models.loading import load_model  # noqa: PLC0415  MLX: only once the arguments are right

    return load_model(args.model, Dtype(args.dtype), progress.show, anyway=args.load_anyway)


def print_warning(info: ModelInfo) -> None:
    """Print the warning that memory is tight, if there is one, on standard error."""
    if info.warning:
        print(f"rdchat: {one_line(info.warning)}", file=sys.stderr)


def print_json(report: Any) -> None:
    """Print one JSON object in one line."""
    print(json.dumps(report, ensure_ascii=False))
