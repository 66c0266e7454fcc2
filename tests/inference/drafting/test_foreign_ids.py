"""Law: whatever ids a source of drafts gives, the reply is that of plain decoding."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as some

from rdchat.inference.api import DRAFTERS, GenerationRequest, Mode
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.drafting.lookup import LookupDrafter
from rdchat.inference.drafting.lookup_index import NgramModel
from rdchat.inference.drafting.ngram_table import NgramTable, count_ngrams, write_table
from rdchat.inference.drafting.reply_index import ReplyIndex
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.verifier import PackedTree
from tests.inference.fakes import ask, chains_only, reply_end, shared_llama
from tests.inference.plain_replies import drafted, plain
from tests.inference.ready_drafters import ready_session, settings_of

pytestmark = pytest.mark.across_rows

_UNSIGNED = some.lists(some.integers(0, 2**32 - 1) | some.integers(2**31 - 2, 2**31 + 2), min_size=1, max_size=6)
_IDS = some.lists(some.integers(-(2**31), 2**32 - 1) | some.integers(2**31 - 2, 2**31 + 2), min_size=1, max_size=6)
_ANY = settings(
    deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
MODELS = [shared_llama, lambda: chains_only(shared_llama())]
"""A target of trees, and one of chains."""


def request(temperature: float) -> GenerationRequest:
    return ask("abcabc", temperature=temperature, max_tokens=10, repetition_penalty=1.2)


def followed_by(reply: Sequence[int], ids: Sequence[int]) -> list[int]:
    """Return a text in which these ids follow each token of a reply."""
    return [each for token in reply for each in (token, *ids)]


def table_of(path: Path, reply: Sequence[int], ids: Sequence[int]) -> NgramTable:
    """Return a table, with the right checksum, in which these ids follow each token of a reply."""
    write_table(path, count_ngrams([([a, each, b], 0) for a, b in pairwise(reply) for each in ids for _ in range(3)]))
    return NgramTable(path)


@_ANY
@given(_UNSIGNED, _IDS, some.sampled_from([0.0, 0.9]), some.sampled_from(MODELS))
def test_ngrams_earlier_replies_and_the_chat_change_no_text(
    tmp_path: Path, of_ngrams: list[int], ids: list[int], temperature: float, target: object
) -> None:
    """A forged table with ids from 2**31 on ended each reply."""
    model = target()  # type: ignore[operator]
    asked = request(temperature)
    reply = plain(model, asked).token_ids
    earlier = ReplyIndex({1: followed_by(reply, ids)})
    table = table_of(tmp_path / "table", reply, of_ngrams)
    for mode in (*DRAFTERS, Mode.AUTO):
        session = ready_session(model)
        session.drafters.ngrams.for_reply = lambda _: NgramModel(table, temperature)  # type: ignore[method-assign]
        again = replace(asked, earlier=earlier, draft=settings_of(mode))
        assert reply_end(session.generate(again)).token_ids == reply, mode
    looked_up = LookupDrafter(followed_by(reply, ids), 4, trees=True)
    assert reply_end(drafted(model, asked, looked_up)[0]).token_ids == reply


class _Drafts(Drafter):
    """Offers any ids: those of a head's files are checked when it is loaded."""

    name = "drafter"

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids = np.array(ids, np.uint32).astype(np.int32)

    def propose(self, root: int, limit: int) -> Draft:
        ids = self._ids[: max(limit, 0)]
        chain = np.arange(-1, len(ids), dtype=np.int32)
        tokens = np.array([root, *ids], np.int32)
        return Draft(PackedTree.pack(PrefixTree(tokens, chain, chain + 1)))


@_ANY
@given(_UNSIGNED, some.sampled_from([0.0, 0.9]))
def test_a_head_changes_no_text(ids: list[int], temperature: float) -> None:
    model = shared_llama()
    asked = request(temperature)
    assert reply_end(drafted(model, asked, _Drafts(ids))[0]).token_ids == plain(model, asked).token_ids
