"""Checks the results of a failing device: `python -m tests.inference.failing_child CHECK FOLDER`."""

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mlx.core as mx
import mlx.nn as nn
import numpy as np

from rdchat.errors import DeviceError, ModelError
from rdchat.inference.api import DraftKind, DraftSettings, GenerationRequest, Mode, ReplyEnd, TokenEvent
from rdchat.inference.auto.auto_drafter import AutoState
from rdchat.inference.auto.cost_model import PLAIN_STEP, Part
from rdchat.inference.benchmark.runner import gap_of, score_gap
from rdchat.inference.device import fetch
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.shipped_answers import TrainingConversation
from rdchat.inference.session import ChatSession
from rdchat.inference.training.data_maker import check_batched_decoding, hidden_states
from rdchat.inference.training.samples import LogitCurve, Teacher
from rdchat.inference.verification.capability import check_capability
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings
from rdchat.inference.verification.verifier import PackedTree
from tests.inference.auto.automatic_replies import RandomPlanner
from tests.inference.drafting.heads.eagle3_drafters import bound
from tests.inference.fakes import ALPHABET, ask, positions, random_drafter, tiny_llama
from tests.inference.harmed_drafters import HarmedHead

_SAID = "Unable to read from file"
_TRIES = 9  # of a case; see `test_failing_reads`

# Replies


def failing_array(folder: Path, shape: tuple[int, ...] = ()) -> mx.array:
    """Return a lazy array of zeros; whoever waits for it is told of an error, and finds numbers in it afterwards."""
    path = folder / "array.safetensors"
    path.unlink(missing_ok=True)  # another file than that of an array before
    mx.save_safetensors(str(path), {"zeros": mx.zeros(shape)})
    held = mx.load(str(path))
    assert isinstance(held, dict)
    os.truncate(path, 8)
    return held["zeros"]


class Failure:
    """Lets one of the arrays that it is given fail.

    Attributes:
        calls_left: Arrays until that one; None for never again.
    """

    def __init__(self, folder: Path) -> None:
        self.calls_left: int | None = None
        self._folder = folder

    def __call__(self, array: mx.array) -> mx.array:
        if self.calls_left == 0:
            self.calls_left = None
            return array + failing_array(self._folder)
        if self.calls_left is not None:
            self.calls_left -= 1
        return array


class _FailingEmbedding(nn.Module):
    """Embeds tokens; where it fails, so does all that is computed from them, rows of a KV cache included."""

    def __init__(self, embedding: nn.Embedding, failure: Failure) -> None:
        super().__init__()
        self.embedding = embedding
        self._failure = failure

    def __call__(self, tokens: mx.array) -> mx.array:
        return self._failure(self.embedding(tokens))

    def as_linear(self, hidden: mx.array) -> mx.array:
        logits: mx.array = self.embedding.as_linear(hidden)
        return logits

    @property
    def weight(self) -> mx.array:
        weight: mx.array = self.embedding.weight
        return weight


def let_fail(model: LoadedModel, failure: Failure) -> None:
    """Have a small llama's embeddings fail when they are told to."""
    inner = model.network.model
    inner.embed_tokens = _FailingEmbedding(inner.embed_tokens, failure)


def _session(mode: str, failure: Failure, who: str) -> ChatSession:
    """Return a session that has what the mode drafts with, and whose target or drafter fails when it is told to."""
    session = ChatSession(tiny_llama())
    model = session.model
    folder = Path("drafter")
    small = tiny_llama(seed=3)
    of_head = failure if who == "drafter" else lambda logits: logits
    head = bound(model) if mode == "eagle3" else random_drafter(model).head
    session.drafters._heads[folder] = HeadModel(model, HarmedHead(head, of_head))
    session.drafters.drafter_folder = lambda _named: folder  # type: ignore[method-assign]
    session.drafters._draft_models["small"] = DraftModel(model, small, len(ALPHABET))
    if mode == "auto":
        session.drafters.auto.costs.use(Part.CALLS, {(PLAIN_STEP, 128): 1.0, (1, 128): 1.0})
    assert model.capability.kind is DraftKind.TREE
    let_fail(small if who == "drafter" else model, failure)
    return session


def _said_by(session: ChatSession, request: GenerationRequest) -> tuple[int, ...]:
    """Return the tokens of a reply, as far as it comes."""
    said: list[int] = []
    try:
        for event in session.generate(request):
            said += [event.token_id] if isinstance(event, TokenEvent) else []
    except DeviceError as error:
        _check_words(error, f"The device failed for this reply: [read] {_SAID}.")
        assert session.cache.tokens == []
    return tuple(said)


def _check_words(error: Exception, words: str = _SAID) -> None:
    if words not in str(error):
        raise error


def _places(failure: Failure, run: Callable[[], object]) -> Iterator[int]:
    """Run once without a failure; then have it fail in some of its calls, the first and the last included."""
    failure.calls_left = before = 10**6
    run()
    calls = before - failure.calls_left
    failure.calls_left = None
    assert calls > 0
    for place in sorted({round(each) for each in np.linspace(0, calls - 1, _TRIES)}):
        failure.calls_left = place
        yield place
        failure.calls_left = None


@patch.object(AutoState, "look_up_costs", lambda _: None)
def _check_replies(mode: str, who: str, temperature: float, folder: Path) -> None:
    failure = Failure(folder)
    session = _session(mode, failure, who)
    which = Mode.DRAFTER if mode in ("recurrent", "eagle3") else Mode(mode)
    draft = DraftSettings(which, draft_model="small", draft_tokens=3, trace=temperature > 0)
    request = replace(ask("abcabc", seed=5, max_tokens=8, temperature=temperature), draft=draft)
    expected = _said_by(ChatSession(tiny_llama()), replace(request, draft=DraftSettings(Mode.OFF)))
    assert len(expected) == 8

    def reply() -> tuple[int, ...]:
        session.drop_caches()
        modes = (Mode.LOOKUP, Mode.DRAFTER, Mode.SPECULATIVE)
        session.drafters.auto.planner = RandomPlanner(session.drafters.auto.costs, modes, 1)
        return _said_by(session, request)

    broken = 0
    for _ in _places(failure, reply):
        said = reply()
        assert said == expected[: len(said)], (said, expected)
        broken += said != expected
        failure.calls_left = None
        *_, end = session.generate(request)
        assert isinstance(end, ReplyEnd)
        assert (end.token_ids, end.mode, end.mode_reason) == (expected, which, None), end
        assert positions(session.cache) == len(session.cache.tokens)
    assert broken > 2


# Whatever else reads a model's output

_QUERIES = ask(temperature=0.9)
_TOLD = [TrainingConversation(0, [3, 4, 5, 6, 7, 8, 9, 10], 3, 0.0)]
_CALLS: Mapping[str, Callable[[LoadedModel], Any]] = {
    "gap": lambda model: score_gap(model, _QUERIES, [4, 5, 6], 2, 7),
    "states": lambda model: list(hidden_states(model, _TOLD * 2, HiddenReads())),
    "batches": check_batched_decoding,
    "curve": lambda model: [
        LogitCurve.measure(model, TargetEmbeddings(model.network, len(ALPHABET))) for _ in range(2)
    ],
}


def _check_call(call: Callable[[LoadedModel], Any], folder: Path) -> None:
    model = tiny_llama()
    failure = Failure(folder)
    let_fail(model, failure)
    for place in _places(failure, lambda: call(model)):
        try:
            call(model)
        except (RuntimeError, ModelError) as error:
            _check_words(error)
            continue
        raise AssertionError(f"it went on with numbers that were never computed, at {place}")


def _check_capability(folder: Path) -> None:
    model = tiny_llama()
    failure = Failure(folder)
    let_fail(model, failure)

    def check() -> None:
        found = check_capability(model.network, model.hooks, len(ALPHABET))
        failed = failure.calls_left is None
        assert (found.kind is DraftKind.NONE) == failed
        assert (_SAID in found.reason) == failed

    for _ in _places(failure, check):
        check()


_READERS: Mapping[str, Callable[[mx.array], Any]] = {
    "fetch": fetch,
    "fetch of several": lambda array: fetch(mx.ones(3), array),
    "fetch beside another": lambda array: fetch(mx.ones(3), besides=[None, array]),
    "item": lambda array: array.item(),
    "tolist": lambda array: array.tolist(),
    "int": int,
    "float": float,
    "bool": bool,
    "tree": lambda array: PackedTree.chain(array.reshape(-1)).fetch(),
    "gap": lambda array: gap_of(mx.zeros((1, 31)) + array.reshape(-1), 3, _QUERIES, 4, 5),
    "teacher": lambda array: Teacher(1).fill(0, np.zeros((1, 4)), mx.zeros((31, 4)) + array, lambda rows: rows),
}


def _check_readers(folder: Path) -> None:
    """Of these shapes `np.array` gives whatever the memory held."""
    for shape in ((), (1,)):
        for name, read in _READERS.items():
            try:
                read(failing_array(folder, shape) + 1)
            except RuntimeError as error:
                _check_words(error)
                continue
            raise AssertionError(f"{name} of {shape} did not tell")


def _replies(*cases: tuple[str, str, float]) -> list[Callable[[Path], None]]:
    return [partial(_check_replies, *case) for case in cases]


CHECKS: Mapping[str, Sequence[Callable[[Path], None]]] = {
    "plain decoding and prompt lookup": _replies(
        ("off", "target", 0.0), ("off", "target", 0.9), ("lookup", "target", 0.9)
    ),
    "a draft model": _replies(("speculative", "target", 0.0), ("speculative", "drafter", 0.9)),
    "a recurrent head": _replies(("recurrent", "target", 0.9), ("recurrent", "drafter", 0.0)),
    "a head that remembers": _replies(("eagle3", "target", 0.0), ("eagle3", "drafter", 0.9)),
    "the automatic mode": _replies(("auto", "target", 0.9), ("auto", "drafter", 0.0)),
    "what else reads a model": [_check_capability, *(partial(_check_call, call) for call in _CALLS.values())],
    "readers": [_check_readers],
}


if __name__ == "__main__":
    for check in CHECKS[sys.argv[1]]:
        check(Path(sys.argv[2]))
