"""Targets in every quantisation that MLX has: a drafter is bound to their tables, drafts, and is verified."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest

from rdchat.inference.api import BeamShape, DraftKind, Recipe, TrainingSettings
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.training.training_plan import make_plan
from rdchat.inference.training.training_run import DrafterTraining
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings
from tests.grids import share
from tests.inference.fakes import ALPHABET, ask, lenient, loaded, random_drafter, reply_end, with_beams
from tests.inference.families import TREES, VOCABULARY, network_of
from tests.inference.plain_replies import plain
from tests.inference.training.short_runs import short_evaluation

# mode, bits, group
KINDS = [("affine", bits, 64) for bits in (2, 3, 4, 5, 6, 8)]
KINDS += [("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]
SIZE = len(ALPHABET)


@cache
def quantised(mode: str, bits: int, group: int, tied: bool) -> LoadedModel:
    module, options = TREES["llama"]
    network = network_of(module, {**options, "vocab_size": SIZE, "tie_word_embeddings": tied})
    if bits:
        nn.quantize(network, group, bits, mode=mode)
    return loaded(network)


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize(("mode", "bits", "group"), [("floats", 0, 0), *KINDS])
def test_rows_of_the_tables_are_those_of_the_network(mode: str, bits: int, group: int, tied: bool) -> None:
    network = quantised(mode, bits, group, tied).network
    tables = TargetEmbeddings(network, SIZE)
    ids = mx.array([3, 1, 30])
    assert tables.dtype == mx.float32  # as the network's norms, though some modes are unpacked as bfloat16
    assert tables.embed(ids).dtype == tables.output_rows(ids).dtype == mx.float32
    features = mx.random.normal((2, tables.width))
    logits = network.model.embed_tokens.as_linear(features) if tied else network.lm_head(features)
    wanted = np.array(logits)[:, np.array(ids)]
    assert np.abs(np.array(tables.output_for(ids)(features)) - wanted).max() < 1e-4
    assert np.abs(np.array(features @ tables.output_rows(ids).T) - wanted).max() < 1e-4
    assert np.array_equal(np.array(tables.embed(ids)), np.array(network.model.embed_tokens(ids).astype(mx.float32)))


@pytest.mark.parametrize(
    ("mode", "bits", "group", "tied"),
    share(
        [*((*kind, number % 2 == 0) for number, kind in enumerate(KINDS)), *((*kind, False) for kind in KINDS[-3::2])],
        12,
    ),
)
@pytest.mark.across_rows
def test_a_drafter_is_bound_drafts_and_is_verified(mode: str, bits: int, group: int, tied: bool) -> None:
    """mxfp4, mxfp8 and nvfp4 have no biases, which raised a TypeError."""
    model = quantised(mode, bits, group, tied)
    assert model.capability.kind is DraftKind.TREE
    drafter = random_drafter(model, hidden_size=64)
    request = ask(temperature=0.7, max_tokens=12)
    prompt = model.encode_chat(request.messages)
    drafts = drafter.drafter(prompt, with_beams(request, BeamShape(3, 4), True))
    end = reply_end(ReplyIterator(ReplyJob.fresh(model, prompt, request), drafts))
    assert end.statistics.verified_nodes > end.statistics.rounds > 0
    assert end.token_ids == plain(model, request).token_ids


@pytest.fixture
def quick() -> Iterator[None]:
    with short_evaluation():
        yield


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "bits", "group"), [("affine", 4, 64), KINDS[-1]])
def test_a_drafter_is_trained(mode: str, bits: int, group: int, quick: None, tmp_path: Path) -> None:
    model = lenient(quantised(mode, bits, group, tied=True))
    recipe = Recipe(epochs=1, batch=64, warm_up=5, vocabulary=32)
    settings = TrainingSettings(tmp_path / "out", tokens=1000, sequences=16, recipe=recipe)
    list(DrafterTraining(model, make_plan(model, settings, resume=False)).train())
    assert load_drafter(tmp_path / "out", model).vocabulary.shape[0] <= 32


def test_the_layers_embeddings_of_gemma_are_not_taken_for_the_models() -> None:
    """`embed_tokens_per_layer` of Gemma 3n, and of Gemma 4 E2B and E4B, has a row for each token too."""
    network = network_of(*TREES["gemma3n"])
    assert TargetEmbeddings(network, VOCABULARY).width == 64
