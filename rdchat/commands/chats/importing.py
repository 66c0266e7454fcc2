"""`rdchat chats import`: import files of chats, through the open app where there is one."""

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from rdchat import paths
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.child import TransferProcess
from rdchat.chat.transfer.reports import ImportReport
from rdchat.commands.chats.progress import counted, shown_progress
from rdchat.commands.chats.through_app import with_store_or_app
from rdchat.commands.interrupt import INTERRUPTED, ctrl_c_calls
from rdchat.commands.progress import ProgressLine
from rdchat.errors import one_line


def add_actions(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
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


def _import(args: argparse.Namespace) -> int:
    files = [paths.expanded(name, "The file").absolute() for name in args.files]
    with ProgressLine(sys.stderr) as line:
        show = shown_progress(line)

        def here(store: ConversationStore) -> dict[str, Any]:
            with closing(TransferProcess()) as process:
                job = process.import_files(store.database, files, show)
                with ctrl_c_calls(job.cancel):
                    return job.result(lambda: None).to_json()

        request = {"do": "import", "paths": [str(path) for path in files]}
        report = ImportReport.from_json(with_store_or_app(here, request, show, ImportReport()))
    if args.json:
        print(json.dumps(_as_json(report), ensure_ascii=False))
    else:
        print("\n".join(one_line(words) for words in report_lines(report)))
    return INTERRUPTED if report.cancelled else 0 if report.complete else 1


def _as_json(report: ImportReport) -> dict[str, Any]:
    counts = {"chats": len(report.chats), "messages": report.messages, "complete": report.complete}
    return counts | report.to_json()


def report_lines(report: ImportReport) -> Sequence[str]:
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
