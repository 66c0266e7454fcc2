"""Nothing that decoding computes is missing in Metal: every mode's graphs are held against what it lacks."""

from collections.abc import Callable
from dataclasses import replace
from itertools import cycle, product
from pathlib import Path
from unittest.mock import patch

import pytest

from rdchat.inference.api import BeamShape, GenerationRequest, Mode
from rdchat.inference.auto.auto_drafter import AvailableDrafters
from rdchat.inference.decoding import reductions
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.head import Head
from rdchat.inference.drafting.lookup import LookupDrafter
from rdchat.inference.verification.capability import check_capability
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.auto.automatic_replies import RandomPlanner, iterator_of, state_of
from tests.inference.drafting.draft_pairs import TREE, Pair, near
from tests.inference.drafting.heads.assistant_targets import assistant_folder, shared_gemma
from tests.inference.drafting.heads.block_drafters import KINDS as BLOCKS, stored_block
from tests.inference.drafting.heads.eagle3_drafters import bound
from tests.inference.drafting.heads.mtp_targets import CASES, golden_folder, golden_target
from tests.inference.fakes import (
    ALPHABET,
    ask,
    job_of,
    loaded,
    random_drafter,
    reply_end,
    shared_family,
    tiny_llama,
    with_beams,
)
from tests.inference.families import CHAINS, TREES, network_of
from tests.inference.graphs import Node, noted_graphs

SAMPLINGS = {
    "greedy": {"temperature": 0},
    "top-p": {"temperature": 0.7, "top_p": 0.9},
    "all filters": {"temperature": 1.2, "top_p": 0.9, "top_k": 8, "min_p": 0.02, "presence_penalty": 0.2},
}
# On the CPU everywhere: MLX cannot export the kernels of its own that some models bring for Metal.
pytestmark = pytest.mark.across_rows

TOKENS = 6  # the automatic mode begins with plain steps
AUTO_TOKENS = 30
Begin = Callable[[LoadedModel, GenerationRequest], ReplyIterator]


def _plain(model: LoadedModel, request: GenerationRequest) -> ReplyIterator:
    return ReplyIterator(job_of(model, request))


def _lookup(model: LoadedModel, request: GenerationRequest) -> ReplyIterator:
    job = job_of(model, request)
    return ReplyIterator(job, LookupDrafter(job.prompt, 4, job.ledger))


def _draft_model(model: LoadedModel, request: GenerationRequest) -> ReplyIterator:
    return Pair.of(model, near(model)).start(request, TREE)


def _head(make: Callable[[LoadedModel], Head]) -> Begin:
    def begin(model: LoadedModel, request: GenerationRequest) -> ReplyIterator:
        job = job_of(model, request)
        shaped = with_beams(request, BeamShape(3, 4))
        return ReplyIterator(job, HeadModel(model, make(model)).drafter(job.prompt, shaped, job.ledger))

    return begin


def _automatic(model: LoadedModel, request: GenerationRequest) -> ReplyIterator:
    state = state_of(
        model, AvailableDrafters(random_drafter(model), None, DraftModel(model, near(model), len(ALPHABET)))
    )
    state.planner = RandomPlanner(state.costs, (Mode.LOOKUP, Mode.DRAFTER, Mode.SPECULATIVE), 1)
    return iterator_of(state, request)


MODES: dict[str, tuple[Mode, Begin]] = {
    "plain": (Mode.OFF, _plain),
    "lookup": (Mode.LOOKUP, _lookup),
    "draft model": (Mode.SPECULATIVE, _draft_model),
    "recurrent": (Mode.DRAFTER, _head(lambda model: random_drafter(model).head)),
    "EAGLE-3": (Mode.DRAFTER, _head(bound)),
    **{
        f"block, {kind.get('markov', 'none')}": (
            Mode.DRAFTER,
            _head(lambda model, kind=kind: stored_block(model, **kind).bind(model)),
        )
        for kind in BLOCKS
    },
    "automatic": (Mode.AUTO, _automatic),
}


def _check(found: list[Node]) -> None:
    assert {node.lacking for node in found} <= {""}


def test_every_mode_is_looked_at() -> None:
    assert {mode for mode, _ in MODES.values()} == set(Mode)


@pytest.mark.parametrize(
    ("mode", "sampling"),
    share([*zip(MODES, cycle(SAMPLINGS), strict=False), *product(["plain"], [*SAMPLINGS][1:])], 30),
)
def test_metal_has_all_that_a_reply_computes(mode: str, sampling: str) -> None:
    """With the reductions for a GPU, and with a trace."""
    model = tiny_llama()
    model.tokenizer.eos_token_ids = frozenset()
    tokens = AUTO_TOKENS if mode == "automatic" else TOKENS
    request = ask("abcabcabc", seed=5, max_tokens=tokens, **SAMPLINGS[sampling])
    request = replace(request, draft=replace(request.draft, trace=True))
    with patch.object(reductions, "on_gpu", lambda: True), noted_graphs() as found:
        end = reply_end(MODES[mode][1](model, request))
    assert len(end.token_ids) == tokens
    assert end.statistics.rounds > 0 or mode == "plain"
    assert "Matmul" in {node.name for node in found}
    _check(found)


def _check_drafter(model: LoadedModel, folder: Path) -> None:
    drafters = HeadModel(model, load_drafter(folder, model))
    job = job_of(model, ask(max_tokens=8, seed=2))
    drafter = drafters.drafter(job.prompt, with_beams(job.request, BeamShape(3, 4), False))
    with patch.object(reductions, "on_gpu", lambda: True), noted_graphs() as found:
        end = reply_end(ReplyIterator(job, drafter))
    assert end.statistics.drafted > 0
    _check(found)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_metal_has_all_that_mtp_layers_compute(case: str) -> None:
    """In trees, or in chains where the target keeps recurrent state."""
    _check_drafter(golden_target(case), golden_folder(case))


@pytest.mark.slow
@pytest.mark.parametrize("clusters", [0, 31])
def test_metal_has_all_that_gemmas_assistant_computes(clusters: int, tmp_path: Path) -> None:
    _check_drafter(shared_gemma(), assistant_folder(tmp_path, clusters=clusters))


@pytest.mark.slow
@pytest.mark.parametrize("name", share([*TREES, *CHAINS], 32))
def test_metal_has_all_that_a_family_computes_in_drafts(name: str) -> None:
    """One after the other, in chains and in trees."""
    model = shared_family(name)
    with noted_graphs() as found:
        check_capability(model.network, model.hooks, len(ALPHABET))
    assert "Matmul" in {node.name for node in found}
    _check(found)


@pytest.mark.parametrize("dtype", ["bfloat16", "4bit"])
def test_metal_has_all_that_other_precisions_compute(dtype: str) -> None:
    module, options = TREES["qwen3"]
    model = loaded(network_of(module, {**options, "vocab_size": len(ALPHABET)}, dtype))
    with noted_graphs() as found:
        list(_lookup(model, ask("abcabcabc", max_tokens=8)))
    assert ("QuantizedMatmul" in {node.name for node in found}) == (dtype == "4bit")
    _check(found)
