"""The entry point of `rdchat`, `python -m rdchat` and the double-clickable app; child processes branch off first."""

import sys

from rdchat.children import run_child
from rdchat.files.privacy import write_privately


def main() -> int:
    """Run a child process or the command line; return the exit status."""
    write_privately()
    status = run_child(sys.argv[1:])
    if status is not None:
        return status
    from rdchat import cli  # noqa: PLC0415  what a child process does not need

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
