"""The files of the window's one training, which outlast the app: its order, learning curve and result."""

import json
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rdchat import paths
from rdchat.errors import RdchatError
from rdchat.files.atomic_file import FileLock, make_folder, write_json
from rdchat.files.plain_data import plain
from rdchat.inference.api.training import CURVE, DRAFTER, RESULT, Comparison, TrainingOrder

_RECORD = "training.json"
# Prefix of the name of data that is being removed.
_REMOVED = "removed-"


@dataclass(frozen=True, slots=True)
class TrainingRecord:
    """The record of a training.

    Attributes:
        order: The order.
        data_folder: Folder of its data; empty before that is known.
        model_folder: The model's folder; empty before that is known.
        made_data: Whether all of that data was made for this training.
        paused: Whether the person paused it; else it stopped when the app did.
        problem, hint: Why it stopped, where it failed.
    """

    order: TrainingOrder
    data_folder: str = ""
    model_folder: str = ""
    made_data: bool = False
    paused: bool = False
    problem: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """Loss, in nats, and share of right tokens by position, at a fraction of the training phase."""

    fraction: float
    loss: float
    accuracy: tuple[float, ...] = ()


type StoredTraining = tuple[TrainingRecord, list[CurvePoint], Comparison | None, int]
"""A training on disk: its record, learning curve, result once it is finished, and then the bytes of its data."""


class JobFolder:
    """The folder of the training; everything here may wait for the disk."""

    @property
    def path(self) -> Path:
        return paths.data_dir() / "training"

    def read(self) -> StoredTraining | None:
        """Return the training that was begun; None without one, or where it cannot be read any more.

        Where the app ended between taking the drafter and removing the rest, the rest is removed now.
        """
        try:
            record = plain(TrainingRecord, json.loads((self.path / _RECORD).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None
        comparison = self._comparison()
        if comparison is not None and not (self.path / DRAFTER).exists():
            with suppress(OSError, RdchatError):
                self.remove(record)
            return None
        return record, self._points(), comparison, _data_bytes(record) if comparison is not None else 0

    def write(self, record: TrainingRecord) -> None:
        """Keep a training.

        Raises:
            StorageFullError: If the disk is full.
            StorageError: If it cannot be written.
        """
        make_folder(self.path)
        write_json(self.path / _RECORD, asdict(record))

    def clear(self) -> None:
        """Remove the files of an earlier training; a file that cannot be removed is written over.

        Without a record there are only files that a training made.
        """
        shutil.rmtree(self.path, ignore_errors=True)
        _remove_data()

    def take(self, record: TrainingRecord) -> Path:
        """Move the trained drafter to the person's own ones; return its folder there.

        Raises:
            OSError: If it cannot be moved.
        """
        own = paths.drafters_dir()
        own.mkdir(parents=True, exist_ok=True)
        name = f"{Path(record.order.name).name}-recurrent"
        names = [name, *(f"{name}-{number}" for number in range(2, 1000))]
        folder = next(own / name for name in names if not (own / name).exists())
        (self.path / DRAFTER).rename(folder)
        return folder

    def remove(self, record: TrainingRecord) -> None:
        """Remove the files of a training, and its data where nothing else needs it.

        Raises:
            StorageLockedError: If another process works with the data.
            OSError: If it cannot be removed.
        """
        data = Path(record.data_folder)
        if record.made_data and data.is_dir() and data.is_relative_to(_trainings()):
            FileLock(data / "lock", "the training data", "Wait until it is done, or stop it.").release()
            data.rename(data.with_name(f"{_REMOVED}{data.name}"))  # At once: no training continues with a half of it.
        if self.path.exists():
            (self.path / _RECORD).unlink(missing_ok=True)  # First: a half removed folder is no training.
            shutil.rmtree(self.path)
        _remove_data()

    def _points(self) -> list[CurvePoint]:
        points: list[CurvePoint] = []
        with suppress(OSError):
            for line in (self.path / CURVE).read_bytes().splitlines():
                with suppress(ValueError, TypeError):
                    add_point(points, plain(CurvePoint, json.loads(line)))
        return points

    def _comparison(self) -> Comparison | None:
        try:
            return plain(Comparison, json.loads((self.path / RESULT).read_bytes()))
        except (OSError, ValueError, TypeError):
            return None


def _trainings() -> Path:
    return paths.cache_dir() / "training"


def _data_bytes(record: TrainingRecord) -> int:
    """Return the size of the data that is removed with a training; 0 if it cannot be read."""
    if record.made_data and record.data_folder:
        with suppress(OSError):
            return sum(path.stat().st_size for path in Path(record.data_folder).rglob("*") if path.is_file())
    return 0


def _remove_data() -> None:
    """Remove data that was set aside for that, also by an app that was killed before it could."""
    for folder in _trainings().glob(f"*/{_REMOVED}*"):
        shutil.rmtree(folder, ignore_errors=True)


def add_point(points: list[CurvePoint], point: CurvePoint) -> None:
    """Insert a point in order: a training that resumes from its checkpoint repeats the last steps."""
    while points and points[-1].fraction >= point.fraction:
        points.pop()
    points.append(point)
