"""One model of the hub from the window's side: facts, files and card, and what is here of it."""

from collections.abc import Iterator

import pytest
from pytestqt.qtbot import QtBot

from rdchat.hub.endpoint import HOST_VARIABLE, Tokens
from rdchat.services.models.hub_search import HubDetails, ModelDetails
from tests.hub.downloads.downloading import NAME, download, small_files
from tests.hub.hub_server import Fault, HubServer


@pytest.fixture
def details(qtbot: QtBot, hub: HubServer) -> Iterator[HubDetails]:
    details = HubDetails(Tokens())
    yield details
    details.drop_requests()


def looked_at(qtbot: QtBot, details: HubDetails, name: str = NAME) -> ModelDetails:
    """Look at a model, and wait for its card too where there is one to come."""
    details.show_model(name)

    def is_settled() -> bool:
        model = details.model
        assert model is not None
        return bool(model.trouble) or model.card is not None or bool(model.card_trouble)

    qtbot.waitUntil(is_settled)
    assert details.model is not None
    return details.model


def test_a_model_is_told_with_its_files_and_its_card(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    hub.add(NAME, small_files() | {"modeling.py": b"import os", "weights.pkl": b"x"}, likes=12)
    model = looked_at(qtbot, details)
    assert model.hub is not None
    assert (model.hub.licence, model.hub.family, model.hub.likes) == ("apache-2.0", "llama", 12)
    assert model.files is not None
    assert [file.name for file in model.files.files] == sorted(small_files())
    assert model.files.left_out == ("modeling.py", "weights.pkl")
    assert (model.card, model.page, model.here) == ("# Small", f"{hub.url}/{NAME}", False)


def test_details_say_which_version_is_installed(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    hub.add(NAME, small_files())
    download()
    model = looked_at(qtbot, details)
    assert (model.here, model.older_here) == (True, False)
    hub.add(NAME, small_files() | {"README.md": b"# Newer"})
    model = looked_at(qtbot, details)
    assert (model.here, model.older_here, model.card) == (False, True, "# Newer")


def test_a_model_without_a_card_has_none(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    files = small_files()
    del files["README.md"]
    hub.add(NAME, files)
    assert looked_at(qtbot, details).card == ""


def test_a_card_that_cannot_be_read_leaves_the_rest(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    hub.add(NAME, small_files())
    hub.fault("README.md", Fault(status=500))
    model = looked_at(qtbot, details)
    assert model.card_trouble is not None
    assert model.card_trouble.message == "Hugging Face has a problem (500)."
    assert model.files is not None


def test_a_card_that_breaks_off_is_told(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    hub.add(NAME, small_files() | {"README.md": b"word " * 50_000})
    hub.fault("README.md", Fault(cut=70_000))
    model = looked_at(qtbot, details)
    assert model.card_trouble is not None
    assert "stopped answering" in model.card_trouble.message


def test_a_very_long_card_is_cut(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    hub.add(NAME, small_files() | {"README.md": b"word " * 200_000})
    card = looked_at(qtbot, details).card
    assert card is not None
    assert len(card) == 199_999  # of which a space at the end is no text


def test_a_gated_model_says_what_to_click_and_wants_a_token(
    qtbot: QtBot, hub: HubServer, details: HubDetails, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add(NAME, small_files(), gated=True)
    trouble = looked_at(qtbot, details).trouble
    assert trouble is not None
    assert trouble.wants_token
    assert trouble.page == f"{hub.url}/{NAME}"
    assert "click “Agree and access repository”" in trouble.hint
    monkeypatch.setenv(HOST_VARIABLE, hub.url.removeprefix("http://"))
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    trouble = looked_at(qtbot, details).trouble
    assert trouble is not None
    assert "with the account of your token" in trouble.hint
    assert not trouble.wants_token
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    model = looked_at(qtbot, details)
    assert model.hub is not None
    assert model.hub.gated
    assert model.card == "# Small"


def test_what_rdchat_cannot_read_says_so(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    hub.add(NAME, {"pytorch_model.bin": b"x", "README.md": b"# Pickles"})
    model = looked_at(qtbot, details)
    assert model.problem.startswith("It has no weights that rdchat can read.")
    assert (model.files, model.card) == (None, "# Pickles")


def test_an_unknown_model_says_so(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    trouble = looked_at(qtbot, details, "nobody/nothing").trouble
    assert trouble is not None
    assert trouble.message == "nobody/nothing is private or no longer on Hugging Face."


def test_only_the_model_that_was_chosen_last_is_told(qtbot: QtBot, hub: HubServer, details: HubDetails) -> None:
    hub.add(NAME, small_files())
    hub.add("some-org/other", small_files() | {"README.md": b"# Other"})
    told: list[str] = []
    details.changed.connect(lambda: told.append(details.model.card or "") if details.model else None)
    details.show_model(NAME)
    model = looked_at(qtbot, details, "some-org/other")
    assert (model.repository, model.card) == ("some-org/other", "# Other")
    assert "# Small" not in told
