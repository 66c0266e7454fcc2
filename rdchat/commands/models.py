"""`rdchat models`: fetch the default model, list the models on this machine, see whether two go together."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rdchat.commands.progress import ProgressLine
from rdchat.errors import ModelError


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `models` and its actions."""
    parser = subparsers.add_parser("models", help="fetch the default model, list models, see whether two go together")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    actions.add_parser("install-default", help="fetch and convert the default model unless it is there")
    actions.add_parser("list", help="list the models that can be loaded")
    pair = actions.add_parser("check-pair", help="tell whether one model can draft for another")
    pair.add_argument("target", metavar="TARGET", help="folder or hub id of the model that answers")
    pair.add_argument("draft", metavar="DRAFT", help="folder or hub id of the smaller model that drafts")
    pair.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what `args.action` says; the exit status is 0, or 1 for a pair that does not go together."""
    if args.action == "check-pair":
        return _check_pair(args.target, args.draft, args.json)
    return _install_default() if args.action == "install-default" else _list()


def _install_default() -> int:
    from rdchat.inference.models.default_model import ensure_default_model  # noqa: PLC0415  slow to import

    with ProgressLine(sys.stderr, verbose=True) as progress:
        folder = ensure_default_model(progress.show)
    print(folder)
    return 0


def _list() -> int:
    from rdchat.inference.models.installed_models import model_places  # noqa: PLC0415  slow to import

    rows = []
    for place in model_places():
        try:
            rows.append((place.name, *_described(place.path), place.place))
        except (ModelError, OSError):
            continue  # the hub's cache also holds what is no language model
    if not rows:
        print("No models yet. `rdchat models install-default` fetches the default one.", file=sys.stderr)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def _described(path: Path) -> tuple[str, str, str, str]:
    """Return a model's architecture, number of parameters, precision and size; raises ModelError where it has none."""
    from rdchat.inference.models.gguf_header import check_gguf  # noqa: PLC0415  slow to import
    from rdchat.inference.models.model_files import check_model_folder  # noqa: PLC0415

    if path.is_file():
        check_gguf(path)
        return "GGUF", "", "", _megabytes(path.stat().st_size)
    files = check_model_folder(path)
    precision = f"{files.quantization_bits}-bit" if files.quantization_bits else "not quantised"
    size = _megabytes(files.stored_bytes)
    return files.architecture, f"{files.parameters / 1e6:,.0f}M parameters", precision, size


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.0f} MB"


def _check_pair(target: str, draft: str, as_json: bool) -> int:
    from rdchat.inference.models.vocabularies import check_pair  # noqa: PLC0415  slow to import

    verdict = check_pair(target, draft)
    print(json.dumps({**asdict(verdict), "compatible": verdict.compatible}, ensure_ascii=False) if as_json else verdict)
    return 0 if verdict.compatible else 1
