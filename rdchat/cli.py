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
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from rdchat import __version__, host, log, paths
from rdchat.commands import ask, bench, chats, doctor, eval_drafter, models, report, train_drafter
from rdchat.commands.interrupt import INTERRUPTED
from rdchat.commands.options import LOAD_ANYWAY
from rdchat.errors import DoesNotFitError, InvalidSettingError, RdchatError, one_line
from rdchat.files.privacy import mend

# errors of writing to standard output, which name no file
_OUTPUT_FAULTS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}

_LOG = logging.getLogger(__name__)


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
    if sys.stderr is None:  # closed; its text must not go elsewhere
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  open to the end
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names need not be text, nor terminals have all characters
    args = _parser().parse_args(argv)
    try:
        log.set_up_logging()
        _close_folders()
        return _run(args)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        _drop_output()
        return 1
    except Exception as error:  # never a traceback in somebody's face
        return _complain(_for_people(error), 2 if isinstance(error, InvalidSettingError) else 1)


def _close_folders() -> None:
    """Remove other users' access to rdchat's folders, which an earlier version left open."""
    for folder, variable in ((paths.data_dir(), paths.DATA_VARIABLE), (paths.cache_dir(), paths.CACHE_VARIABLE)):
        mend(folder, default=not os.environ.get(variable), but=paths.kernels_dir())


def _open_standard_streams() -> None:
    """Open the null device in place of closed standard streams: else a model's file would get their number.

    Python's own stream objects stay None, so that commands can report the closed stream.
    """
    for descriptor, flags in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, flags)  # the lowest number that is free
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            os.set_inheritable(descriptor, True)


def _for_people(error: Exception) -> RdchatError:
    if isinstance(error, RdchatError):
        return error
    if isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_FAULTS:
        _drop_output()
        return RdchatError(f"The output cannot be written: {error.strerror}.", "Send it elsewhere.")
    if isinstance(error, OSError) and error.filename is not None:
        name = os.fsdecode(error.filename) if isinstance(error.filename, str | bytes) else str(error.filename)
        return RdchatError(f"{name[:300]} cannot be used: {error.strerror}.", "Check the path and its permissions.")
    if isinstance(error, MemoryError):
        return RdchatError("There is not enough memory.", "Close other apps, or pick a smaller model.")
    if isinstance(error, RecursionError):
        _LOG.error("rdchat failed", exc_info=error)
        return RdchatError("A file is nested too deeply to be read.", f"The details are in {paths.log_path()}.")
    _LOG.error("rdchat failed", exc_info=error)
    return RdchatError(f"Something unexpected went wrong: {error!r}.", f"The details are in {paths.log_path()}.")


def _drop_output() -> None:
    """Discard the unwritten output, which Python would otherwise try to write again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(args: argparse.Namespace) -> int:
    if args.command is None:
        host.check_window_system()
        from rdchat import app  # noqa: PLC0415  Qt: only the window needs it

        return app.main()
    if sys.stdout is None:
        raise RdchatError("Standard output is closed, so there is nowhere to write to.", "Send it somewhere.")
    status: int = args.run(args)
    sys.stdout.flush()
    return status


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="rdchat", description="Chat with language models on your own machine. Without a command, opens the window."
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    for command in (ask, chats, bench, models, train_drafter, eval_drafter, report, doctor):
        command.add_parser(subparsers)
    return parser


def _complain(error: RdchatError, status: int) -> int:
    otherwise = f" {LOAD_ANYWAY} tries it all the same." if isinstance(error, DoesNotFitError) else ""
    print(f"rdchat: {one_line(error)}{otherwise}", file=sys.stderr)
    return status
