"""The run manifest: what the first run of a training decided, which holds for the runs that continue it."""

from dataclasses import dataclass
from pathlib import Path

from rdchat.errors import RdchatError
from rdchat.files.atomic_file import write_json
from rdchat.files.foreign_files import read_json
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.sequences import Template

_FILE = "begun.json"


@dataclass(frozen=True, slots=True)
class RunManifest:
    """What the first run of a training decided, kept in `begun.json` of its folder.

    Attributes:
        keep_states: Whether the hidden states are kept on disk, which depended on the room there was.
        dtype: The precision that the target computes in.
        template: Tokens around a question; some chat templates name the day.
        asked: Questions from stored conversations, which go on.
    """

    keep_states: bool
    dtype: str
    template: Template
    asked: tuple[str, ...] = ()

    def write(self, folder: Path) -> None:
        """Note it in a training's folder; see `write_json`."""
        template = {"before": self.template.before, "after": self.template.after}
        facts = {"keep_states": self.keep_states, "dtype": self.dtype, **template, "asked": self.asked}
        write_json(folder / _FILE, facts)

    @classmethod
    def read(cls, folder: Path, model: LoadedModel) -> "RunManifest | None":
        """Return what is noted in a folder; None where no training has begun there.

        Raises:
            RdchatError: If the note is damaged, or the training began in another precision.
        """
        path = folder / _FILE
        if not path.exists():
            return None
        try:
            noted = read_json(path, f"Delete {folder} to begin afresh.")
            ids = [*noted["before"], *noted["after"]]
            if any(type(each) is not int or not 0 <= each < model.info.vocabulary_size for each in ids):
                raise ValueError("it has tokens that the model does not have")
            template = Template(tuple(noted["before"]), tuple(noted["after"]), model.end_tokens)
            asked = tuple(str(text) for text in noted["asked"])
            manifest = cls(bool(noted["keep_states"]), str(noted["dtype"]), template, asked)
        except (ValueError, KeyError, TypeError) as error:
            raise RdchatError(f"{path} is damaged: {error}.", f"Delete {folder} to begin afresh.") from error
        if manifest.dtype != model.info.dtype:
            raise RdchatError(
                f"The training in {folder} was begun with the model in {manifest.dtype}, not in {model.info.dtype}.",
                f"Continue it with --dtype {manifest.dtype}, or give another --seed.",
            )
        return manifest
