"""The record of a training, from which later runs continue."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from rdchat.errors import RdchatError
from rdchat.files.atomic_file import write_json
from rdchat.files.foreign_files import read_json
from rdchat.files.plain_data import plain
from rdchat.inference.training.data.data_maker import Template
from rdchat.inference.verification.target import LoadedModel

_FILE = "begun.json"


@dataclass(slots=True)
class RunRecord:
    """The record of a training, stored as `begun.json` in its folder.

    Attributes:
        dtype: Precision of the target.
        before, after: Tokens around a question; some chat templates include the date.
        chat_questions: Questions from stored chats, fixed at the start since chats change.
        trained: Steps done and planned of each recipe whose training has ended.
    """

    dtype: str
    before: tuple[int, ...]
    after: tuple[int, ...]
    chat_questions: tuple[str, ...] = ()
    trained: dict[str, list[int]] = field(default_factory=dict)

    def template(self, model: LoadedModel) -> Template:
        """Return the tokens around a question, with those that end a turn."""
        return Template(self.before, self.after, model.end_tokens)

    def write(self, folder: Path) -> None:
        """Write the record to a training's folder; see `write_json`."""
        write_json(folder / _FILE, asdict(self))

    @classmethod
    def read(cls, folder: Path, model: LoadedModel) -> "RunRecord | None":
        """Return the record in a folder; None where no training has begun.

        Raises:
            RdchatError: If the record is damaged, or the training began in another precision.
        """
        path = folder / _FILE
        hint = f"Delete {folder} to start again."
        if not path.exists():
            return None
        try:
            record = plain(cls, read_json(path, hint))
        except (ValueError, TypeError) as error:
            raise RdchatError(f"{path} is damaged: {error}.", hint) from error
        if record.dtype != model.info.dtype:
            raise RdchatError(
                f"The training in {folder} began with the model in {record.dtype}, not {model.info.dtype}.",
                f"Load the model in {record.dtype}, or begin another training with another seed.",
            )
        return record
