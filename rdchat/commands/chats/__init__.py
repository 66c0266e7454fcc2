"""`rdchat chats`: list, export, import, back up and restore the chats, whether the window is open or not."""

import argparse
from collections.abc import Callable

from rdchat.commands.chats import listing, reading, writing


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `chats` and its actions."""
    parser = subparsers.add_parser("chats", help="list, export, import, back up and restore chats")
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for add in (listing.add_list, writing.add_export, reading.add_import, writing.add_backup, reading.add_restore):
        add(actions)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Do what was asked for; the exit status is 0, or 1 where something was not taken."""
    act: Callable[[argparse.Namespace], int] = args.act
    return act(args)
