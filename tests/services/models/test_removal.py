"""Models are deleted into the trash of the disk they lie on, and put back; what others use stays."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.errors import RdchatError
from rdchat.hub.hub_errors import HubError
from rdchat.inference.api.model_facts import ModelCard
from rdchat.services.models.installed.removal import Removal, RemovalQuestion, reason_not_to_delete
from tests.hub.downloading import NAME, cached, check_whole, download, random_bytes, small_files
from tests.hub.hub_server import Fault, HubServer
from tests.hub.surroundings import hub, no_keychain, this_machine_only
from tests.services.models.library_samples import library_model

__all__ = ["hub", "no_keychain", "this_machine_only"]
WEIGHTS = "model.safetensors"


@pytest.fixture
def removal(qtbot: QtBot) -> Iterator[Removal]:
    removal = Removal()
    yield removal
    removal.close()


def asked(qtbot: QtBot, removal: Removal, model: ModelCard) -> RemovalQuestion:
    questions: list[RemovalQuestion] = []
    removal.ask(model, questions.append)
    qtbot.waitUntil(lambda: bool(questions))
    return questions[0]


def remove(qtbot: QtBot, removal: Removal, model: ModelCard) -> None:
    question = asked(qtbot, removal, model)
    with qtbot.waitSignal(removal.removed):
        removal.remove(question)


def test_a_model_of_the_hubs_cache_is_deleted_and_put_back(qtbot: QtBot, removal: Removal, hub: HubServer) -> None:
    hub.add(NAME, small_files())
    folder = download()[0]
    model = library_model(NAME, path=folder)
    question = asked(qtbot, removal, model)
    assert question.freed_bytes == sum(map(len, small_files().values()))
    with qtbot.waitSignals([removal.removed, removal.trash_changed]):
        removal.remove(question)
    assert not cached().folder.exists()
    (trashed,) = removal.trash
    later = Removal()  # the app was started anew
    with qtbot.waitSignal(later.trash_changed):
        later.look()
    assert later.trash == (trashed,)
    with qtbot.waitSignals([later.restored, later.trash_changed]):
        later.restore(trashed)
    check_whole(folder, small_files())
    assert later.trash == ()
    later.close()


def test_what_is_deleted_for_good_frees_the_disk(qtbot: QtBot, removal: Removal, hub: HubServer) -> None:
    hub.add(NAME, small_files())
    folder = download()[0]
    with qtbot.waitSignal(removal.trash_changed):
        remove(qtbot, removal, library_model(NAME, path=folder))
    (trashed,) = removal.trash
    assert trashed.size > 400_000
    with qtbot.waitSignal(removal.trash_changed):
        removal.delete_for_good(trashed)
    assert removal.trash == ()
    assert not trashed.entry.exists()


def test_rdchats_own_go_to_the_trash_beside_them(qtbot: QtBot, removal: Removal) -> None:
    folder = paths.models_dir() / "converted"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    model = library_model("converted", path=folder, place="rdchat", repository="", model=str(folder), disk_bytes=2)
    question = asked(qtbot, removal, model)
    assert question.freed_bytes == 2
    with qtbot.waitSignal(removal.trash_changed):
        removal.remove(question)
    assert not folder.exists()
    (trashed,) = removal.trash
    folder.mkdir()
    with qtbot.waitSignal(removal.failed) as told:
        removal.restore(trashed)
    assert "cannot be restored" in str(told.args[0])
    folder.rmdir()
    with qtbot.waitSignal(removal.restored):
        removal.restore(trashed)
    assert (folder / "config.json").read_text() == "{}"


@pytest.mark.parametrize("place", ["LM Studio", "Your folder"])
def test_other_programs_models_are_left_to_them(qtbot: QtBot, removal: Removal, tmp_path: Path, place: str) -> None:
    model = library_model("theirs/model", path=tmp_path, place=place, repository="")
    assert reason_not_to_delete(model)
    with qtbot.waitSignal(removal.failed):
        removal.ask(model, lambda _question: pytest.fail("it was asked about"))


def test_an_unfinished_download_goes_and_the_older_version_stays(
    qtbot: QtBot, removal: Removal, hub: HubServer
) -> None:
    hub.add(NAME, small_files())
    folder = download()[0]
    hub.repositories[NAME].commits["f" * 40] = small_files() | {WEIGHTS: random_bytes(300_000, 8)}
    hub.repositories[NAME].branches["main"] = "f" * 40
    hub.fault(WEIGHTS, Fault(cut=9), *[Fault(status=503)] * 4)
    with pytest.raises(HubError):
        download()
    model = library_model(NAME, path=cached().folder, download_bytes=300_000, disk_bytes=9)
    question = asked(qtbot, removal, model)
    assert question.model.is_unfinished
    with qtbot.waitSignal(removal.removed) as told:
        removal.remove(question)
    assert told.args[0].trashed is None
    check_whole(folder, small_files())
    whole = asked(qtbot, removal, library_model(NAME, path=folder))
    assert not whole.with_unfinished


def test_one_gguf_of_several_is_asked_about_alone(qtbot: QtBot, removal: Removal, hub: HubServer) -> None:
    hub.add(NAME, {"a-Q4_0.gguf": random_bytes(2_000, 1), "a-Q8_0.gguf": random_bytes(3_000, 2)})
    download(gguf="a-Q4_0.gguf")
    folder, _ = download(gguf="a-Q8_0.gguf")
    model = library_model("a-Q8_0", path=folder / "a-Q8_0.gguf", repository=NAME)
    question = asked(qtbot, removal, model)
    assert (question.freed_bytes, question.with_unfinished) == (3_000, False)
    with qtbot.waitSignal(removal.trash_changed):
        removal.remove(question)
    assert [path.name for path in folder.iterdir()] == ["a-Q4_0.gguf"]
    assert removal.trash[0].name == "a-Q8_0"


def test_what_is_being_downloaded_is_not_deleted(qtbot: QtBot, removal: Removal, hub: HubServer) -> None:
    hub.add(NAME, small_files())
    folder = download()[0]
    question = asked(qtbot, removal, library_model(NAME, path=folder))
    with cached().locked(), qtbot.waitSignal(removal.failed) as told:
        removal.remove(question)
    assert isinstance(told.args[0], RdchatError)
    check_whole(folder, small_files())


def test_a_whole_repository_goes_to_the_systems_trash_and_back(
    qtbot: QtBot, removal: Removal, hub: HubServer, system_trash: Path
) -> None:
    hub.add(NAME, small_files())
    folder = download()[0]
    with qtbot.waitSignal(removal.trash_changed):
        remove(qtbot, removal, library_model(NAME, path=folder))
    (trashed,) = removal.trash
    assert trashed.place == system_trash / cached().folder.name
    assert trashed.place.is_dir()
    with qtbot.waitSignals([removal.restored, removal.trash_changed]):
        removal.restore(trashed)
    check_whole(folder, small_files())
    assert list(system_trash.iterdir()) == list((system_trash.parent / "info").iterdir()) == []


def test_parts_of_a_repository_go_to_rdchats_trash(
    qtbot: QtBot, removal: Removal, hub: HubServer, system_trash: Path
) -> None:
    hub.add(NAME, small_files())
    folder = download()[0]
    hub.repositories[NAME].commits["f" * 40] = small_files() | {WEIGHTS: random_bytes(300_000, 8)}
    hub.repositories[NAME].branches["newer"] = "f" * 40
    download(revision="newer")
    with qtbot.waitSignal(removal.trash_changed):
        remove(qtbot, removal, library_model(NAME, path=folder))
    assert [trashed.place for trashed in removal.trash] == [None]
    assert not system_trash.exists()


def test_what_has_left_the_systems_trash_cannot_be_put_back_and_leaves_the_list(
    qtbot: QtBot, removal: Removal, hub: HubServer, system_trash: Path
) -> None:
    hub.add(NAME, small_files())
    model = library_model(NAME, path=download()[0])
    with qtbot.waitSignal(removal.trash_changed):
        remove(qtbot, removal, model)
    (trashed,) = removal.trash
    shutil.rmtree(system_trash)
    with qtbot.waitSignals([removal.failed, removal.trash_changed]):
        removal.restore(trashed)
    assert removal.trash == ()
