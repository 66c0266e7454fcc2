"""`rdchat ask` drafts from the first answer on, and prepares nothing after a command, unless a test says so."""

import pytest

from tests.commands.running import Console


@pytest.fixture
def console(capsys: pytest.CaptureFixture[str]) -> Console:
    return Console(capsys)


@pytest.fixture(autouse=True)
def _is_tried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "untried" not in request.fixturenames:
        monkeypatch.setattr(
            "rdchat.inference.verification.target.LoadedModel.is_tried",
            property(lambda _: lambda: True, lambda *_: None),
        )


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models were not tried out on this machine; has an entry for each trial."""
    from rdchat.inference import loading

    trials: list[str] = []
    check = loading.check_capability
    monkeypatch.setattr(loading, "check_capability", lambda *models: (trials.append("trial"), check(*models))[1])
    return trials
