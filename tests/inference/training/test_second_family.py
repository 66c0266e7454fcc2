"""The whole training, for a small model of another family; and what it leaves behind when it is killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.drafter_folder import load_drafter
from rdchat.inference.prompt_files import Prompt
from rdchat.inference.requests import SamplingParams
from rdchat.inference.target import LoadedModel
from rdchat.inference.training.evaluate import Evaluation, Setup, report
from rdchat.inference.training.run import Phase
from rdchat.inference.training.samples import Answers
from rdchat.inference.training.shards import ShardFolder
from tests.inference.fakes import ALPHABET
from tests.inference.training.small_language import fitted_model, training

pytestmark = pytest.mark.slow

# rdchat.inference comes first: it picks the BLAS, and another one rounds differently
PROGRAM = "import rdchat.inference; from tests.inference.training.small_language import main; main()"
EVENTS_BEFORE_THE_KILL = {Phase.DATA: 2, Phase.TRAIN: 3, Phase.EVALUATE: 2}  # so that there is something to resume
FRESH = [Prompt(f"say {word}") for word in ("fox", "river", "garden", "cat", "house", "child")]


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return fitted_model()


@pytest.fixture(scope="module")
def trained(model: LoadedModel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a drafter `out`, trained without interruption, and the cache of that training."""
    place = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RDCHAT_CACHE_DIR", str(place / "cache"))
        began = time.monotonic()
        phases = [progress.phase for progress in training(model, place / "out", resume=False).run()]
        sys.stderr.write(f"the training took {time.monotonic() - began:.0f} s\n")
    assert list(dict.fromkeys(phases)) == list(Phase)
    return place


def tensors(out: Path) -> dict[str, mx.array]:
    return mx.load(str(out / "model.safetensors"))  # type: ignore[return-value]


def bigram_tokens_per_call(cache: Path) -> float:
    """Return what a drafter brings that always proposes the most frequent next token of the same data."""
    shards = ShardFolder(next(cache.glob("training/*/*/shards")), len(ALPHABET))
    answers = Answers.of([item for number in range(len(shards)) for item in shards.read(number)])
    pairs = np.zeros((len(ALPHABET), len(ALPHABET)), np.int64)
    inside = (answers.left > 0) & ~answers.held_out
    np.add.at(pairs, (answers.tokens[inside], answers.tokens[np.flatnonzero(inside) + 1]), 1)
    following = pairs.argmax(axis=1)
    chosen = np.flatnonzero(answers.held_out & answers.greedy & (answers.left > 4))
    calls = tokens = 0
    place = 0
    while place < len(chosen):
        root = chosen[place]
        accepted, token = 0, answers.tokens[root]
        while accepted < 4 and following[token] == answers.tokens[root + accepted + 1]:
            accepted, token = accepted + 1, following[token]
        calls, tokens = calls + 1, tokens + accepted + 1
        place = int(np.searchsorted(chosen, root + accepted + 1))
    return tokens / calls


def test_it_beats_the_most_frequent_next_token(model: LoadedModel, trained: Path) -> None:
    stored = load_drafter(trained / "out", model)
    evaluation = Evaluation(model, stored, SamplingParams(temperature=0, max_tokens=80))
    rows = report(list(evaluation.run(FRESH, [Setup(1, 5)])))
    figure = rows[-1]["tokens_per_target_call"]
    assert isinstance(figure, float)
    baseline = bigram_tokens_per_call(trained / "cache")
    sys.stderr.write(f"tokens per target call {figure:.2f}, by the most frequent next token {baseline:.2f}\n")
    assert figure >= 1.15
    assert figure > baseline


def test_the_card_says_how_it_was_made(trained: Path) -> None:
    card = (trained / "out" / "card.md").read_text(encoding="utf-8")
    for words in ("tiny", "Seed 1", "tokens per target call", "train-drafter --tokens 6000 --seed 1"):
        assert words in card


def run_until(phase: Phase, folder: Path, weights: Path) -> None:
    """Go on with a training in a process of its own, and kill that in a phase; DONE lets it end."""
    environment = os.environ | {"RDCHAT_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", PROGRAM, str(folder / "out"), str(weights)]
    events = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            events += line.startswith(phase.value)
            if phase is not Phase.DONE and events == EVENTS_BEFORE_THE_KILL.get(phase, 1):
                process.send_signal(signal.SIGKILL)
                break
        assert process.wait() == (0 if phase is Phase.DONE else -signal.SIGKILL)
    assert events


def test_killed_in_every_phase_and_resumed_it_ends_in_the_same_weights(
    model: LoadedModel, trained: Path, tmp_path: Path
) -> None:
    model.network.save_weights(str(tmp_path / "model.safetensors"))
    for phase in Phase:
        assert not (tmp_path / "out").exists()
        run_until(phase, tmp_path, tmp_path / "model.safetensors")
    expected, found = tensors(trained / "out"), tensors(tmp_path / "out")
    assert expected.keys() == found.keys()
    assert all(mx.array_equal(expected[name], found[name]).item() for name in expected)
