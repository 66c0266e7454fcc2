"""A file that iCloud has not downloaded: the child downloads it, and if it cannot, nobody calls the file damaged."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.attachments import file_reader
from rdchat.chat.attachments.attached_file import FileRefusedError
from rdchat.chat.attachments.file_reader import FileReader
from rdchat.chat.attachments.kinds import is_image, looks_readable
from rdchat.files import is_placeholder
from rdchat.work import Limits
from tests.chat.attachments.documents import pdf
from tests.cloud import only_in_cloud
from tests.inference.vision.pictures import encoded, photo

FILES = {"a.txt": b"Hi", "b.pdf": pdf(["Hi"]), "c.PNG": encoded(photo(9, 9), "PNG")}


@pytest.fixture(params=FILES)
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / request.param
    path.write_bytes(FILES[request.param])
    assert not is_placeholder(path)
    with only_in_cloud(monkeypatch, path):
        yield path


@pytest.fixture
def reader() -> Iterator[FileReader]:
    with closing(FileReader()) as reader:
        yield reader


def test_looking_at_one_downloads_nothing(path: Path) -> None:
    assert looks_readable(path)
    assert is_image(path) == (path.name == "c.PNG")


def test_the_child_downloads_it_and_then_it_is_like_any_other(path: Path, reader: FileReader) -> None:
    if path.name == "c.PNG":
        reader.download(path)
        assert not is_placeholder(path)
    else:
        assert reader.read_file(path).parts == ("Hi",)


@pytest.mark.parametrize("failure", ["time", "network"])
def test_one_that_is_not_downloaded_is_said_to_be_in_icloud(
    path: Path, reader: FileReader, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    if failure == "time":
        monkeypatch.setattr(file_reader, "_DOWNLOAD", Limits(0.1))
        # The time begins when the child is ready.
        path.with_name("other.txt").write_text("Hi")
        reader.read_file(path.with_name("other.txt"))
        assert reader._child.pid is not None
        os.kill(reader._child.pid, signal.SIGSTOP)
    else:
        path.unlink()
    with pytest.raises(FileRefusedError) as refused:
        reader.read_file(path)
    assert refused.value.message.startswith(f"{path.name} is in iCloud")
    assert "Finder" in refused.value.hint
    assert "damaged" not in str(refused.value)


def test_the_time_of_a_download_is_not_that_of_reading(path: Path) -> None:
    assert (file_reader._DOWNLOAD.seconds or 0) >= 5 * (file_reader._LIMITS.seconds or 0)


def test_one_that_is_too_large_is_refused_without_a_download(
    tmp_path: Path, reader: FileReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "film.txt"
    with path.open("wb") as file:
        file.truncate(file_reader.MAX_BYTES + 1)
    with only_in_cloud(monkeypatch, path), pytest.raises(FileRefusedError, match="too large"):
        reader.read_file(path)
