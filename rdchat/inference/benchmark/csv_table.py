"""Reading a CSV file whose first line names its columns, with errors that say where and what. No MLX and no Qt here."""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.files.foreign_files import check_file

_LONGEST_CELL = 2**30  # characters; Python's own limit of 2**17 is reached by the times of 13,000 tokens
_MOST_DIGITS = 18
_MOST_BYTES = 2**31
_GUARD = "'"
_GUARDED = ("=", "+", "-", "@", "\t", "\r", _GUARD)


def guarded(text: str) -> str:
    """Return a text as a cell that no spreadsheet takes for a formula: with an apostrophe before it, where need be.

    Source: OWASP, "CSV injection". `Row.text` takes the apostrophe away again.
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
        text = self.cells[name]
        if not text.isdecimal() or len(text) > _MOST_DIGITS:
            raise self.error(f"{name} is {text!r}, not a whole number")
        return int(text)

    def number(self, name: str) -> float:
        """Return a finite number: JSON has no others."""
        try:
            number = float(self.cells[name])
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self.error(f"{name} is {self.cells[name]!r}, not a number")
        return number

    def member[T: StrEnum](self, name: str, kind: type[T], prefix: str = "") -> T:
        """Return one of the known words, without a prefix that it may have."""
        try:
            return kind(self.cells[name].removeprefix(prefix))
        except ValueError as error:
            raise self.error(f"{name} is {self.cells[name]!r}, which is unknown") from error

    def numbers(self, name: str) -> list[float]:
        """Return finite numbers that are separated by spaces."""
        try:
            numbers = [float(word) for word in self.cells[name].split()]
        except ValueError:
            numbers = [math.nan]
        if not all(map(math.isfinite, numbers)):
            raise self.error(f"{name} holds what is no number")
        return numbers

    def text(self, name: str) -> str:
        """Return what `guarded` made a cell of."""
        return self.cells[name].removeprefix(_GUARD)

    def number_or_none(self, name: str) -> float | None:
        """Return a number; None where the cell is empty, or there is no such column."""
        return self.number(name) if self.cells.get(name) else None

    def truth(self, name: str) -> bool:
        """Return what `True` or `False` say."""
        text = self.cells[name]
        if text not in {"True", "False"}:
            raise self.error(f"{name} is {text!r}, neither True nor False")
        return text == "True"

    @contextmanager
    def settings(self) -> Iterator[None]:
        """Name the line where settings that are made of it are out of range."""
        try:
            yield
        except InvalidSettingError as error:
            raise self.error(error.message.rstrip(".")) from error

    def error(self, problem: str) -> RdchatError:
        """Return an error that names the line."""
        return RdchatError(f"Line {self.line} of {self.path}: {problem}.", "Export the benchmark again.")


def check_widths(rows: Sequence[Row]) -> None:
    """Refuse lines that have more or fewer columns than the first line names.

    Raises:
        RdchatError: If there is one.
    """
    for row in rows:
        if None in row.cells or None in row.cells.values():
            raise row.error("it has more or fewer columns than the first line names")


def read_rows(path: Path) -> Sequence[Row]:
    """Return the lines of a file below the first one, which names the columns; there is at least one.

    Raises:
        RdchatError: If it cannot be read, or is empty.
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
