"""`rdchat chats`: lists, exports, imports, backs up and restores the chats."""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.chat.settings import stored_settings
from rdchat.chat.storage import (
    COMPANIONS,
    NOT_DELETED,
    matching_chats,
    reading,
    rows_of,
)
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.backups import BackupFacts, Restored, back_up, carry_out, decide, finish
from rdchat.chat.transfer.chat_import import ImportReport
from rdchat.chat.transfer.exporting import date_text, export_chats
from rdchat.chat.transfer.transfer_process import TransferProcess
from rdchat.commands.terminal import INTERRUPTED, ProgressLine, ctrl_c_calls, print_result, table
from rdchat.errors import InvalidSettingError, one_line
from rdchat.files import FileLock, companion, from_plain, make_folder
from rdchat.inference.api import LoadProgress
from rdchat.wording import counted, size_text
from rdchat.work import Job


def add_import_chats(parser: argparse.ArgumentParser) -> None:
    """Add the options of `import`."""
    parser.description = (
        "Imports rdchat's own JSON and databases, conversations.json of ChatGPT, Claude and DeepSeek or its archive, "
        "Claude's projects and memories, "
        "exports of Open WebUI and LibreChat, LM Studio's *.conversation.json, Jan's threads, and folders of these. "
        "Each file is imported whole or not at all. The exit status is 1 if a file or a chat was not imported. "
        "Quit rdchat first."
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file, a zip archive, or a folder of such files")


def import_chats(args: argparse.Namespace) -> int:
    """Import files; the exit status is 1 if something was not imported."""
    files = [paths.expanded(name, "The file").absolute() for name in args.files]
    # A restore that was killed is completed first.
    finish(paths.data_dir(), paths.database_path(), paths.settings_path())
    with (
        ProgressLine() as line,
        closing(ConversationStore(paths.database_path())) as store,
        closing(TransferProcess()) as process,
    ):
        job = process.import_files(store, files, line.show_stage)
        with ctrl_c_calls(job.cancel):
            report = job.result(lambda: None)
    counts = {"chats": len(report.chats), "messages": report.messages, "complete": report.is_complete}
    print_result(args, counts | asdict(report), map(one_line, _report_lines(report)))
    if report.cancelled:
        return INTERRUPTED
    return 0 if report.is_complete else 1


def _report_lines(report: ImportReport) -> Sequence[str]:
    """Return the report of an import, in lines."""
    chats = counted(len(report.chats), "chat")
    lines = [f"Imported {chats} with {counted(report.messages, 'message')}.{report.archived_text}"]
    lines += [each.gain for each in report.folders]
    if report.notes:
        lines.append(f"{counted(len(report.notes), 'note')}, not used until you keep them in Settings > Chats.")
    if report.already_here:
        lines.append(f"Already here, not imported again: {counted(report.already_here, 'chat')}.")
    lines += [f"Without {each.parts}: {each.title}" for each in report.without]
    for each in report.not_taken:
        title = "" if each.reason.startswith(each.title) else f"{each.title}: "
        lines.append(f"Not imported: {title}{each.reason}")
    if report.cancelled:
        lines.append("Stopped. The unfinished file was not imported.")
    return lines


def add_restore(parser: argparse.ArgumentParser) -> None:
    """Add the options of `restore`."""
    parser.description = (
        "The present chats are kept as conversations-before-restore-DATE.db, and can be restored "
        "in the same way. What the backup starts or allows is off until you confirm it in rdchat. Quit rdchat first."
    )
    parser.add_argument("file", metavar="FILE", help="a backup, or a database kept by a restore")


def restore(args: argparse.Namespace) -> int:
    """Restore a backup, and print which former files there are."""
    source = paths.expanded(args.file, "The backup").absolute()
    data = paths.data_dir()
    database = paths.database_path()
    settings = paths.settings_path()
    make_folder(data)
    # A restore that was killed is completed first.
    finish(data, database, settings)
    # The file of an earlier restore has its settings in another file.
    own = source.with_name(source.name.replace("conversations", "settings", 1)).with_suffix(".json")
    own_settings = own if "-before-restore-" in source.name and own.is_file() else None
    with FileLock(database.with_name(database.name + ".lock")):
        with ProgressLine() as line, closing(TransferProcess()) as process:
            job = process.run_task(
                "prepare", BackupFacts(), line.show_stage, source=source, data=data, settings=own_settings
            )
            job.result(lambda: None)
        # From here on it is completed, by the next start if need be.
        decide(data)
        former = asdict(carry_out(data, database, settings) or Restored())
    lines = [f"The former file is kept as {path}" for path in (former["database"], former["settings"]) if path]
    print_result(args, former, map(one_line, [f"Restored {source}.", *lines]))
    return 0


def add_list_chats(parser: argparse.ArgumentParser) -> None:
    """Add the options of `list`."""
    parser.add_argument("--search", default="", metavar="WORDS", help="only chats with all these words")


def list_chats(args: argparse.Namespace) -> int:
    """Print the chats with their ids."""
    chats = _chats(args.search) if paths.database_path().exists() else []
    if not chats and not args.json:
        print("No chat has these words." if args.search else "No chats yet.", file=sys.stderr)
    rows = []
    for chat in chats:
        date = "" if chat["updated_at"] is None else date_text(chat["updated_at"])
        rows.append((str(chat["id"]), chat["title"], counted(chat["messages"], "message"), date))
    print_result(args, {"chats": chats}, table(rows))
    return 0


def _chats(search: str) -> list[dict[str, Any]]:
    """Return the chats as JSON; dates are seconds since the epoch, None if unknown."""
    sql = f"SELECT conversation_id, count(*) FROM messages WHERE {NOT_DELETED} GROUP BY conversation_id"  # noqa: S608
    with reading(paths.database_path()) as connection:
        chats = matching_chats(rows_of(connection), search)
        counts = dict(connection.execute(sql))
    fields = ("id", "title", "created_at", "updated_at")
    return [{name: getattr(each, name) for name in fields} | {"messages": counts.get(each.id, 0)} for each in chats]


def add_export(parser: argparse.ArgumentParser) -> None:
    """Add the options of `export`."""
    parser.description = (
        "Without --chat, all chats are exported. JSON is complete, with alternatives, traces, settings and statistics, "
        "and can be imported again; Markdown is for reading."
    )
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--json", metavar="FILE", help="one JSON file")
    kind.add_argument("--markdown", metavar="PATH", help="a file for one chat; a new folder for several")
    parser.add_argument("--chat", type=int, nargs="+", metavar="ID", help="only these chats (`rdchat chats list`)")
    parser.add_argument("--details", action="store_true", help="add settings and statistics to Markdown")
    parser.add_argument("--project", action="store_true", help="with --chat: add files and notes of its project")


def add_backup(parser: argparse.ArgumentParser) -> None:
    """Add the options of `backup`."""
    parser.add_argument("file", metavar="FILE", help="the file to write, such as chats.zip")


def export(args: argparse.Namespace) -> int:
    """Write chats to files, and print their paths."""
    path = paths.expanded(args.json or args.markdown, "The file")
    markdown = "markdown" if len(args.chat or ()) == 1 else "folder"
    kind = "json" if args.json else markdown
    if kind != "folder":
        # The export itself refuses an existing folder.
        _refuse_loss(path, force=args.force)
    settings = stored_settings()
    with ProgressLine() as line:
        report = export_chats(
            _report_job(line),
            str(paths.database_path()),
            str(path.absolute()),
            kind=kind,
            chats=args.chat,
            details=args.details,
            shares=args.project,
            settings=asdict(settings),
            sampling={},
        )
    written = report["path"]
    print(written if written.isprintable() else json.dumps(written, ensure_ascii=False))
    return 0


def backup(args: argparse.Namespace) -> int:
    """Write all chats and the settings to one file."""
    path = paths.expanded(args.file, "The backup")
    _refuse_loss(path, force=args.force)
    files = (str(each) for each in (paths.database_path(), paths.settings_path(), path.absolute()))
    with ProgressLine() as line:
        facts = from_plain(BackupFacts(), back_up(_report_job(line), *files))[0]
    what = f"{counted(facts.chats, 'chat')}, {counted(facts.messages, 'message')}, {size_text(facts.bytes)}"
    print_result(args, asdict(facts), one_line(f"{what}: {facts.path}"))
    return 0


def _report_job(line: ProgressLine) -> Job[Any]:
    """Return a job whose progress is shown in a line."""
    return Job(lambda progress: line.show_stage(LoadProgress(**progress)))


def _refuse_loss(path: Path, *, force: bool) -> None:
    """Refuse a folder, an existing file unless `force`, and rdchat's own files in any case."""
    database = paths.database_path()
    companions = [companion(database, ending) for ending in (*COMPANIONS, ".lock")]
    if path.is_dir():
        raise InvalidSettingError(f"{path} is a folder.", "Give a file.")
    if path.resolve() in {each.resolve() for each in (database, paths.settings_path(), *companions)}:
        raise InvalidSettingError(f"{path} is a file that rdchat itself uses.", "Choose another file.")
    if path.exists() and not force:
        raise InvalidSettingError(f"{path} already exists.", "Choose another file, or replace it with --force.")
