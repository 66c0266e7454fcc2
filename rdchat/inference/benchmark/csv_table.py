"""Reading a CSV file whose first line names its columns, with errors that say where and what. No MLX and no Qt here."""

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.files.foreign_files import check_file

_LONGEST_CELL = 2**30  # characters; the times of 13,000 tokens reach Python's own limit of 2**17
_MOST_DIGITS = 18
_MOST_BYTES = 2**31
_GUARD = "'"
_GUARDED = ("=", "+", "-", "@", "\t", "\r", _GUARD)


def guarded(text: str) -> str:
    """Return a text as a cell that no spreadsheet takes for a formula, with an apostrophe before it if necessary.

    Source: OWASP, "CSV injection". `Row.text` removes the apostrophe.
    """
    return _GUARD + text if text.startswith(_GUARDED) else text


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a file, by column."""

    path: Path
    line: int
    cells: Mapping[str, str]

    def whole(self, name: str) -> int:
        """Return a whole number that is not negative."""
        return self._parsed(name, _whole, "not a whole number")

    def number(self, name: str) -> float:
        """Return a finite number; JSON has no others."""
        return self._parsed(name, _finite, "not a number")

    def numbers(self, name: str) -> list[float]:
        """Return finite numbers that are separated by spaces."""
        return self._parsed(name, lambda text: [_finite(word) for word in text.split()], "")

    def member[T: StrEnum](self, name: str, kind: type[T], prefix: str = "") -> T:
        """Return a member of an enumeration; its name may have a prefix."""
        return self._parsed(name, lambda text: kind(text.removeprefix(prefix)), "which is unknown")

    def truth(self, name: str) -> bool:
        """Return the value of `True` or `False`."""
        return self._parsed(name, ["False", "True"].index, "neither True nor False") == 1

    def text(self, name: str) -> str:
        """Return a text that `guarded` made a cell of."""
        return self.cells[name].removeprefix(_GUARD)

    def number_or_none(self, name: str) -> float | None:
        """Return a number; None if the cell is empty or there is no such column."""
        return self.number(name) if self.cells.get(name) else None

    def _parsed[T](self, name: str, parse: Callable[[str], T], problem: str) -> T:
        try:
            return parse(self.cells[name])
        except ValueError as error:
            what = f"is {self.cells[name]!r}, {problem}" if problem else "holds what is no number"
            raise self.error(f"{name} {what}") from error

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Name the line in errors about settings that are out of range."""
        try:
            yield
        except InvalidSettingError as error:
            raise self.error(error.message.rstrip(".")) from error

    def error(self, problem: str) -> RdchatError:
        """Return an error that names the line."""
        return RdchatError(f"Line {self.line} of {self.path}: {problem}.", "Export the benchmark again.")


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise ValueError(text)
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def check_widths(rows: Sequence[Row]) -> None:
    """Refuse lines that have more or fewer columns than the first line names.

    Raises:
        RdchatError: If there is one.
    """
    for row in rows:
        if None in row.cells or None in row.cells.values():
            raise row.error("it has more or fewer columns than the first line names")


def read_rows(path: Path) -> Sequence[Row]:
    """Return the lines of a file below the first one, which names the columns.

    Raises:
        RdchatError: If the file cannot be read, or has no lines.
    """
    if path.exists() and not path.is_dir():
        check_file(path, "Pick a CSV file.", _MOST_BYTES)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            csv.field_size_limit(_LONGEST_CELL)
            reader = csv.DictReader(file, strict=True)
            rows = [Row(path, reader.line_num, cells) for cells in reader]
    except OSError as error:
        raise RdchatError(f"The file {path} cannot be read: {error.strerror}.", "Check its name.") from error
    except UnicodeDecodeError as error:
        raise RdchatError(f"The file {path} is not UTF-8 text.", "Pick a CSV file.") from error
    except csv.Error as error:
        raise RdchatError(f"The file {path} is no valid CSV: {error}.", "Export the benchmark again.") from error
    if not rows:
        raise RdchatError(f"The file {path} holds no runs.", "Pick the CSV file of a benchmark.")
    return rows
