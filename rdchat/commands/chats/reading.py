"""`rdchat chats import` and `restore`: read chats from files, through the open app where there is one."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.backup_file import BackupFacts
from rdchat.chat.transfer.child import TransferProcess
from rdchat.chat.transfer.reports import ImportReport, Progress
from rdchat.chat.transfer.restore import Restored, carry_out, decide, finish
from rdchat.commands.chats.through_app import ask_app, counted, shown_progress
from rdchat.commands.interrupt import INTERRUPTED, ctrl_c_calls
from rdchat.commands.progress import ProgressLine
from rdchat.errors import StorageLockedError, one_line
from rdchat.files.atomic_file import make_folder
from rdchat.files.file_lock import FileLock

type Show = Callable[[Progress], object]


def add_import(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `import`."""
    parser = actions.add_parser(
        "import",
        help="take chats from files of rdchat, ChatGPT, LM Studio or Jan",
        description="Takes rdchat's own JSON and databases, ChatGPT's conversations.json or its archive, LM Studio's "
        "*.conversation.json, Jan's threads, and folders of these. Each file appears whole or not at all. The exit "
        "status is 1 where a file or a chat was not taken.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a zip archive, or a folder of such files")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=_import)


def add_restore(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `restore`."""
    restore = actions.add_parser(
        "restore",
        help="put a backup in the place of all chats and the settings",
        description="What is there now is kept beside, as conversations-before-restore-DATE.db, and can be restored "
        "in turn. Where the app is open, it does this itself.",
    )
    restore.add_argument("file", metavar="FILE", help="a backup, or a database that a restore has kept")
    restore.add_argument("--json", action="store_true", help="print one JSON object")
    restore.set_defaults(act=_restore)


def _import(args: argparse.Namespace) -> int:
    files = [paths.expanded(name, "The file").absolute() for name in args.files]
    with ProgressLine(sys.stderr) as line:
        report = _imported(files, shown_progress(line))
    if args.json:
        counts = {"chats": len(report.chats), "messages": report.messages, "complete": report.complete}
        print(json.dumps(counts | report.to_json(), ensure_ascii=False))
    else:
        print("\n".join(one_line(words) for words in _report_lines(report)))
    return INTERRUPTED if report.cancelled else 0 if report.complete else 1


def _imported(files: Sequence[Path], show: Show) -> ImportReport:
    try:
        finish(paths.data_dir(), paths.database_path(), paths.settings_path())
        store = ConversationStore.open(paths.database_path())
    except StorageLockedError:
        request = {"do": "import", "paths": [str(path) for path in files]}
        return ImportReport.from_json(ask_app(request, show, ImportReport()))
    with closing(store), closing(TransferProcess()) as process:
        job = process.import_files(store.database, files, show)
        with ctrl_c_calls(job.cancel):
            return job.result(lambda: None)


def _report_lines(report: ImportReport) -> Sequence[str]:
    """Return what was taken and what not, a line each."""
    lines = [f"Imported {counted(len(report.chats), 'chat')} with {counted(report.messages, 'message')}."]
    if report.already_here:
        lines.append(f"Here already, and not taken again: {counted(report.already_here, 'chat')}.")
    lines += [f"Without {each.parts}: {each.title}" for each in report.without]
    for each in report.not_taken:
        named = each.reason.startswith(each.title)
        lines.append(f"Not taken: {each.reason}" if named else f"Not taken: {each.title}: {each.reason}")
    if report.cancelled:
        lines.append("Stopped: what was under way was taken back.")
    return lines


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


def _restored(source: Path, show: Show) -> dict[str, Any]:
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
