"""`rdchat models verify MODEL`."""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from rdchat.commands.models.listing import card_named
from rdchat.commands.models.table import size_words
from rdchat.commands.progress import ProgressLine
from rdchat.errors import ModelError, one_line

if TYPE_CHECKING:
    from rdchat.hub.verifying import Verdict


def add_actions(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `verify`."""
    parser = actions.add_parser("verify", help="hold a model's files against the hub's checksums")
    parser.add_argument("model", metavar="MODEL", help="a name that `rdchat models list` gives")
    parser.add_argument("--revision", default="main", metavar="R", help="a branch, tag or commit, of the hub's cache")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=_verify)


def _verify(args: argparse.Namespace) -> int:
    with ProgressLine(sys.stderr) as line:
        done = 0

        def count(read: int) -> None:
            nonlocal done
            done += read
            line.show_text(f"{args.model}: checked {size_words(done)}", "checking")

        verdict = _verdict(args.model, args.revision, count)
    if args.json:
        print(json.dumps({**asdict(verdict), "whole": verdict.is_whole}, ensure_ascii=False, default=str))
    else:
        _print(verdict)
    return 0 if verdict.is_whole else 1


def _verdict(name: str, revision: str, on_bytes: Callable[[int], None]) -> "Verdict":
    from rdchat.hub.tokens import Tokens  # noqa: PLC0415  slow to import, as all of these
    from rdchat.services.models.installed.verification import reason_not_to_verify, verify_model  # noqa: PLC0415

    card = card_named(name, revision)
    if card is None:
        raise ModelError(f"There is no model {name}.", "`rdchat models list` shows what there is.")
    if reason := reason_not_to_verify(card):
        raise ModelError(f"{name} cannot be verified. {reason}")
    return verify_model(card, Tokens(), on_bytes)


def _print(verdict: "Verdict") -> None:
    for words, names in (
        ("damaged", verdict.damaged),
        ("missing", verdict.missing),
        ("leads out of its own folder", verdict.astray),
        ("not at the hub", verdict.unknown),
    ):
        for name in names:
            print(f"{one_line(name)}: {words}")
    if verdict.hub_problem:
        print(f"{verdict.hub_problem} Missing files would not be seen.", file=sys.stderr)
    if verdict.is_whole:
        print(f"{verdict.name}: {len(verdict.intact)} files have the hub's checksums.")
    elif verdict.in_cache:
        print(f"{verdict.name} is not whole. `{_repair(verdict)}` fetches what is wrong.")
    else:
        print(f"{verdict.name} is not whole. Download it again in LM Studio.")
    if verdict.version_words:
        print(verdict.version_words)


def _repair(verdict: "Verdict") -> str:
    """Return the command that fetches just the version that was looked at."""
    from rdchat.hub.known_files import download_command  # noqa: PLC0415  slow to import

    seen = (*verdict.damaged, *verdict.astray)
    gguf = next((name for name in seen if name.lower().endswith(".gguf")), "")
    return download_command(verdict.name, verdict.commit, gguf)
