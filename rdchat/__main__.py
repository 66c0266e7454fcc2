"""The entry point of `rdchat`, `python -m rdchat` and the double-clickable app; child processes branch off first."""

import signal
import sys
import traceback

from rdchat.children import run_child
from rdchat.files import write_privately


def main() -> int:
    """Run a child process or the command line; return the exit status."""
    # Python usually ignores these signals, but not where a bundle's program starts it. `subprocess` gives them their
    # usual effect again in other programs.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)
    # Python itself handles Ctrl-C, but not where a bundle's program starts it. It is ignored in the background.
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Only this user may read the files that this process and its children make.
    write_privately()
    status = _run_child()
    if status is not None:
        return status
    from rdchat import cli  # noqa: PLC0415  what a child process does not need

    return cli.main()


def _run_child() -> int | None:
    """Return the status of `run_child`, None where the arguments ask for no child.

    `SystemExit` with a number or None passes through. Any other exception is printed and becomes 1: a bundle's program
    would show an alert for it.
    """
    try:
        return run_child(sys.argv[1:])
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            raise
        print(end.code, file=sys.stderr)  # noqa: T201  as Python itself does
    except BaseException:
        traceback.print_exc()
    return 1


if __name__ == "__main__":
    sys.exit(main())
