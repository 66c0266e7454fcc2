"""What a draft step offers: its candidates in the reply's own order, and the tree that they form."""

import mlx.core as mx
import numpy as np
import pytest

from rdchat.errors import InvalidSettingError
from rdchat.inference.api import SamplingParams
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.draft_model import CandidateRanker, pack
from rdchat.inference.drafting.draft_shape import DraftShape
from tests.grids import share
from tests.inference.drafting.draft_pairs import FILTERS


@pytest.mark.parametrize("sampling", share(FILTERS, 3), ids=str)
@pytest.mark.parametrize("temperature", [0, 0.7, 1.3])
def test_the_first_candidate_is_what_the_target_would_choose(temperature: float, sampling: dict[str, float]) -> None:
    params = SamplingParams(temperature=temperature, **({"top_p": 1.0} | sampling))
    chooser = TokenChooser(params, 9, 500)
    ranker = CandidateRanker(params, 9, 500)
    mx.random.seed(4)
    for position in range(40):
        logits = 3 * mx.random.normal((1, 500))
        seen = chooser.seen([*range(0, 500, 3)])
        seen = None if seen is None else chooser.with_tokens(seen, mx.array([*range(0, 500, 2)]))
        expected = chooser.choose(logits, [position], seen).item()
        ranked = np.array(ranker.rank(logits, position, 3, seen)[0]).tolist()
        assert ranked[0] == expected
        assert len(set(ranked)) == 3


def test_runner_ups_are_the_next_choices_were_the_first_not_there() -> None:
    params = SamplingParams(temperature=0.8, top_p=1.0)
    ranker = CandidateRanker(params, 3, 100)
    chooser = TokenChooser(params, 3, 100)
    mx.random.seed(1)
    logits = mx.random.normal((1, 100))
    for token in np.array(ranker.rank(logits, 7, 4)[0]).tolist():
        assert token == chooser.choose(logits, [7]).item()
        logits[0, token] = -1e9


def test_a_shape_of_a_size_spends_its_nodes_on_the_most_likely_runner_ups() -> None:
    assert DraftShape.of_size(4, 5) == DraftShape(4, (0, 0, 0, 0))
    assert DraftShape.of_size(4, 3).draft_tokens == 4  # the chain is never shortened
    for nodes in range(6, 20):
        shape = DraftShape.of_size(4, nodes)
        assert sum(shape.runner_ups) == nodes - 5
        assert list(shape.runner_ups) == sorted(shape.runner_ups, reverse=True)


def test_a_packed_draft_hangs_runner_ups_beside_their_step() -> None:
    packed = pack(9, [mx.array([1, 2]), mx.array([3]), mx.array([4, 5, 6])])
    assert np.array(packed.tokens).tolist() == [9, 1, 3, 4, 2, 5, 6]
    assert np.array(packed.parents).tolist() == [-1, 0, 1, 2, 0, 2, 2]
    assert np.array(packed.depths).tolist() == [0, 1, 2, 3, 1, 3, 3]
    assert packed.ancestors is not None
    assert np.array(packed.ancestors)[5].tolist() == [True, True, True, False, False, True, False]


@pytest.mark.parametrize("draft_tokens", [0, -1, 65])
def test_a_depth_out_of_range_is_refused(draft_tokens: int) -> None:
    with pytest.raises(InvalidSettingError, match=r"draft-tokens .* from 1 to 64"):
        DraftShape(draft_tokens)
