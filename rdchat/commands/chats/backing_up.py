"""`rdchat chats backup` and `restore`: write the whole store into one file, and read it back."""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.chat.plain_data import from_plain
from rdchat.chat.transfer.backup_file import BackupFacts, back_up
from rdchat.chat.transfer.child import TransferProcess
from rdchat.chat.transfer.reports import Progress
from rdchat.chat.transfer.restore import Restored, carry_out, decide, finish
from rdchat.commands.chats.progress import counted, shown_job, shown_progress
from rdchat.commands.chats.targets import add_force, refuse_loss
from rdchat.commands.chats.through_app import ask_app
from rdchat.commands.progress import ProgressLine
from rdchat.errors import InvalidSettingError, StorageLockedError, one_line
from rdchat.files.atomic_file import make_folder
from rdchat.files.file_lock import FileLock


def add_actions(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `backup` and `restore`."""
    backup = actions.add_parser("backup", help="write all chats and the settings into one file")
    backup.add_argument("file", metavar="FILE", help="what to write, such as chats.zip")
    backup.add_argument("--json", action="store_true", help="print one JSON object")
    add_force(backup)
    backup.set_defaults(act=_backup)
    restore = actions.add_parser(
        "restore",
        help="put a backup in the place of all chats and the settings",
        description="What is there now is kept beside, as conversations-before-restore-DATE.db, and can be restored "
        "in turn. Where the app is open, it does this itself.",
    )
    restore.add_argument("file", metavar="FILE", help="a backup, or a database that a restore has kept")
    restore.add_argument("--json", action="store_true", help="print one JSON object")
    restore.set_defaults(act=_restore)


def _backup(args: argparse.Namespace) -> int:
    path = paths.expanded(args.file, "The backup")
    if path.is_dir():
        raise InvalidSettingError(f"{path} is a folder.", "Name a file.")
    refuse_loss(path, force=args.force)
    files = (str(each) for each in (paths.database_path(), paths.settings_path(), path.absolute()))
    with ProgressLine(sys.stderr) as line:
        facts = from_plain(BackupFacts(), back_up(shown_job(line), *files))[0]
    if args.json:
        print(json.dumps(asdict(facts), ensure_ascii=False))
    else:
        what = f"{counted(facts.chats, 'chat')}, {counted(facts.messages, 'message')}, {facts.bytes / 1e6:,.2f} MB"
        print(one_line(f"{what}: {facts.path}"))
    return 0


def _restore(args: argparse.Namespace) -> int:
    source = paths.expanded(args.file, "The backup").absolute()
    with ProgressLine(sys.stderr) as line:
        kept = _restored(source, shown_progress(line))
    if args.json:
        print(json.dumps(kept, ensure_ascii=False))
        return 0
    print(one_line(f"Restored {source}."))
    for path in (kept["database"], kept["settings"]):
        if path:
            print(one_line(f"What was there before is kept as {path}"))
    return 0


def _restored(source: Path, show: Callable[[Progress], object]) -> dict[str, Any]:
    data, database, settings = paths.data_dir(), paths.database_path(), paths.settings_path()
    make_folder(data)
    try:
        finish(data, database, settings)
        lock = FileLock(database.with_name(database.name + ".lock"))
    except StorageLockedError:
        return ask_app({"do": "restore", "paths": [str(source)]}, show, Restored())
    try:
        with closing(TransferProcess()) as process:
            settings_too = _settings_beside(source)
            job = process.run("prepare", BackupFacts(), show, source=source, data=data, settings=settings_too)
            job.result(lambda: None)
        decide(data)
        return asdict(carry_out(data, database, settings) or Restored())
    finally:
        lock.release()


def _settings_beside(source: Path) -> Path | None:
    """Return the settings that a restore has kept together with a database; None where there are none."""
    beside = source.with_name(source.name.replace("conversations", "settings", 1)).with_suffix(".json")
    return beside if "-before-restore-" in source.name and beside.is_file() else None
