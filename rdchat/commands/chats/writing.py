"""`rdchat chats export` and `backup`: write chats into files."""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.chat.plain_data import from_plain
from rdchat.chat.settings_store import stored_settings
from rdchat.chat.storage.connections import COMPANIONS
from rdchat.chat.transfer.backup_file import BackupFacts, back_up
from rdchat.chat.transfer.exporting import export_chats
from rdchat.chat.transfer.reports import Progress
from rdchat.commands.chats.through_app import counted, shown_progress
from rdchat.commands.progress import ProgressLine
from rdchat.errors import InvalidSettingError, one_line
from rdchat.work.job import Job


def add_export(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `export`."""
    export = actions.add_parser(
        "export",
        help="write chats into files",
        description="Without --chat, all chats. JSON is complete, with alternatives, traces, settings and statistics, "
        "and can be imported again; Markdown is for reading.",
    )
    kind = export.add_mutually_exclusive_group(required=True)
    kind.add_argument("--json", metavar="FILE", help="one file of JSON")
    kind.add_argument("--markdown", metavar="PATH", help="a file for one chat; a new folder for several")
    export.add_argument("--chat", type=int, nargs="+", metavar="ID", help="only these chats (`rdchat chats list`)")
    export.add_argument("--details", action="store_true", help="with settings and statistics in Markdown")
    _add_force(export)
    export.set_defaults(act=_export)


def add_backup(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `backup`."""
    backup = actions.add_parser("backup", help="write all chats and the settings into one file")
    backup.add_argument("file", metavar="FILE", help="what to write, such as chats.zip")
    backup.add_argument("--json", action="store_true", help="print one JSON object")
    _add_force(backup)
    backup.set_defaults(act=_backup)


def _add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="replace a file that is there already")


def _export(args: argparse.Namespace) -> int:
    path = paths.expanded(args.json or args.markdown, "The file")
    one = args.chat is not None and len(args.chat) == 1
    kind = "json" if args.json else "markdown" if one else "folder"
    if kind != "folder":  # one that is there is refused by the export
        _refuse_loss(path, force=args.force)
    settings = stored_settings()
    with ProgressLine(sys.stderr) as line:
        report = export_chats(
            _shown_job(line),
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


def _backup(args: argparse.Namespace) -> int:
    path = paths.expanded(args.file, "The backup")
    _refuse_loss(path, force=args.force)
    files = (str(each) for each in (paths.database_path(), paths.settings_path(), path.absolute()))
    with ProgressLine(sys.stderr) as line:
        facts = from_plain(BackupFacts(), back_up(_shown_job(line), *files))[0]
    if args.json:
        print(json.dumps(asdict(facts), ensure_ascii=False))
    else:
        what = f"{counted(facts.chats, 'chat')}, {counted(facts.messages, 'message')}, {facts.bytes / 1e6:,.2f} MB"
        print(one_line(f"{what}: {facts.path}"))
    return 0


def _shown_job(line: ProgressLine) -> Job[Any]:
    """Return a job for work in this process that shows its progress in a line."""
    show = shown_progress(line)
    return Job(lambda progress: show(Progress(**progress)))


def _refuse_loss(path: Path, *, force: bool) -> None:
    """Refuse a folder, a file that is there already unless `force`, and rdchat's own in any case."""
    database = paths.database_path()
    beside = [database.with_name(database.name + ending) for ending in (*COMPANIONS, ".lock")]
    if path.is_dir():
        raise InvalidSettingError(f"{path} is a folder.", "Name a file.")
    if path.resolve() in {each.resolve() for each in (database, paths.settings_path(), *beside)}:
        raise InvalidSettingError(f"{path} is a file that rdchat itself needs.", "Name another file.")
    if path.exists() and not force:
        raise InvalidSettingError(f"{path} exists already.", "Name another file, or replace it with --force.")
