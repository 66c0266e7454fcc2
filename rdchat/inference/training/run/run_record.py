"""The record of a training, from which later runs continue."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.atomic_file import write_json
from rdchat.files.foreign_files import read_json
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.data_maker import Template

_FILE = "begun.json"
_OLDER = ("time.json", "data.json")  # of versions that kept `spent_s`, `hours` and `shards` in files of their own


@dataclass(slots=True)
class RunRecord:
    """The record of a training, kept in `begun.json` of its folder."""

    keep_states: bool  # whether hidden states are kept on disk, decided by the free space at the start
    dtype: str  # precision of the target
    template: Template  # tokens around a question; some chat templates include the date
    asked: tuple[str, ...] = ()  # questions from stored chats, fixed at the start since chats change
    spent_s: float = 0.0  # seconds of all runs with a limit of hours
    # `hours`, `shards`: The last time limit, and how many shards of data fit into it; None before that is known.
    hours: float | None = None
    shards: int | None = None
    # Steps done and planned of each recipe whose training has ended.
    trained: dict[str, list[int]] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the record to a training's folder; see `write_json`."""
        template = {"before": self.template.before, "after": self.template.after}
        facts = {"keep_states": self.keep_states, "dtype": self.dtype, **template, "asked": self.asked}
        progress = {"spent_s": self.spent_s, "hours": self.hours, "shards": self.shards, "trained": self.trained}
        write_json(folder / _FILE, facts | progress)

    @classmethod
    def read(cls, folder: Path, model: LoadedModel) -> "RunRecord | None":
        """Return the record in a folder; None where no training has begun.

        Raises:
            RdchatError: If the record is damaged, or the training began in another precision.
        """
        path, hint = folder / _FILE, f"Delete {folder} to start again."
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
                f"The training in {folder} began with the model in {record.dtype}, not {model.info.dtype}.",
                f"Continue it with --dtype {record.dtype}, or use another --seed.",
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
            raise ValueError("its hours and shards are not numbers")
        return record
