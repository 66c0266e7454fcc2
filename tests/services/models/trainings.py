"""Trainings of a small model by a real training process, for tests of who starts and follows them."""

from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat import host
from rdchat.inference.api import TrainingOrder
from rdchat.services.models.training_control import TrainingControl, TrainingState
from tests.inference.training.short_child import COMMAND

WAIT_MS = 240_000  # MLX is imported anew by each process, which on a busy machine takes long
ROOT = Path(__file__).parents[3]


@pytest.fixture
def short_trainings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have training processes do little."""
    plain = host.child_command
    monkeypatch.setattr(host, "child_command", lambda name: COMMAND if name == "training" else plain(name))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def order_for(model: Path, tokens: int = 1000, with_chats: bool = False) -> TrainingOrder:
    return TrainingOrder(str(model), "small", tokens=tokens, with_chats=with_chats)


def wait_for(qtbot: QtBot, training: TrainingControl, *states: TrainingState) -> None:
    """Wait for one of some states; where it fails instead, say why."""

    def there() -> bool:
        if training.state is TrainingState.FAILED and TrainingState.FAILED not in states:
            pytest.fail(f"{training.problem} {training.hint}")
        return training.state in states

    qtbot.waitUntil(there, timeout=WAIT_MS)
