"""Cases of backups: cut short, changed, of a newer version, of other programs, and what is no file."""

import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from tests.hostile.case import Call, Case, Kind
from tests.hostile.harm import ODD_FILES, cut, flipped
from tests.hostile.store_cases import good_store, odd_beside
from tests.stores import connect_by_hand

Spoil = Callable[[Path], object]  # takes the backup's path


def _good_backup(folder: Path) -> Path:
    from tests.chat.transfer.tasks import back_up

    store = good_store(folder / "other" / "conversations.db")
    path = folder / "backup.zip"
    back_up(store, folder / "settings.json", path)
    return path


def _rewritten(change: Callable[[dict[str, bytes]], object]) -> Spoil:
    """Write the archive again with other contents."""

    def spoil(path: Path) -> None:
        with zipfile.ZipFile(path) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
        change(contents)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in contents.items():
                archive.writestr(name, content)

    return spoil


def _about(**facts: object) -> Spoil:
    def change(contents: dict[str, bytes]) -> None:
        contents["backup.json"] = json.dumps(json.loads(contents["backup.json"]) | facts).encode()

    return _rewritten(change)


def _holding(name: str, content: bytes) -> Spoil:
    return _rewritten(lambda contents: contents.update({name: content}))


def _of_another_program(path: Path) -> None:
    path.unlink()
    with closing(connect_by_hand(path)) as connection:
        connection.execute("CREATE TABLE messages (id, text)")
        connection.commit()


REFUSED: Mapping[str, Spoil] = {
    "a newer version": _about(version=2),
    "a version of text": _about(version="1"),
    "another format": _about(format="evil"),
    "a page nested too deeply": _holding("backup.json", b"[" * 100_000),
    "settings of 100 MB": _holding("settings.json", b" " * 100_000_000),
    "settings that are no object": _holding("settings.json", b"[]"),
    "no database": _rewritten(lambda contents: contents.pop("conversations.db")),
    "a database of 300 MB of zeros": _rewritten(
        lambda contents: contents.update({"conversations.db": bytes(300_000_000)})
    ),
    "a database of another program": _of_another_program,
    **{f"cut short ({seed})": partial(cut, seed=seed) for seed in range(12)},
}
CHANGED: Mapping[str, Spoil] = {
    "counts of text": _about(chats="many", messages=None, made_at=1e300),
    "a member above its folder": _holding("../evil-code-ran", b"evil"),
    **{f"bytes changed ({seed})": partial(flipped, seed=seed, count=3) for seed in range(24)},
}


def _made(spoil: Spoil, statuses: tuple[int, ...], folder: Path) -> Call:
    backup = _good_backup(folder)
    spoil(backup)
    good_store(folder / "data" / "conversations.db")
    return Call(("chats", "restore", str(backup)), data=folder / "data", statuses=statuses)


def backup_cases() -> Iterator[Case]:
    """Yield all cases of backups."""
    for name, spoil in REFUSED.items():
        yield Case(Kind.BACKUPS, name, partial(_made, spoil, (1,)))
    for name, spoil in CHANGED.items():
        yield Case(Kind.BACKUPS, name, partial(_made, spoil, (0, 1)))
    for what in ODD_FILES:
        yield Case(Kind.BACKUPS, f"{what} as the backup", partial(_made, odd_beside("", what), (1,)))
