"""The whole training, for a small model of another family; and what it leaves behind when it is killed."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import pytest

from rdchat.inference.api import BeamShape, Phase
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import ask, reply_end, with_beams
from tests.inference.plain_replies import drafted
from tests.inference.training.small_language import fitted_model, training

pytestmark = pytest.mark.slow

# rdchat.inference comes first: it picks the BLAS, and another one rounds differently
PROGRAM = "import rdchat.inference.blas; from tests.inference.training.small_language import main; main()"
# so that there is something to resume: the data in its second batch, which was put aside
EVENTS_BEFORE_THE_KILL = {Phase.DATA: 300, Phase.TRAIN: 200, Phase.EVALUATE: 2}
FRESH = [
    ask(f"say {word}", temperature=0, max_tokens=80) for word in ("fox", "river", "garden", "cat", "house", "child")
]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return fitted_model()


@pytest.fixture(scope="module")
def trained(model: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a drafter `out`, trained without interruption, that training's cache, and how long it took."""
    place = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RDCHAT_CACHE_DIR", str(place / "cache"))
        began = time.monotonic()
        phases = [progress.phase for progress in training(model, place / "out", False).train()]
        (place / "seconds").write_text(f"{time.monotonic() - began:.0f}")
    assert list(dict.fromkeys(phases)) == list(Phase)
    return place


def tensors(out: Path) -> dict[str, mx.array]:
    return mx.load(str(out / "model.safetensors"))  # type: ignore[return-value]


def test_it_drafts_answers_to_fresh_prompts(
    model: LoadedModel, trained: Path, record_property: Callable[[str, object], None]
) -> None:
    head = HeadModel(model, load_drafter(trained / "out", model))
    calls = 0
    tokens = 0
    for asked in FRESH:
        drafter = head.drafter(model.encode_chat(asked.messages), with_beams(asked, BeamShape(1, 5), False))
        counts = reply_end(drafted(model, asked, drafter)[0]).statistics
        calls += counts.target_calls
        tokens += counts.generated_tokens - 1
    record_property("seconds of the training of a second family", (trained / "seconds").read_text())
    record_property("tokens per target call", f"{tokens / calls:.2f}")
    assert tokens / calls >= 1.15


def test_the_card_says_how_it_was_made(trained: Path) -> None:
    card = (trained / "out" / "card.md").read_text(encoding="utf-8")
    for words in ("tiny", "tokens per step", "by position", "| kind | recurrent |", "| seed | 1 |"):
        assert words in card


def run_until(phase: Phase, folder: Path, weights: Path) -> None:
    """Go on with a training in a process of its own, and kill that in a phase."""
    command = [sys.executable, "-c", PROGRAM, str(folder / "out"), str(weights), phase.value]
    events = 0
    wanted = EVENTS_BEFORE_THE_KILL.get(phase, 1)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            events += line.startswith(phase.value)
            if events == wanted:
                process.send_signal(signal.SIGKILL)
                break
        assert process.wait() == -signal.SIGKILL
    assert events


def test_killed_in_every_phase_and_resumed_it_ends_in_the_same_weights(
    model: LoadedModel, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDCHAT_CACHE_DIR", str(tmp_path / "cache"))
    model.network.save_weights(str(tmp_path / "model.safetensors"))
    for phase in list(Phase)[:-1]:
        assert not (tmp_path / "out").exists()
        run_until(phase, tmp_path, tmp_path / "model.safetensors")
    assert Phase.TRAIN not in [progress.phase for progress in training(model, tmp_path / "out", True).train()]
    expected = tensors(trained / "out")
    found = tensors(tmp_path / "out")
    assert expected.keys() == found.keys()
    assert all(mx.array_equal(expected[name], found[name]).item() for name in expected)
