"""The command line: `rdchat` opens the window, its subcommands work in the terminal.

Exit status: 0 success; 1 an error, or a check that failed; 2 wrong arguments; 130 ended by Ctrl-C. Errors are one line
on standard error.
"""

import argparse
import errno
import io
import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import filterfalse
from pathlib import Path
from typing import Any, NoReturn

from rdchat import __version__, host, log, paths
from rdchat.commands.terminal import INTERRUPTED, LOAD_ANYWAY, SHARED, TerminalStream
from rdchat.errors import DoesNotFitError, InvalidSettingError, RdchatError, one_line
from rdchat.files import close_to_others, remove_abandoned, remove_unfinished
from rdchat.services.app.start_request import StartRequest, is_own_address, request_of_start
from rdchat.work import error_of

# These errors of writing to standard output have no file name.
_OUTPUT_FAULTS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}

_LOG = logging.getLogger(__name__)

type _Commands = Mapping[str, tuple[str, str | _Commands]]
# By the name of the command: its help, and what runs it. That is one of three:
# - a module of `rdchat.commands`, which has `add_options` and `run`;
# - `module:NAME`, whose module has `NAME` and perhaps `add_NAME`;
# - the commands below it, its actions, as a mapping of the same form.
# After the module come the arguments that it shares with others, which are in `SHARED`.
_COMMANDS: _Commands = {
    "ask": ("ask one question and print the answer", "ask"),
    "chats": (
        "list, export, import, back up and restore chats",
        {
            "list": ("list the chats, newest first", "chats:list_chats --json"),
            "export": ("write chats to files", "chats:export --force"),
            "import": ("import chats from rdchat, ChatGPT, Claude and others", "chats:import_chats --json"),
            "backup": ("write all chats and settings to one file", "chats:backup --force --json"),
            "restore": ("replace all chats and settings by a backup", "chats:restore --json"),
        },
    ),
    "bench": ("measure drafting against plain decoding and mlx-lm", "bench --json"),
    "models": (
        "find, download, list, verify and delete models and drafters",
        {
            "install-default": ("download and convert the default model", "models:install"),
            "suggested": ("list models for newcomers, with drafters", "models:suggested --json"),
            "search": ("search the Hugging Face hub for models", "models:search --json"),
            "download": (
                "download a model into the Hugging Face cache, a suggested one with its drafter, or resume a download",
                "models:download --json",
            ),
            "mtp": (
                "get a model's MTP layers: a drafter by its authors, which most conversions leave out",
                "models:mtp model --revision --yes --json",
            ),
            "vision": ("get the vision that a copy lacks", "models:vision model --revision --yes --json"),
            "token": (
                "store a Hugging Face token in the system's keychain, for gated models; type it, or pipe it in",
                "models:token",
            ),
            "list": (
                "list the models and drafters on this machine, and unfinished downloads",
                "models:list_models --json",
            ),
            "verify": (
                "check a model's files against Hugging Face's checksums",
                "models:verify model --revision --json",
            ),
            "delete": (
                "delete a model or drafter from the Hugging Face cache or rdchat's folder; whole ones go to the Trash",
                "models:delete model --revision --yes --json",
            ),
            "remote": (
                "list the models of remote servers, with the names that `rdchat ask --model` takes",
                "other_computers:list_remote --json",
            ),
            "add-remote": (
                "add a remote server, such as `rdchat serve` on another Mac",
                "other_computers:add_remote name address --json",
            ),
            "remove-remote": ("forget a remote server", "other_computers:remove_remote name --json"),
            "check-pair": ("check whether one model can draft for another", "models:check_pair --json"),
        },
    ),
    "cluster": (
        "run a model too large for this Mac together with other Macs",
        {
            "add": ("add a Mac, by its name for ssh", "other_computers:add_host host --json"),
            "list": ("list the Macs, as a host file of MLX with --json", "other_computers:list_hosts --json"),
            "check": ("try each Mac: ssh, versions, memory, speed of the link", "other_computers:check_hosts --json"),
            "remove": ("forget a Mac", "other_computers:remove_host host --json"),
        },
    ),
    "serve": ("let other programs use a model, through OpenAI's or Anthropic's API", "serve"),
    "train-drafter": ("train a drafter for a model", "train_drafter"),
    "report": ("measure this machine and its models, in one file to send", "report"),
    "doctor": ("show what rdchat runs on, and what is slow or missing", "doctor --json"),
    "delete-data": (
        "delete all that rdchat keeps on this machine, before rdchat itself is removed",
        "delete_data --yes",
    ),
}


class _Parser(argparse.ArgumentParser):
    """Prints errors in one line, and has `--version`; the parsers of subcommands are of this class too."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.add_argument("--version", action="version", version=f"rdchat {__version__}")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {one_line(message)} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run rdchat with `argv`, by default the process's own arguments; return the exit status."""
    _open_standard_streams()
    # Standard error is None if it was closed: its text is then discarded.
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  open to the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names may not be text, and terminals may lack characters.
        sys.stdout.reconfigure(errors="backslashreplace")
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        # There is one wrapper: when a wrapper is collected, it closes the stream.
        if isinstance(stream, io.TextIOWrapper) and stream.isatty() and not isinstance(stream, TerminalStream):
            setattr(sys, name, TerminalStream(stream))
    arguments = sys.argv[1:] if argv is None else argv
    files = _files(arguments)
    # Files, which the parser does not know, open the window, as no arguments do.
    args = _parser(arguments).parse_args([] if files else arguments)
    try:
        log.set_up_logging()
        _close_folders()
        remove_abandoned()
        # A disk of the network may not answer.
        threading.Thread(target=remove_unfinished, daemon=True).start()
        return _run(args, files)
    except KeyboardInterrupt:
        return INTERRUPTED
    # The reader of our output ended, as `| head` does.
    except BrokenPipeError:
        _drop_output()
        return 1
    # People never see a traceback.
    except Exception as error:
        return _complain(_for_people(error), 2 if isinstance(error, InvalidSettingError) else 1)


def _close_folders() -> None:
    """Restrict rdchat's folders to their owner, also where somebody else created or opened them."""
    for folder, variable in ((paths.data_dir(), paths.DATA_VARIABLE), (paths.cache_dir(), paths.CACHE_VARIABLE)):
        close_to_others(folder, default=not os.environ.get(variable))


def _open_standard_streams() -> None:
    """Open the null device for closed standard streams; otherwise a model's file would get their number.

    Python's own stream objects stay None, so that commands can report the closed stream.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # The new descriptor is the lowest free number, which is this one.
            os.set_inheritable(os.open(os.devnull, flags), True)


def _for_people(error: Exception) -> RdchatError:
    """Return the error to print for an exception.

    Two kinds are those of a command alone: an output that cannot be written, and a file that is nested too deeply. The
    others are those of any work (`error_of`).
    """
    if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_FAULTS:
        _drop_output()
        return RdchatError(f"The output cannot be written: {error.strerror}.", "Write it to another file.")
    if isinstance(error, RecursionError):
        _LOG.error("rdchat failed", exc_info=error)
        return RdchatError("A file is nested too deeply to be read.", f"The details are in {paths.log_path()}.")
    return error_of(error, "rdchat")


def _drop_output() -> None:
    """Discard the unwritten output, which Python would otherwise try to write again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _files(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments if they are files, or one address, for the window; nothing if they are a command or options.

    Anything else prints an error and exits.
    """
    if not arguments or arguments[0] in _COMMANDS:
        return ()
    is_address = len(arguments) == 1 and is_own_address(arguments[0])
    missing = [] if is_address else list(filterfalse(os.path.exists, arguments))
    if missing:
        if arguments[0].startswith("-"):
            return ()
        kind = "file" if Path(missing[0]).suffix or os.sep in missing[0] else "file or command"
        _parser(()).error(f"There is no {kind} {missing[0]}.")
    return tuple(arguments)


def _run(args: argparse.Namespace, files: Sequence[str]) -> int:
    if args.command is None:
        request = StartRequest(quick=True) if args.quick else request_of_start(files)
        host.check_window_system()
        from rdchat import app  # noqa: PLC0415  Qt: only the window needs it

        return app.main(request)
    if sys.stdout is None:
        raise RdchatError("Standard output is closed, so nothing can be written.", "Redirect it to a file.")
    status: int = args.run(args)
    sys.stdout.flush()
    return status


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="rdchat",
        description="Chat with language models, local or remote. Without a command, rdchat opens its window; with "
        "files it attaches them there, or loads a model, and with rdchat://ask?text=... it shows the text.",
    )
    parser.add_argument("--quick", action="store_true", help="open the quick window, also if rdchat runs already")
    _add_commands(parser.add_subparsers(dest="command", metavar="COMMAND"), _COMMANDS, arguments)
    return parser


def _add_commands(parsers: "argparse._SubParsersAction[Any]", commands: _Commands, arguments: Sequence[str]) -> None:
    """Add commands, with the options of the one that is called; only its module is imported."""
    for name, (text, entry) in commands.items():
        parser = parsers.add_parser(name, help=text)
        if list(arguments[:1]) != [name]:
            continue
        if isinstance(entry, str):
            target, *shared = entry.split()
            module_name, _, function = target.partition(":")
            module = import_module(f"rdchat.commands.{module_name}")
            getattr(module, f"add_{function or 'options'}", lambda _parser: None)(parser)
            for argument in shared:
                parser.add_argument(argument, **SHARED[argument])
            parser.set_defaults(run=getattr(module, function or "run"))
        else:
            _add_commands(parser.add_subparsers(dest="action", required=True, metavar="ACTION"), entry, arguments[1:])


def _complain(error: RdchatError, status: int) -> int:
    """Print an error on standard error, and return the exit status."""
    otherwise = f" {LOAD_ANYWAY} tries it anyway." if isinstance(error, DoesNotFitError) else ""
    print(f"rdchat: {one_line(error)}{otherwise}", file=sys.stderr)
    return status
