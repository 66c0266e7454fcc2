"""Drafted replies are samples of the target's own distribution, by exact enumeration over a tiny vocabulary.

The target remembers one token, so its probabilities are one small matrix, and every window of three tokens in a reply
is a sample of two tokens that follow a third.
"""

from collections.abc import Sequence
from dataclasses import replace

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

import tests.inference.fakes as fakes
from rdchat.inference.api import BeamShape, Capability, DraftKind, ReplyEnd
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import StoredDrafter, reply_end

pytestmark = pytest.mark.across_rows

SIZE = 8
WIDTH = 16
TEMPERATURE = 0.8
REPLY = 400
DECODED = 1200


class Endless(fakes.CharacterTokenizer):
    eos_token_ids = frozenset()


class Trunk(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(SIZE, WIDTH)

    def __call__(self, tokens: mx.array) -> mx.array:
        return self.embed_tokens(tokens)


class OneTokenMemory(nn.Module):
    """What follows depends on the last token alone; no layers and no cache, so samples are cheap."""

    def __init__(self) -> None:
        super().__init__()
        self.layers: list[nn.Module] = []
        self.model = Trunk()
        self.lm_head = nn.Linear(WIDTH, SIZE, bias=False)

    def __call__(self, tokens: mx.array, cache: object = None) -> mx.array:
        return self.lm_head(self.model(tokens))


@pytest.fixture(scope="module")
def target() -> LoadedModel:
    mx.random.seed(3)
    network = OneTokenMemory()
    network.model.embed_tokens.weight = mx.random.normal((SIZE, WIDTH))
    network.lm_head.weight = 0.3 * mx.random.normal((SIZE, WIDTH))
    model = fakes.loaded(network)
    info = replace(model.info, vocabulary_size=SIZE)
    return replace(model, tokenizer=Endless(), info=info, try_out=lambda: Capability(DraftKind.TREE))


@pytest.fixture(scope="module")
def drafter(target: LoadedModel) -> HeadModel:
    mx.random.seed(4)
    head = RecurrentHead(HeadConfig(WIDTH, SIZE, exit_size=24, state_size=16))
    return HeadModel(target, StoredDrafter(head, mx.arange(SIZE, dtype=mx.int32)).bind(target))


def decoded(target: LoadedModel, drafter: HeadModel, shape: BeamShape, branch: bool = False) -> list[ReplyEnd]:
    """Return drafted replies that have `DECODED` windows of three tokens."""
    ends = []
    for seed in range(DECODED // REPLY):
        request = fakes.ask(seed=seed, temperature=TEMPERATURE, top_p=1.0, max_tokens=REPLY + 2)
        job = ReplyJob.fresh(target, [seed % SIZE], request)
        shaped = fakes.with_beams(request, shape, branch)
        ends.append(reply_end(ReplyIterator(job, drafter.drafter(job.prompt, shaped))))
    return ends


def counted(replies: Sequence[Sequence[int]]) -> np.ndarray:
    """Return (8, 8, 8) counts of what followed what."""
    counts = np.zeros((SIZE,) * 3)
    for reply in replies:
        ids = np.array(reply)
        np.add.at(counts, (ids[:-2], ids[1:-1], ids[2:]), 1)
    return counts


def variation(target: LoadedModel, counts: np.ndarray) -> tuple[float, float]:
    """Return the total variation between a sample and the exact distribution, and the most that chance explains.

    Chance gives each of the 512 counts a standard deviation of sqrt(n p (1 - p)), so a mean deviation sqrt(2 / pi)
    times that; the sum scatters by less than 0.3 / sqrt(n), and five times that is allowed.
    """
    logits = np.array(target.network(mx.arange(SIZE)[None])[0], dtype=np.float64) / TEMPERATURE
    probs = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    n = counts.sum()
    exact = counts.sum(axis=(1, 2))[:, None, None] / n * probs[:, :, None] * probs[None]
    expected = np.sqrt(2 / np.pi * exact * (1 - exact) / n).sum() / 2
    return np.abs(counts / n - exact).sum() / 2, expected + 1.5 / np.sqrt(n)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "branch"), [(1, False), (4, True)])
def test_drafted_replies_are_distributed_as_the_target_says(
    target: LoadedModel, drafter: HeadModel, width: int, branch: bool
) -> None:
    ends = decoded(target, drafter, BeamShape(width, 4), branch)
    assert all(end.statistics.tokens_per_target_call > 1.3 for end in ends), "drafts were accepted"
    found, limit = variation(target, counted([end.token_ids for end in ends]))
    assert found < limit


def without_noise(
    _self: TokenChooser, logits: mx.array, _start: int, depths: mx.array, *_: object
) -> tuple[mx.array, mx.array]:
    return mx.argmax(logits, axis=-1), mx.ones(depths.shape, mx.bool_)


def with_one_noise_a_round(
    self: TokenChooser, logits: mx.array, start: int, depths: mx.array, *_: object
) -> tuple[mx.array, mx.array]:
    """Each token alone is then distributed as it should be, but not two of one round."""
    return self.choose(logits, [start] * depths.size), mx.ones(depths.shape, mx.bool_)


@pytest.mark.slow
@pytest.mark.parametrize("rule", [without_noise, with_one_noise_a_round])
def test_wrong_rules_of_acceptance_show(
    target: LoadedModel, drafter: HeadModel, monkeypatch: pytest.MonkeyPatch, rule: object
) -> None:
    """The tests above can fail: as many samples as the drafted replies have are enough."""
    monkeypatch.setattr(TokenChooser, "choose_quickly", rule)
    ends = decoded(target, drafter, BeamShape(4, 4))
    found, limit = variation(target, counted([end.token_ids for end in ends]))
    assert found > limit
