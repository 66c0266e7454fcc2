"""Models are moved to the Trash and put back, or deleted for good; files that others use stay."""

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.errors import RdchatError
from rdchat.hub import CachedRepository, HubError, RepositoryFiles, Tokens
from rdchat.hub.downloads import download_record
from rdchat.hub.downloads.download import Download
from rdchat.hub.downloads.download_process import DownloadQueue
from rdchat.hub.downloads.download_record import write_record
from rdchat.hub.verifying_and_deleting import TrashedFolder, Verdict
from rdchat.inference.api import ModelCard
from rdchat.inference.library.original_source import make_part
from rdchat.services.models.deletion_and_verification import RemovalQuestion, reason_not_to_delete, reason_not_to_verify
from rdchat.services.models.removal import Removal, Verification
from rdchat.work.job import Job
from tests.hub.downloads.downloading import (
    NAME,
    HeldVerification,
    cached,
    check_whole,
    download,
    random_bytes,
    small_files,
)
from tests.hub.hub_server import Fault, HubServer
from tests.services.models.library_samples import library_model

WEIGHTS = "model.safetensors"


@pytest.fixture
def removal(qtbot: QtBot) -> Iterator[Removal]:
    removal = Removal()
    yield removal
    removal.drop_requests()


@pytest.fixture
def model(hub: HubServer) -> ModelCard:
    """A downloaded model."""
    hub.add(NAME, small_files())
    return library_model(NAME, path=download()[0])


def asked(qtbot: QtBot, removal: Removal, model: ModelCard) -> RemovalQuestion:
    questions: list[RemovalQuestion] = []
    removal.ask_about(model, questions.append)
    qtbot.waitUntil(lambda: bool(questions))
    return questions[0]


def remove(qtbot: QtBot, removal: Removal, model: ModelCard) -> TrashedFolder | None:
    question = asked(qtbot, removal, model)
    with qtbot.waitSignal(removal.removed) as signal:
        removal.delete_model(question, pytest.fail)
    assert signal.args[0] == question
    return signal.args[1]


def test_a_whole_repository_goes_to_the_trash_and_back(
    qtbot: QtBot, removal: Removal, model: ModelCard, system_trash: Path
) -> None:
    trashed = remove(qtbot, removal, model)
    assert trashed is not None
    assert trashed.trash_path == system_trash / cached().folder.name
    assert trashed.trash_path.is_dir()
    with qtbot.waitSignal(removal.restored):
        removal.restore_model(trashed)
    check_whole(model.path, small_files())
    assert list(system_trash.iterdir()) == list((system_trash.parent / "info").iterdir()) == []


def test_a_converted_model_goes_to_the_trash_and_back(qtbot: QtBot, removal: Removal, system_trash: Path) -> None:
    folder = paths.models_dir() / "converted"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    model = library_model("converted", path=folder, origin="rdchat", repository="", model=str(folder), disk_bytes=2)
    assert asked(qtbot, removal, model).plan.freed_bytes == 2
    trashed = remove(qtbot, removal, model)
    assert trashed is not None
    assert not folder.exists()
    folder.mkdir()
    with qtbot.waitSignal(removal.failed) as told:
        removal.restore_model(trashed)
    assert "cannot be restored" in str(told.args[0])
    folder.rmdir()
    with qtbot.waitSignal(removal.restored):
        removal.restore_model(trashed)
    assert (folder / "config.json").read_text() == "{}"


@pytest.mark.parametrize("place", ["LM Studio", "Your folder"])
def test_other_programs_models_are_left_to_them(qtbot: QtBot, removal: Removal, tmp_path: Path, place: str) -> None:
    model = library_model("theirs/model", path=tmp_path, origin=place, repository="")
    assert reason_not_to_delete(model)
    with qtbot.waitSignal(removal.failed):
        removal.ask_about(model, lambda _question: pytest.fail("it was asked about"))


def test_an_unfinished_download_goes_and_the_older_version_stays(
    qtbot: QtBot, removal: Removal, hub: HubServer, model: ModelCard
) -> None:
    hub.repositories[NAME].commits["f" * 40] = small_files() | {WEIGHTS: random_bytes(300_000, 8)}
    hub.repositories[NAME].branches["main"] = "f" * 40
    hub.fault(WEIGHTS, Fault(cut=9), *[Fault(status=503)] * 4)
    with pytest.raises(HubError):
        download()
    unfinished = library_model(NAME, path=cached().folder, download_bytes=300_000, disk_bytes=9)
    question = asked(qtbot, removal, unfinished)
    assert question.model.is_unfinished
    assert remove(qtbot, removal, unfinished) is None
    check_whole(model.path, small_files())
    whole = asked(qtbot, removal, model)
    assert not whole.plan.unfinished


def test_what_is_being_downloaded_is_not_deleted(
    qtbot: QtBot, removal: Removal, model: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.hub.verifying_and_deleting._LOCK_WAIT_S", 0.1)
    question = asked(qtbot, removal, model)
    with cached().locked(), qtbot.waitSignal(removal.failed) as told:
        removal.delete_model(question, pytest.fail)
    assert isinstance(told.args[0], RdchatError)
    check_whole(model.path, small_files())


def _begun() -> RemovalQuestion:
    """Leave a download that was begun on disk, and return the question before its deletion."""
    write_record(cached(), RepositoryFiles(NAME, "main", "", (), paused=False))
    return RemovalQuestion.for_model(library_model(NAME, path=cached().folder, download_bytes=1))


def _note_pause() -> None:
    """Note a pause as the downloading process does, by the record that came to it."""
    asyncio.run(DownloadQueue(make_part).pause(Job(), record=json.loads(json.dumps(asdict(Download(NAME))))))


def test_a_pause_that_is_being_noted_does_not_bring_a_deleted_download_back(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record was read, deleted with its folder, and written again."""
    question = _begun()
    deletion = threading.Thread(target=question.delete_model, args=(pytest.fail,))

    def write(repository: CachedRepository, files: RepositoryFiles) -> None:
        deletion.start()
        deletion.join(0.3)
        write_record(repository, files)

    monkeypatch.setattr(download_record, "write_record", write)
    _note_pause()
    deletion.join()
    assert not cached().folder.exists()


def test_a_pause_after_a_deletion_leaves_no_folder(hub: HubServer) -> None:
    _begun().delete_model(pytest.fail)
    _note_pause()
    assert not cached().folder.exists()


def test_a_deletion_waits_for_a_download_that_is_being_paused(hub: HubServer) -> None:
    question = _begun()
    held = cached().locked()
    held.__enter__()
    release = threading.Timer(0.3, held.__exit__, (None, None, None))
    release.start()
    question.delete_model(pytest.fail)
    release.join()
    assert not cached().folder.exists()


def test_one_revision_of_several_is_deleted_for_good(
    qtbot: QtBot, removal: Removal, hub: HubServer, model: ModelCard, system_trash: Path
) -> None:
    hub.repositories[NAME].commits["f" * 40] = small_files() | {WEIGHTS: random_bytes(300_000, 8)}
    hub.repositories[NAME].branches["newer"] = "f" * 40
    download(revision="newer")
    assert asked(qtbot, removal, model).for_good
    assert remove(qtbot, removal, model) is None
    assert not system_trash.exists()


@pytest.fixture
def verification(qtbot: QtBot) -> Iterator[Verification]:
    verification = Verification(Tokens())
    yield verification
    verification.drop_requests()


def verified(qtbot: QtBot, verification: Verification, model: ModelCard) -> Verdict:
    with qtbot.waitSignal(verification.finished) as told:
        verification.verify_model(model)
        assert verification.model == model
    assert verification.model is None
    verdict = told.args[1]
    assert isinstance(verdict, Verdict)
    return verdict


def test_a_whole_model_and_a_damaged_one(qtbot: QtBot, verification: Verification, model: ModelCard) -> None:
    assert verified(qtbot, verification, model).is_intact
    assert verification.done_bytes == sum(map(len, small_files().values()))
    (model.path / WEIGHTS).write_bytes(b"x" * len(small_files()[WEIGHTS]))
    assert verified(qtbot, verification, model).damaged == (WEIGHTS,)


def test_verification_can_be_stopped(
    qtbot: QtBot, verification: Verification, model: ModelCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = HeldVerification(monkeypatch)
    verification.verify_model(model)
    qtbot.waitUntil(lambda: verification.done_bytes > 0)
    with qtbot.assertNotEmitted(verification.finished, wait=200):
        verification.stop_verifying()
        held.let_go.set()
        assert held.ended.wait(60)
    assert verification.model is None


def test_lm_studios_folders_are_verified_by_their_names(
    qtbot: QtBot, verification: Verification, hub: HubServer, tmp_path: Path
) -> None:
    hub.add(NAME, small_files())
    folder = tmp_path / NAME
    folder.mkdir(parents=True)
    for name, data in small_files().items():
        (folder / name).write_bytes(data)
    theirs = library_model(NAME, path=folder, origin="LM Studio", repository="")
    assert reason_not_to_verify(theirs) == ""
    assert verified(qtbot, verification, theirs).is_intact


def test_refusal_of_the_hub_is_shown(qtbot: QtBot, verification: Verification, hub: HubServer, tmp_path: Path) -> None:
    folder = tmp_path / NAME
    folder.mkdir(parents=True)
    theirs = library_model(NAME, path=folder, origin="LM Studio", repository="")
    with qtbot.waitSignal(verification.failed) as told:
        verification.verify_model(theirs)
    assert told.args[0] == theirs
    assert str(told.args[1])


def test_without_the_hub_the_cache_is_held_against_its_own_names(
    qtbot: QtBot, verification: Verification, model: ModelCard, hub: HubServer
) -> None:
    del hub.repositories[NAME]
    verdict = verified(qtbot, verification, model)
    assert verdict.is_intact
    assert verdict.hub_problem


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"origin": "rdchat", "repository": ""}, "converted on this computer"),
        ({"origin": "Your folder", "repository": ""}, "does not know which"),
        ({"download_bytes": 10}, "Finish the download first"),
    ],
)
def test_models_without_checksums_say_why_they_cannot_be_verified(changed: dict[str, object], words: str) -> None:
    assert words in reason_not_to_verify(library_model("org/model", **changed))
