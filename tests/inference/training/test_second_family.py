"""The whole training, for a small model of another family; and what it leaves behind when it is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import BeamShape, GenerationRequest, Phase, ReplyEnd
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.training.data_maker import ShardFolder
from rdchat.inference.training.samples import Answers
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree
from tests.inference.fakes import ALPHABET, ask, tree_of_beams, with_beams
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


class FrequentNext(Drafter):
    """Always proposes the most frequent next token, and the one after that."""

    name = "frequent"

    def __init__(self, following: np.ndarray) -> None:
        self._following = following

    def propose(self, root: int, limit: int) -> Draft:
        chain = [root]
        for _ in range(min(4, limit)):
            chain.append(int(self._following[chain[-1]]))
        return Draft(PackedTree.pack(tree_of_beams([chain])))


def next_tokens(cache: Path) -> dict[str, np.ndarray]:
    """Return the most frequent next token of the training's own data: whatever the last one is, and by the last one."""
    shards = ShardFolder(next(cache.glob("training/*/*/shards")), len(ALPHABET))
    answers = Answers.concatenate([item for number in range(len(shards)) for item in shards.read_shard(number)])
    pairs = np.zeros((len(ALPHABET), len(ALPHABET)), np.int64)
    inside = (answers.left > 0) & ~answers.held_out
    np.add.at(pairs, (answers.tokens[inside], answers.tokens[np.flatnonzero(inside) + 1]), 1)
    return {"most frequent": np.full(len(ALPHABET), pairs.sum(axis=0).argmax()), "by pairs": pairs.argmax(axis=1)}


def tokens_per_call(model: LoadedModel, drafter_of: Callable[[GenerationRequest], Drafter]) -> float:
    ends = [drafted(model, request, drafter_of(request))[0][-1] for request in FRESH]
    counts = [end.statistics for end in ends if isinstance(end, ReplyEnd)]
    return sum(each.generated_tokens - 1 for each in counts) / sum(each.target_calls for each in counts)


def test_it_beats_the_most_frequent_next_token(
    model: LoadedModel, trained: Path, record_property: Callable[[str, object], None]
) -> None:
    """On the same fresh prompts, by decoding."""
    recurrent = HeadModel(model, load_drafter(trained / "out", model))
    beam = BeamShape(1, 5)
    ours = tokens_per_call(
        model, lambda asked: recurrent.drafter(model.encode_chat(asked.messages), with_beams(asked, beam, False))
    )
    others = {
        name: tokens_per_call(model, lambda _, following=following: FrequentNext(following))
        for name, following in next_tokens(trained / "cache").items()
    }
    record_property("seconds of the training of a second family", (trained / "seconds").read_text())
    record_property("tokens per target call", f"{ours:.2f}; by the next token that is {others}")
    assert ours >= 1.15
    assert ours > max(others.values())


def test_the_card_says_how_it_was_made(trained: Path) -> None:
    card = (trained / "out" / "card.md").read_text(encoding="utf-8")
    for words in ("tiny", "tokens per step", "by position", "| kind | recurrent |", "| seed | 1 |"):
        assert words in card


def run_until(phase: Phase, folder: Path, weights: Path) -> None:
    """Go on with a training in a process of its own, and kill that in a phase; DONE lets it end."""
    environment = os.environ | {"RDCHAT_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-c", PROGRAM, str(folder / "out"), str(weights), phase.value]
    events = 0
    wanted = EVENTS_BEFORE_THE_KILL.get(phase, 1)
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            events += line.startswith(phase.value)
            if phase is not Phase.DONE and events == wanted:
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
    expected = tensors(trained / "out")
    found = tensors(tmp_path / "out")
    assert expected.keys() == found.keys()
    assert all(mx.array_equal(expected[name], found[name]).item() for name in expected)
