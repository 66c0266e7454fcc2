"""The record of a training: what its first run settled and how far it is, for the runs that continue it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.atomic_file import write_json
from rdchat.files.foreign_files import read_json
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batch import Template

_FILE = "begun.json"
_OLDER = ("time.json", "data.json")  # of versions that kept `spent_s`, `hours` and `shards` apart


@dataclass(slots=True)
class RunRecord:
    """The record of a training, kept in `begun.json` of its folder.

    Attributes:
        keep_states: Whether the hidden states are kept on disk, which depended on the room there was.
        dtype: The precision that the target computes in.
        template: Tokens around a question; some chat templates name the day.
        asked: Questions from stored conversations, which go on.
        spent_s: Seconds that its runs with a limit of hours have taken.
        hours, shards: The last such limit, and how many shards of data it left time for; None before that is known.
        trained: Steps done and planned of each recipe whose training has ended.
    """

    keep_states: bool
    dtype: str
    template: Template
    asked: tuple[str, ...] = ()
    spent_s: float = 0.0
    hours: float | None = None
    shards: int | None = None
    trained: dict[str, list[int]] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write it to a training's folder; see `write_json`."""
        template = {"before": self.template.before, "after": self.template.after}
        facts = {"keep_states": self.keep_states, "dtype": self.dtype, **template, "asked": self.asked}
        progress = {"spent_s": self.spent_s, "hours": self.hours, "shards": self.shards, "trained": self.trained}
        write_json(folder / _FILE, facts | progress)

    @classmethod
    def read(cls, folder: Path, model: LoadedModel) -> "RunRecord | None":
        """Return the record in a folder; None where no training has begun there.

        Raises:
            RdchatError: If the record is damaged, or the training began in another precision.
        """
        path, hint = folder / _FILE, f"Delete {folder} to begin afresh."
        if not path.exists():
            return None
        try:
            noted: dict[str, Any] = {}
            for file in (*(folder / name for name in _OLDER), path):
                noted |= read_json(file, hint) if file.exists() else {}
            record = cls._parsed(noted, model)
        except (ValueError, KeyError, TypeError) as error:
            raise RdchatError(f"{path} is damaged: {error}.", hint) from error
        if record.dtype != model.info.dtype:
            raise RdchatError(
                f"The training in {folder} was begun with the model in {record.dtype}, not in {model.info.dtype}.",
                f"Continue it with --dtype {record.dtype}, or give another --seed.",
            )
        return record

    @classmethod
    def _parsed(cls, noted: dict[str, Any], model: LoadedModel) -> "RunRecord":
        ids = [*noted["before"], *noted["after"]]
        if any(type(each) is not int or not 0 <= each < model.info.vocabulary_size for each in ids):
            raise ValueError("it has tokens that the model does not have")
        record = cls(
            bool(noted["keep_states"]),
            str(noted["dtype"]),
            Template(tuple(noted["before"]), tuple(noted["after"]), model.end_tokens),
            tuple(str(text) for text in noted["asked"]),
            float(noted.get("spent_s", 0)),
            noted.get("hours"),
            noted.get("shards"),
            {str(key): [int(done), int(planned)] for key, (done, planned) in noted.get("trained", {}).items()},
        )
        if not 0 <= record.spent_s < float("inf"):
            raise ValueError(f"{record.spent_s} seconds")
        if not isinstance(record.shards, int | None) or not isinstance(record.hours, int | float | None):
            raise ValueError("its hours and shards are no numbers")
        return record
