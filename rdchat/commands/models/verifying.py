"""`rdchat models verify MODEL`: compares a model's files with the hub's checksums."""

import argparse
import sys
from dataclasses import asdict

from rdchat.commands import options
from rdchat.commands.models.listing import card_of
from rdchat.commands.terminal import ProgressLine
from rdchat.errors import ModelError, one_line
from rdchat.hub.known_files import download_command
from rdchat.hub.tokens import Tokens
from rdchat.hub.verifying import Verdict
from rdchat.services.models.installed.removal import reason_not_to_verify, verify_model


def run(args: argparse.Namespace) -> int:
    """Verify a model; the exit status is 1 if it is damaged or incomplete."""
    name, card, done = args.model, card_of(args), 0
    if reason := reason_not_to_verify(card):
        raise ModelError(f"{name} cannot be verified. {reason}")
    with ProgressLine() as line:

        def count(read: int) -> None:
            nonlocal done
            done += read
            line.show_text(f"{name}: checked {options.size_words(done)}", "checking")

        verdict = verify_model(card, Tokens(), count)
    if verdict.hub_problem and not args.json:
        print(f"{verdict.hub_problem} Missing files cannot be detected.", file=sys.stderr)
    report = {**asdict(verdict), "day": None, "whole": verdict.is_whole}  # earlier versions gave a day
    options.print_result(args, report, _lines(verdict))
    return 0 if verdict.is_whole else 1


def _lines(verdict: Verdict) -> list[str]:
    lists = {
        "damaged": verdict.damaged,
        "missing": verdict.missing,
        "links outside its own folder": verdict.astray,
        "not on Hugging Face": verdict.unknown,
    }
    lines = [f"{one_line(name)}: {words}" for words, names in lists.items() for name in names]
    if verdict.is_whole:
        lines.append(f"{verdict.name}: {len(verdict.intact)} files match Hugging Face's checksums.")
    elif verdict.in_cache:
        seen = (*verdict.damaged, *verdict.astray)
        gguf = next((name for name in seen if name.lower().endswith(".gguf")), "")
        repair = download_command(verdict.name, verdict.commit, gguf)
        lines.append(f"{verdict.name} is damaged or incomplete. `{repair}` repairs it.")
    else:
        lines.append(f"{verdict.name} is damaged or incomplete. Download it again in LM Studio.")
    return [*lines, *filter(None, [verdict.version_words])]
