"""`rdchat models`: lists, finds, downloads, verifies and deletes models, and keeps the hub's token."""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict

from rdchat.commands.models import deleting, downloading, hub_token, listing, searching, verifying
from rdchat.commands.progress import ProgressLine


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `models` and its actions."""
    parser = subparsers.add_parser("models", help="find, download, list, verify and delete models and drafters")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    default = actions.add_parser("install-default", help="fetch and convert the default model unless it is there")
    default.set_defaults(act=_install_default)
    for module in (searching, downloading, listing, verifying, deleting, hub_token):
        module.add_actions(actions)
    pair = actions.add_parser("check-pair", help="tell whether one model can draft for another")
    pair.add_argument("target", metavar="TARGET", help="name or path of the model that answers")
    pair.add_argument("draft", metavar="DRAFT", help="name or path of the smaller model that drafts")
    pair.add_argument("--json", action="store_true", help="print one JSON object")
    pair.set_defaults(act=_check_pair)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the action and return the exit status: 0, or 1 where a check found a problem."""
    act: Callable[[argparse.Namespace], int] = args.act
    return act(args)


def _install_default(_args: argparse.Namespace) -> int:
    from rdchat.inference.models.default_model import ensure_default_model  # noqa: PLC0415  slow to import

    with ProgressLine(sys.stderr, verbose=True) as progress:
        folder = ensure_default_model(progress.show)
    print(folder)
    return 0


def _check_pair(args: argparse.Namespace) -> int:
    from rdchat.inference.models.vocabularies import check_pair  # noqa: PLC0415  slow to import

    verdict = check_pair(args.target, args.draft)
    shown = {**asdict(verdict), "compatible": verdict.compatible}
    print(json.dumps(shown, ensure_ascii=False) if args.json else verdict)
    return 0 if verdict.compatible else 1
