"""EAGLE-3 in the loop: the same text as plain decoding, and drafts that are right where the drafter knows the text."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import BeamShape
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.head import Root
from tests.grids import share
from tests.inference.drafting.checkpoints.eagle3_folders import eagle3_folder
from tests.inference.drafting.heads.eagle3_heads import CHAIN, TREE, bound
from tests.inference.fakes import ask, chains_only, shared_family, shared_llama
from tests.inference.plain_replies import drafted_by_beams, plain

pytestmark = pytest.mark.across_rows


TEXTS = [
    ("safeailab", 0, TREE), ("safeailab", 1.3, CHAIN), ("speculators", 0.7, TREE), ("speculators", 0, CHAIN),
    ("deepspec", 1.3, TREE), ("deepspec", 0.7, CHAIN),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "temperature", "shape"), share(TEXTS))
def test_the_text_is_that_of_plain_decoding(layout: str, temperature: float, shape: BeamShape, tmp_path: Path) -> None:
    model = shared_llama()
    drafters = HeadModel(model, load_drafter(eagle3_folder(tmp_path, model, layout), model))
    request = ask(temperature=temperature, max_tokens=16, seed=2)
    for _ in range(2):  # the second time with what the memory holds of the first
        end = drafted_by_beams(drafters, model, request, shape)
        assert end.token_ids == plain(model, request).token_ids
        assert end.statistics.host_syncs == end.statistics.rounds, "one a round"
        assert end.statistics.drafted > 0


FAMILIES = [
    ("qwen3", "float32", 0), ("gpt_oss", "4bit", 0.7), ("gemma3", "float32", 1.3), ("llama with yarn rope", "4bit", 0),
    ("lfm2", "float32", 0.7), ("qwen3_next", "4bit", 1.3),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("family", "dtype", "temperature"), share(FAMILIES, 6))
def test_families_are_drafted_for(
    family: str, dtype: str, temperature: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As trees, or as chains where the target keeps recurrent state; with weights of 4 bits where the target's are."""
    model = shared_family(family, dtype)
    monkeypatch.setattr("rdchat.inference.drafting.heads.head.on_gpu", lambda: dtype == "4bit")
    head = load_drafter(eagle3_folder(tmp_path, model, "speculators"), model)
    request = ask(temperature=temperature, max_tokens=16)
    end = drafted_by_beams(HeadModel(model, head), model, request, TREE)
    assert end.token_ids == plain(model, request).token_ids
    assert end.statistics.drafted > 0


@pytest.mark.slow
def test_a_target_that_takes_chains_only_gets_chains(tmp_path: Path) -> None:
    model = shared_llama()
    chains = chains_only(model)
    request = ask(temperature=0, max_tokens=30)
    end = drafted_by_beams(
        HeadModel(chains, load_drafter(eagle3_folder(tmp_path, model), model)), chains, request, TREE
    )
    assert end.token_ids == plain(model, request).token_ids
    assert end.statistics.verified_nodes == end.statistics.rounds + end.statistics.drafted


@pytest.mark.parametrize("shape", [TREE, CHAIN], ids=["tree", "chain"])
def test_a_drafter_that_was_fitted_to_a_reply_drafts_all_of_it(shape: BeamShape) -> None:
    """Its output rows are fitted to what it makes of the text: other features, tokens or places would draft wrong."""
    model = shared_llama()
    request = ask(temperature=0, max_tokens=13)
    prompt = model.encode_chat(request.messages, continue_last=False)
    text = [*prompt, *plain(model, request).token_ids]
    head = bound(model, hidden_size=128, own_embeddings=True, draft_vocabulary_size=31)
    model.hooks.record_states(head.reads)
    model.network(mx.array([text]))
    features = model.hooks.hidden[0]
    outputs = []
    wanted = []
    for place in range(len(prompt), len(text) - 1):
        memory = head.memory()
        memory.begin_reply(text[:place])
        memory.take_committed(text[:place], features[:place], 0)
        state = memory.root_state(Root(text[place], place, features[place - 1]))
        for token in text[place + 1 : place + 5]:
            outputs.append(np.array(head.network.norm(state.output[0])))
            wanted.append(20.0 * np.eye(31)[token])
            state = state.after(mx.array([0]), mx.array([token]))
    rows = np.linalg.lstsq(np.stack(outputs), np.stack(wanted), rcond=None)[0].T
    head.network.lm_head.weight = mx.array(rows.astype(np.float32))
    end = drafted_by_beams(HeadModel(model, head), model, request, shape)
    assert end.token_ids == plain(model, request).token_ids
    assert (end.statistics.rounds, end.statistics.accepted) == (3, 9), "12 tokens, 5 a round"
