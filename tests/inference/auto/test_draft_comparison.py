"""When a draft is compared with the text: as soon as that has left it, or gone as far as it reaches."""

from collections.abc import Sequence
from typing import override

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.auto.estimates.acceptance_estimates import DraftValues, NodeRates
from rdchat.inference.auto.estimates.draft_comparison import DraftComparison
from rdchat.inference.drafting.beam_search import DevicePool
from rdchat.inference.drafting.node_pool import HostPool

PROMPT = [1, 2, 3]
CHAIN = [10, 11, 12]  # tokens of the drafts


class Noted(NodeRates):
    """Notes which text followed each draft."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[list[int]] = []

    @override
    def learn(self, drawn: HostPool, text: Sequence[int]) -> None:
        self.texts.append(list(text))
        super().learn(drawn, text)


def pool(tokens: list[int]) -> DevicePool:
    scores = -0.1 * np.arange(1 + len(tokens))
    return DevicePool(mx.array([0, *tokens]), mx.arange(-1, len(tokens)), mx.array(scores), levels=len(tokens), width=1)


def looks(text: list[int], offered: bool, drafts: tuple[list[int], ...] = (CHAIN,)) -> list[int]:
    """Add drafts below the prompt, one token after the other; return what was learnt from after each."""
    nodes, learnt = Noted(), []
    comparison = DraftComparison(nodes, DraftValues())
    for length in range(len(text) + 1):
        if length < len(drafts):
            comparison.add(len(PROMPT) + length, pool(drafts[length]), offered)
        comparison.look([*PROMPT, *text[:length]])
        learnt.append(len(nodes.texts))
        assert comparison.waiting == min(1 + length, len(drafts)) - len(nodes.texts)
    return learnt


@pytest.mark.parametrize("offered", [True, False])
def test_a_draft_that_the_text_follows_is_learnt_from_at_its_end(offered: bool) -> None:
    assert looks([*CHAIN, 13], offered) == [0, 0, 0, 1, 1]


def test_a_draft_that_the_text_leaves_is_learnt_from_at_once() -> None:
    """At temperature 2 three rounds went on believing what was known of greedy text, until the first had passed."""
    assert looks([99, 99, 99], offered=True) == [0, 1, 1, 1]
    assert looks([10, 99, 99], offered=True) == [0, 0, 1, 1]


def test_an_off_path_draft_is_not_waited_for() -> None:
    """The device works on it behind the call for the next token."""
    assert looks([99, 99, 99], offered=False) == [0, 0, 1, 1]


def test_a_later_draft_need_not_wait_for_an_earlier_one() -> None:
    assert looks([10, 11, 12, 13], True, (CHAIN, [99, 12])) == [0, 0, 1, 2, 2]


@pytest.mark.parametrize("offered", [True, False])
def test_a_draft_in_which_the_reply_ends_tells_as_much_as_came(offered: bool) -> None:
    """Of short replies only drafts that failed were learnt from: nine of ten that were right looked like none."""
    nodes = Noted()
    comparison = DraftComparison(nodes, DraftValues())
    comparison.add(3, pool(CHAIN), offered)
    comparison.look([*PROMPT, *CHAIN[:2]])
    assert not nodes.texts
    comparison.look([*PROMPT, *CHAIN[:2]], ended=True)
    assert nodes.texts == [CHAIN[:2]]
    assert not comparison.waiting
