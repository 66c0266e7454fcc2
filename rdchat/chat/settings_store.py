"""Stores the settings in one JSON file, which a person can read and edit."""

import json
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.chat.conversation import Notice
from rdchat.chat.plain_data import from_plain
from rdchat.chat.settings import Settings
from rdchat.chat.storage.set_aside import set_aside
from rdchat.files.atomic_file import atomic_file
from rdchat.files.file_errors import file_error

_CHECK = "Check the permissions of the file and of its folder."


class SettingsStore:
    """Reads the settings once, and writes them whole whenever they change.

    Attributes:
        settings: The settings in force.
        notice: What was wrong with the file, or None.
    """

    def __init__(self, path: Path) -> None:
        """Read `path`; where there is none, the defaults hold.

        A damaged file is moved aside, a value out of its range gives way to the default, and `notice` says so.

        Raises:
            StorageError: If the file cannot be read, or is damaged and cannot be moved.
        """
        self._path = path.resolve()  # a link from someone's dotfiles stays a link when the file is replaced
        self.read()

    @property
    def path(self) -> Path:
        return self._path

    def read(self) -> None:
        """Read the file, again where another one has taken its place; see `__init__`."""
        self.notice: Notice | None = None
        self._data = self._read()
        self.settings, wrong = from_plain(Settings(), self._data)
        if wrong:
            self.notice = Notice(
                "Some settings could not be used",
                f"These have their default value again: {', '.join(_in_words(name) for name in wrong)}.",
            )

    def save(self, settings: Settings) -> None:
        """Put `settings` in force and write them; what the file has that this version does not know is kept.

        Raises:
            StorageFullError: If the disk is full.
            StorageError: If the file cannot be written. Either way the file is as it was, and `settings` hold until
                the app quits.
        """
        self.settings = settings
        self._data = _merged(self._data, asdict(settings))
        text = json.dumps(self._data, indent=2, ensure_ascii=False) + "\n"
        problem = f"The settings could not be saved to {self._path}"
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise file_error(error, problem, _CHECK) from error
        with atomic_file(self._path, problem) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_bytes(text.encode("utf-8", "replace"))

    def _read(self) -> dict[str, Any]:
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise file_error(error, f"The settings in {self._path} cannot be read", _CHECK) from error
        try:
            data = json.loads(content)
        except (ValueError, RecursionError):
            data = None
        if isinstance(data, dict):
            return data
        kept = set_aside(self._path, "damaged")
        self.notice = Notice(
            "Your settings could not be read",
            f"The file they are stored in is damaged. It is kept as {kept}, and the default settings hold.",
        )
        return {}


def stored_settings() -> Settings:
    """Return the settings without changing their file, whatever state it is in."""
    data: Any = None
    with suppress(OSError, ValueError, RecursionError):
        data = json.loads(paths.settings_path().read_bytes())
    return from_plain(Settings(), data)[0] if isinstance(data, dict) else Settings()


def _merged(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Lay `new` over `old`, group by group."""
    groups = {name: _merged(old[name], value) for name, value in new.items()
              if isinstance(value, dict) and isinstance(old.get(name), dict)}  # fmt: skip
    return {**old, **new, **groups}


def _in_words(name: str) -> str:
    return name.rpartition(".")[2].replace("_", " ")
