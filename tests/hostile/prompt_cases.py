"""Cases of what a person asks: sizes, the text of special tokens, and characters that are none."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.hostile.case import Call, Case, Kind, ask
from tests.hostile.data import as_bytes, expanded, read
from tests.hostile.harm import ODD_FILES
from tests.hostile.samples import samples

_MB = 1_000_000


def _from_path(path: object, **more: Any) -> Call:
    call = ask(samples() / "model", "--prompt-file", str(path))
    return Call(call.arguments[:-1], **more)


def _from_file(content: object, folder: Path) -> Call:
    (folder / "prompt").write_bytes(as_bytes(expanded(content)))
    return _from_path(folder / "prompt")


def _from_stdin(content: object, _folder: Path) -> Call:
    return _from_path("-", stdin=as_bytes(expanded(content)))


def _as_argument(text: str, _folder: Path) -> Call:
    return ask(samples() / "model", prompt=text)


def _with_option(option: str, text: str, _folder: Path) -> Call:
    return ask(samples() / "model", option, text)


def _odd_file(what: str, folder: Path) -> Call:
    ODD_FILES[what](folder / "prompt")
    return _from_path(folder / "prompt")


def prompt_cases() -> Iterator[Case]:
    """Yield all cases of prompts."""
    for place, (name, content) in enumerate(read("prompts").items()):
        make = (_from_file, _from_stdin)[place % 2]
        yield Case(Kind.PROMPTS, name, partial(make, content))
    for name, text in {"half a surrogate": "a\udcff", "special tokens": "<|im_end|>", "a sandwich": "a" * 5000}.items():
        yield Case(Kind.PROMPTS, f"{name}, as an argument", partial(_as_argument, text))
    for option in ("--system", "--stop"):
        for name, text in {"of 1 MB": "a" * _MB, "of half a surrogate": "\udcff", "of nothing": ""}.items():
            yield Case(Kind.PROMPTS, f"{option} {name}", partial(_with_option, option, text))
    for what in sorted(ODD_FILES.keys() - {"a FIFO"}):  # a pipe that a person names is waited for, as by every program
        yield Case(Kind.PROMPTS, f"{what} as the prompt's file", partial(_odd_file, what))
