"""The app's child processes: its own entry point starts each, as `rdchat --child NAME`, before Qt is touched.

In a double-clickable app `sys.executable` is the app itself, which knows no `-m` or `-c` but begins as a second app
(beeware/briefcase 1091). So whoever needs a child asks `host.child_command` for the command, bundled or not, and this
module runs it. Python's own helpers come the same way: `multiprocessing`, which tqdm's lock uses, starts its resource
tracker by `sys.executable -c`.
"""

import importlib
import os
import re
import runpy
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise

from rdchat import host

_MULTIPROCESSING = re.compile(r"from multiprocessing\.\w+ import \w+; ?\w+\([\w=, -]*\)")


CHILDREN = {
    "tokenizers": "rdchat.inference.prompts.child",  # reads strangers' tokenizers, and renders their chat templates
    "downloads": "rdchat.hub.downloads.child",  # downloads models from the hub
    "facts": "rdchat.inference.library.facts_child",  # reads the headers of model folders
    "training": "rdchat.inference.training.child",  # trains a drafter
    "transfer": "rdchat.chat.transfer.child",  # imports, exports or backs up chats
    "files": "rdchat.chat.attachments.child",  # reads the files that a person brings into a chat
    "formulas": "rdchat.chat.formulas.child",  # draws formulas
}
"""Modules of children, by name; `main` of each returns the exit status."""


def run_child(arguments: Sequence[str]) -> int | None:
    """Be the child process that the command line asks for; return its exit status, or None if it asks for none."""
    for place, (option, code) in enumerate(pairwise(arguments)):
        if option == "-c" and _MULTIPROCESSING.fullmatch(code):
            sys.argv = ["-c", *arguments[place + 2 :]]  # as Python itself has it then
            exec(code, {"__name__": "__main__"})  # noqa: S102  Python's own words, as it would run them
            return 0
    match list(arguments):
        case [host.CHILD_OPTION, "pip", *rest]:
            return _pip(rest)
        case [host.CHILD_OPTION, name] if name in CHILDREN:
            main: Callable[[], int] = importlib.import_module(CHILDREN[name]).main  # only this child needs it
            return main()
        case [host.CHILD_OPTION, *_]:
            return 2  # by hand: it is no command for people
    return None


def _pip(arguments: list[str]) -> int:
    """Run pip, ending at once when standard input closes.

    So nobody writes into a folder that the next rdchat clears away, also after a SIGKILL of the one that asked.
    """
    # `os.read`, because a buffered reader blocks the end of the interpreter
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
    sys.argv = ["pip", *arguments]
    try:
        runpy.run_module("pip", run_name="__main__", alter_sys=True)
    except ImportError as error:
        print(error, file=sys.stderr)  # noqa: T201  for `default_model`, which reads it
        return 1
    return 0
