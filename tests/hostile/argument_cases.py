"""Cases of how rdchat is called: odd arguments, paths, variables, and closed standard files."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.hostile.case import Call, Case, Kind, ask
from tests.hostile.data import expanded, read
from tests.hostile.harm import ODD_FILES
from tests.hostile.samples import samples

_NUMBERS = ("-1", "2**31", "nan", "inf", "1e999", "9" * 5000, "", "٣", "0x10")
_OPTIONS = (
    "--max-tokens",
    "--temperature",
    "--top-k",
    "--seed",
    "--draft-tokens",
    "--beam-width",
    "--repetition-penalty",
    "--presence-penalty",
    "--frequency-penalty",
)
_FOLDERS = {
    "that is a file": "/dev/null", "below a file": "/dev/null/x", "that is nothing": "",
    "with a name of 5,000 letters": "/" + "a" * 5000, "that cannot be made": "/proc/evil",
    "that is no text": "\udcff", "with controls": "a\n\x1b[31mb",
}  # fmt: skip


def _call(arguments: tuple[str, ...], _folder: Path) -> Call:
    named = tuple(str(samples() / "model") if word == "MODEL" else word for word in arguments)
    return Call(named)


def _asked(options: tuple[str, ...], _folder: Path) -> Call:
    return ask(samples() / "model", *options)


def _with(variable: str, value: str, arguments: tuple[str, ...], folder: Path) -> Call:
    call = _call(arguments, folder)
    return Call(call.arguments, environment={variable: value}, own_process=not variable.startswith("RDCHAT_"))


def _closed(descriptors: tuple[int, ...], arguments: tuple[str, ...], folder: Path) -> Call:
    call = _call(arguments, folder)
    # without standard input nothing is missing; without standard output there is nowhere to write to
    return Call(call.arguments, own_process=True, closed=descriptors, statuses=(1,) if 1 in descriptors else (0,))


def _settings(put: str, folder: Path) -> Call:
    (folder / "data").mkdir()
    ODD_FILES[put](folder / "data" / "logs")
    call = ask(samples() / "model")
    return Call(call.arguments, data=folder / "data", statuses=(0,))


def argument_cases() -> Iterator[Case]:
    """Yield all cases of calls."""
    for name, arguments in expanded(read("arguments")).items():
        yield Case(Kind.ARGUMENTS, name, partial(_call, tuple(arguments)))
    for place, option in enumerate(_OPTIONS):
        for value in _NUMBERS[place % 2 :: 2]:
            yield Case(Kind.ARGUMENTS, f"{option} {value[:20]!r}", partial(_asked, (option, value)))
    short = ("ask", "--model", "MODEL", "--max-tokens", "2", "Hello")
    for variable in ("RDCHAT_DATA_DIR", "RDCHAT_CACHE_DIR"):
        for said, value in _FOLDERS.items():
            yield Case(Kind.ARGUMENTS, f"{variable} {said}", partial(_with, variable, value, short))
    for variable, value in {"HOME": "/nothing", "TMPDIR": "/nothing", "LANG": "evil", "COLUMNS": "-5"}.items():
        yield Case(Kind.ARGUMENTS, f"{variable} is {value}", partial(_with, variable, value, short))
    for descriptors in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        name = f"{' and '.join(map(str, descriptors))} closed"
        yield Case(Kind.ARGUMENTS, name, partial(_closed, descriptors, short))
    yield Case(Kind.ARGUMENTS, "0 closed, doctor", partial(_closed, (0,), ("doctor",)))
    for what in ODD_FILES:
        yield Case(Kind.ARGUMENTS, f"{what} as the log's folder", partial(_settings, what))
