"""`rdchat chats export`: write chats into files."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from rdchat import paths
from rdchat.chat.transfer.exporting import export_chats
from rdchat.commands.chats.progress import shown_job
from rdchat.commands.chats.stored_settings import stored_settings
from rdchat.commands.chats.targets import add_force, refuse_loss
from rdchat.commands.progress import ProgressLine
from rdchat.errors import InvalidSettingError


def add_actions(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `export`."""
    parser = actions.add_parser(
        "export",
        help="write chats into files",
        description="Without --chat, all chats. JSON is complete, with alternatives, traces, settings and statistics, "
        "and can be imported again; Markdown is for reading.",
    )
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--json", metavar="FILE", help="one file of JSON")
    kind.add_argument("--markdown", metavar="PATH", help="a file for one chat; a new folder for several")
    parser.add_argument("--chat", type=int, nargs="+", metavar="ID", help="only these chats (`rdchat chats list`)")
    parser.add_argument("--details", action="store_true", help="with settings and statistics in Markdown")
    add_force(parser)
    parser.set_defaults(act=_export)


def _export(args: argparse.Namespace) -> int:
    path = paths.expanded(args.json or args.markdown, "The file")
    one = args.chat is not None and len(args.chat) == 1
    kind = "json" if args.json else "markdown" if one else "folder"
    if kind != "folder" and path.is_dir():
        raise InvalidSettingError(f"{path} is a folder.", "Name a file.")
    if kind != "folder":  # one that is there is refused by the export
        refuse_loss(path, force=args.force)
    settings = stored_settings()
    with ProgressLine(sys.stderr) as line:
        report = export_chats(
            shown_job(line),
            str(paths.database_path()),
            str(Path(path).absolute()),
            kind=kind,
            chats=args.chat,
            details=args.details,
            system_prompt=settings.system_prompt,
            sampling=asdict(settings.sampling),
        )
    print(json.dumps(report["path"], ensure_ascii=False) if not report["path"].isprintable() else report["path"])
    return 0
