"""`rdchat models mtp MODEL`: gets the MTP layers of a model from the repository of its original."""

import argparse
import shlex

from rdchat.commands import options
from rdchat.commands.models.hub_actions import run_download
from rdchat.commands.models.listing import card_of
from rdchat.commands.terminal import INTERRUPTED, ProgressLine, agreed
from rdchat.errors import ModelError
from rdchat.files.sizes import size_text
from rdchat.hub.endpoint import Tokens, find_endpoint
from rdchat.hub.hub_api import HubApi
from rdchat.inference.models.mtp_source import find_layers


def add_mtp(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mtp`."""
    text = "hub id of the model's original, if the model's card does not name it"
    parser.add_argument("--from", dest="original", default="", metavar="ORG/NAME", help=text)


def mtp(args: argparse.Namespace) -> int:
    """Get MTP layers, or resume; Ctrl-C pauses. The exit status is 1 if the person says no."""
    api = HubApi(Tokens().access(find_endpoint()))
    with ProgressLine() as line:
        line.show_text(f"{args.model}: looking for its MTP layers", "asking")
        plan = find_layers(api, card_of(args), args.original)
    if plan is None:
        text = f"Neither the hub nor the card of {args.model} says which model it was quantised from."
        raise ModelError(text, "Name its original: --from ORG/NAME.")
    text = f"MTP layers for {args.model}: {size_text(plan.size)}, from {plan.files.repository}."
    if not agreed(args.yes or plan.is_saved, text):
        return 1
    command = ["rdchat", "models", "mtp", args.model]
    command += ["--revision", args.revision] if args.revision != "main" else []
    ended = run_download(plan.begin(), shlex.join(command))
    if ended is None:
        return INTERRUPTED
    report = {name: getattr(ended, name) for name in ("repository", "commit", "folder", "fetched_bytes")}
    options.print_result(args, {"model": args.model, **report, "bytes": plan.size}, ended.folder)
    return 0
