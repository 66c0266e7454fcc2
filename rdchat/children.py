"""Starts the app's child processes from its own entry point, as `rdchat --child NAME`, before Qt is loaded.

In a double-clickable app `sys.executable` is the app itself, which ignores `-m` and `-c` and starts as a second app
(beeware/briefcase 1091). So every child's command comes from `host.child_command`, bundled or not, and this
module runs it. Python's own helpers also come this way: `multiprocessing`, used by tqdm's lock, starts its resource
tracker with `sys.executable -c`.
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

# The code that `multiprocessing` passes to `python -c`; nothing else is run as code.
_MULTIPROCESSING = re.compile(r"from multiprocessing\.\w+ import \w+; ?\w+\([\w=, -]*\)")

CHILDREN = {
    "tokenizers": "rdchat.inference.prompts.tokenizers_child",
    "images": "rdchat.inference.vision.pixels_child",
    "downloads": "rdchat.inference.engine_downloads",
    "facts": "rdchat.inference.library.folder_facts",
    "preparation": "rdchat.commands.preparation",
    "report": "rdchat.commands.report_child",
    "training": "rdchat.inference.training.training_child",
    "transfer": "rdchat.chat.transfer.transfer_process",
    "files": "rdchat.chat.attachments.file_reader",
    "formulas": "rdchat.chat.rendering.formulas",
    "lexers": "rdchat.chat.rendering.lexers_child",
    "tools": "rdchat.tools.tools_child",
    "rank": "rdchat.inference.rank_processes.rank_child",
}
"""Module of each child, by name; its `main` returns the exit status."""


def run_child(arguments: Sequence[str]) -> int | None:
    """Run the child process that the command line names; return its exit status, or None if it names none.

    That is a helper of `multiprocessing`, pip, or one of `CHILDREN`.
    """
    for index, (option, code) in enumerate(pairwise(arguments)):
        if option == "-c" and _MULTIPROCESSING.fullmatch(code):
            # This is how Python sets `sys.argv` for `-c`.
            sys.argv = ["-c", *arguments[index + 2 :]]
            exec(code, {"__name__": "__main__"})  # noqa: S102  Python's own words, as it would run them
            return 0
    match list(arguments):
        case [host.CHILD_OPTION, "pip", *rest]:
            return _pip(rest)
        case [host.CHILD_OPTION, name] if name in CHILDREN:
            # Only what this child needs is imported.
            main: Callable[[], int] = importlib.import_module(CHILDREN[name]).main
            return main()
        case [host.CHILD_OPTION, *_]:
            # A person has started it by hand: it is not a command for people.
            return 2
    return None


def _pip(arguments: list[str]) -> int:
    """Run pip, and end at once when standard input closes.

    Standard input closes when the process that started pip ends, even if it was killed. A pip that went on would write
    into a folder that the next rdchat removes.
    """
    # It is `os.read`, because a buffered reader would block the end of the interpreter.
    threading.Thread(target=lambda: (os.read(0, 1), os._exit(1)), daemon=True).start()
    sys.argv = ["pip", *arguments]
    try:
        runpy.run_module("pip", run_name="__main__", alter_sys=True)
    except ImportError as error:
        print(error, file=sys.stderr)  # noqa: T201  for `default_model`, which reads it
        return 1
    return 0
