"""`rdchat models download REPO`. Ctrl-C pauses it, and the same command resumes it."""

import argparse
import json
import queue
import sys
from typing import TYPE_CHECKING

from rdchat.commands.interrupt import INTERRUPTED, ctrl_c_calls
from rdchat.commands.models.table import size_words
from rdchat.commands.progress import ProgressLine
from rdchat.errors import NetworkError

if TYPE_CHECKING:
    from rdchat.hub.downloads.download import Download

_POLL_S = 0.2


def add_actions(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `download`."""
    parser = actions.add_parser("download", help="download a model into the Hugging Face cache, or go on with one")
    parser.add_argument("repository", metavar="REPO", help="hub id, such as mlx-community/SmolLM2-135M-Instruct")
    parser.add_argument("--revision", default="main", metavar="R", help="a branch, tag or commit")
    parser.add_argument("--file", default="", metavar="GGUF", help="which GGUF file, where there are several")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=_download)


def _download(args: argparse.Namespace) -> int:
    from rdchat.hub.downloads.download import Download, DownloadState  # noqa: PLC0415
    from rdchat.hub.downloads.download_process import DownloadProcess  # noqa: PLC0415  slow to import
    from rdchat.hub.endpoint import find_endpoint  # noqa: PLC0415
    from rdchat.hub.known_files import check_names, download_command  # noqa: PLC0415
    from rdchat.hub.tokens import Tokens  # noqa: PLC0415

    told: queue.SimpleQueue[Download] = queue.SimpleQueue()
    check_names(args.repository, args.revision)
    find_endpoint()
    process = DownloadProcess(Tokens())
    try:
        download = process.start(Download(args.repository, args.revision, args.file), told.put)
        with ProgressLine(sys.stderr, verbose=True) as line, ctrl_c_calls(download.cancel):
            progress = _watch(told, line)
    finally:
        process.close()
    if progress.state is DownloadState.PAUSED:
        here = f"{progress.done_bytes / progress.total_bytes:.0%} is here. " if progress.total_bytes else ""
        command = download_command(args.repository, args.revision, args.file)
        print(f"Paused: {here}`{command}` goes on from there.", file=sys.stderr)
        return INTERRUPTED
    if progress.state is not DownloadState.FINISHED:
        raise NetworkError(progress.problem, progress.hint)
    if args.json:
        shown = {
            "repository": progress.repository,
            "revision": progress.revision,
            "commit": progress.commit,
            "folder": progress.folder,
            "bytes": progress.total_bytes,
            "fetched_bytes": progress.fetched_bytes,
            "files_left_out": progress.left_out,
        }
        print(json.dumps(shown, ensure_ascii=False))
    else:
        print(progress.folder)
    return 0


def _watch(told: "queue.SimpleQueue[Download]", line: ProgressLine) -> "Download":
    """Show progress until the download ends one way or another; return its end."""
    notes: tuple[str, ...] = ()
    while True:
        try:
            progress = told.get(timeout=_POLL_S)  # so that Ctrl-C is heard
        except queue.Empty:
            continue
        if progress.state.has_ended:
            return progress
        if progress.files or sys.stderr.isatty():  # without a hub there is one line where nobody watches
            line.show_text(_words(progress), stage=progress.state.value)
        if progress.notes and progress.notes != notes:
            line.say(progress.notes[0])
        notes = progress.notes


def _words(progress: "Download") -> str:
    name = progress.repository
    if not progress.total_bytes or progress.state.value == "asking":
        return f"{name}: asking the hub"
    share = progress.done_bytes / progress.total_bytes
    words = f"{name}: {progress.state.value} {share:4.0%} of {size_words(progress.total_bytes)}"
    if progress.bytes_per_second and progress.seconds_left is not None:
        minutes, seconds = divmod(int(progress.seconds_left), 60)
        words += f", {size_words(progress.bytes_per_second)}/s, {minutes}:{seconds:02d} left"
    return words
