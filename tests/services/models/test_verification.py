"""A model's files are held against the hub's checksums beside the window, and that can be stopped."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.hub import known_files
from rdchat.hub.endpoint import Tokens
from rdchat.hub.verifying_and_deleting import Verdict
from rdchat.inference.api import ModelCard
from rdchat.services.models.file_actions import reason_not_to_verify
from rdchat.services.models.removal import Verification
from tests.hub.downloads.downloading import NAME, download, small_files
from tests.hub.hub_server import HubServer
from tests.services.models.library_samples import library_model

WEIGHTS = "model.safetensors"


@pytest.fixture
def verification(qtbot: QtBot) -> Iterator[Verification]:
    verification = Verification(Tokens())
    yield verification
    verification.drop_requests()


@pytest.fixture
def model(hub: HubServer) -> ModelCard:
    """A downloaded model."""
    hub.add(NAME, small_files())
    return library_model(NAME, path=download()[0])


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
    monkeypatch.setattr(known_files, "_CHUNK_BYTES", 100)
    with qtbot.waitSignal(verification.changed):
        verification.verify_model(model)
    with qtbot.assertNotEmitted(verification.finished, wait=200):
        verification.stop_verifying()
    assert verification.model is None
    monkeypatch.undo()


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
