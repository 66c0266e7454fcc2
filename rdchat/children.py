"""The app's child processes: its own entry point starts each, as `rdchat --child NAME`, before Qt is touched.

In a double-clickable app `sys.executable` is the app itself, which knows no `-m` or `-c` but begins as a second app
(beeware/briefcase 1091). So whoever needs a child asks `host.child_command` for the command, bundled or not, and this
module runs it. Python's own helpers come the same way: `multiprocessing`, which tqdm's lock uses, starts its resource
tracker by `sys.executable -c`.
"""

import os
import re
import runpy
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from rdchat import host

_MULTIPROCESSING = re.compile(r"from multiprocessing\.\w+ import \w+; ?\w+\([\w=, -]*\)")


def run_child(arguments: Sequence[str]) -> int | None:
    """Be the child process that the command line asks for; return its exit status, or None if it asks for none."""
    for place, (option, code) in enumerate(pairwise(arguments)):
        if option == "-c" and _MULTIPROCESSING.fullmatch(code):
            sys.argv = ["-c", *arguments[place + 2 :]]  # as Python itself has it then
            exec(code, {"__name__": "__main__"})  # noqa: S102  Python's own words, as it would run them
            return 0
    match list(arguments):
        case [host.CHILD_OPTION, name, *rest] if name in CHILDREN:
            return CHILDREN[name](rest)
        case [host.CHILD_OPTION, *_]:
            return 2  # by hand: it is no command for people
    return None


def _tokenizers(_arguments: list[str]) -> int:
    """Read strangers' tokenizers and render their chat templates (`inference.prompts.child`)."""
    from rdchat.inference.prompts.child import main  # noqa: PLC0415  only this child needs it

    return main()


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


def _downloads(_arguments: list[str]) -> int:
    """Download models from the hub (`hub.downloads.child`)."""
    from rdchat.files.privacy import with_persons_umask  # noqa: PLC0415
    from rdchat.hub.downloads.child import main  # noqa: PLC0415  only this child needs it

    with with_persons_umask():  # it writes into the hub's cache alone, which other programs use too
        main()
    return 0


def _facts(_arguments: list[str]) -> int:
    """Read the headers of model folders (`inference.library.facts_child`)."""
    from rdchat.inference.library.facts_child import main  # noqa: PLC0415  only this child needs it

    return main()


def _training(_arguments: list[str]) -> int:
    """Train a drafter (`inference.training.child`)."""
    from rdchat.inference.training.child import main  # noqa: PLC0415  only this child needs it

    return main()


def _transfer(_arguments: list[str]) -> int:
    """Import, export or back up chats (`chat.transfer.child`)."""
    from rdchat.chat.transfer.child import main  # noqa: PLC0415  only this child needs it

    return main()


def _files(_arguments: list[str]) -> int:
    """Read the files that a person brings into a chat (`chat.attachments.child`)."""
    from rdchat.chat.attachments.child import main  # noqa: PLC0415  only this child needs it

    return main()


def _formulas(_arguments: list[str]) -> int:
    """Draw formulas (`chat.formulas.child`)."""
    from rdchat.chat.formulas.child import main  # noqa: PLC0415  only this child needs it

    return main()


CHILDREN: Mapping[str, Callable[[list[str]], int]] = {
    "tokenizers": _tokenizers,
    "pip": _pip,
    "downloads": _downloads,
    "facts": _facts,
    "training": _training,
    "transfer": _transfer,
    "files": _files,
    "formulas": _formulas,
}
"""By name: what takes the arguments and returns the exit status."""
