"""Prompt lookup: what followed the same ending before, and how likely it comes again."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as some

from rdchat.inference.api import (
    EARLIER_REPLIES,
    DraftSettings,
    GenerationEvent,
    GenerationRequest,
    LookupMatch,
    Mode,
    NodeSource,
    TokenEvent,
)
from rdchat.inference.auto.auto_drafter import AutoDrafter, AvailableDrafters
from rdchat.inference.decoding.draft import Drafter
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.lookup import LookupDrafter
from rdchat.inference.drafting.lookup_index import (
    DEEPEST,
    LONGEST_MATCH,
    LookupEstimate,
    LookupIndex,
    LookupTree,
    NgramModel,
    Occurrences,
)
from rdchat.inference.drafting.ngram_table import NgramTable, count_ngrams, write_table
from rdchat.inference.drafting.reply_index import BUILT_TOKENS, MAX_TOKENS, ReplyIndex
from rdchat.inference.verification.target import LoadedModel
from tests.grids import share
from tests.inference.auto.automatic_replies import RandomPlanner, state_of
from tests.inference.fakes import ALPHABET, ask, random_drafter, reply_end, shared_llama
from tests.inference.plain_replies import plain


def places_of(tokens: list[int], ending: list[int]) -> dict[int, int]:
    """Return every place in a text, by comparing all of it, where at least the last token of an ending stood."""
    found = {}
    for place in range(1, len(tokens)):
        agree = [tokens[place - 1 - n] == ending[-1 - n] for n in range(min(place, len(ending), LONGEST_MATCH))]
        if match := [*agree, False].index(False):
            found[place] = match
    return found


@pytest.mark.parametrize("seed", range(20))
def test_places_are_those_that_a_plain_search_finds_whenever_it_is_asked(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 3 + seed % 4, size=80).tolist()
    text = Occurrences(tokens[:3])
    held = 3
    while held < len(tokens):
        added = int(rng.integers(1, 7))
        text.tokens += tokens[held : held + added]
        held += added
        if rng.random() < 0.6:
            everything = places_of(tokens[:held], tokens[:held])
            assert dict(text.positions(tokens[:held], limit=1000)) == everything
            few = dict(text.positions(tokens[:held], limit=4))
            assert few.items() <= everything.items()
            assert len(few) == min(4, len(everything))
            if long := [place for place, match in everything.items() if match >= 6]:
                assert set(few) >= set(sorted(long)[-4:]), "the longest and newest"


def test_a_text_without_repeats_has_no_draft() -> None:
    for tokens in ([], [1], [1, 2, 3]):
        assert LookupIndex(tokens).draft_tree(4) == LookupTree()


def test_what_followed_is_copied_and_a_loop_goes_on() -> None:
    tree = LookupIndex([5, 6, 7, 5, 6, 7, 5]).draft_tree(6, chain=True)
    assert tree.tokens == [6, 7, 5, 6, 7, 5]
    assert tree.parents == [0, 1, 2, 3, 4, 5]
    assert tree.depths == [1, 2, 3, 4, 5, 6]
    assert len(LookupIndex([5] * 50).draft_tree(100).tokens) == DEEPEST
    assert LookupIndex([5, 6, 7, 5, 6, 7, 5]).draft_tree(6, deepest=2).tokens == [6, 7]


@pytest.mark.parametrize("seed", range(20))
def test_a_draft_is_a_tree_whose_chances_fall(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tokens = rng.integers(0, 3 + seed, size=100).tolist()
    tree = LookupIndex(tokens).draft_tree(24, min_chance=0.01)
    assert 0 < len(tree.tokens) <= 24
    assert len(set(zip(tree.parents, tree.tokens, strict=True))) == len(tree.tokens), "no two nodes are the same"
    assert all(first >= second for first, second in pairwise(tree.chances))
    depths = [0]
    children = dict[int, float]()
    for node, (parent, depth, chance) in enumerate(zip(tree.parents, tree.depths, tree.chances, strict=True), start=1):
        assert parent < node
        assert depth == depths[parent] + 1
        depths.append(depth)
        children[parent] = children.get(parent, 0.0) + chance
    assert all(total < (tree.chances[node - 1] if node else 1.0) for node, total in children.items())
    assert tree.cut(5) == LookupIndex(tokens).draft_tree(5, min_chance=0.01)
    likely = LookupIndex(tokens).draft_tree(24, min_chance=0.2)
    assert likely == tree.cut(sum(chance >= 0.2 for chance in tree.chances))


def test_places_that_agree_raise_a_chance_and_others_lower_it() -> None:
    def first(*texts: list[int]) -> float:
        return LookupIndex([token for text in texts for token in text]).draft_tree(1).chances[0]

    once = first([1, 2, 3], [8], [1, 2])
    assert once == pytest.approx(LookupEstimate().odds()[0][2] / (1 + LookupEstimate().odds()[0][2]))
    assert first([1, 2, 3], [9], [1, 2, 3], [8], [1, 2]) > once
    assert first([1, 2, 4], [9], [1, 2, 3], [8], [1, 2]) < once


@pytest.mark.parametrize("trees", [True, False])
def test_a_target_that_takes_chains_gets_chains(trees: bool) -> None:
    drafter = LookupDrafter([1, 2, 4, 9, 1, 2, 3, 8, 1], 4, trees=trees)
    assert drafter.propose(2, 6).tree.fetch().is_chain is not trees


def test_a_longer_match_outvotes_a_shorter_one() -> None:
    tree = LookupIndex([5, 1, 2, 3, 4, 9, 6, 4, 7, 8, 1, 2, 3, 4]).draft_tree(20)
    beside = [token for token, parent in zip(tree.tokens, tree.parents, strict=True) if parent == 0]
    assert beside == [9, 7], "7 followed the last 4"


def test_what_came_is_learnt_for_matches_of_that_length() -> None:
    estimate = LookupEstimate()
    before = estimate.odds()[0]
    text = [0, 1, 2]
    index = LookupIndex(text, estimate)
    for new in range(3, 200):  # the ending 1 2 never goes on as before
        index.draft_tree(1)
        index.extend([new, 1, 2])
    after = estimate.odds()[0]
    assert after[2] < before[2] / 2
    assert after[8] == before[8]
    assert estimate.odds()[1] == LookupEstimate().odds()[1], "nothing was learnt of earlier replies"


class Earlier:
    """An earlier reply in which one ending stood."""

    def __init__(self, ending: list[int], following: list[int]) -> None:
        self._ending = ending
        self._following = following

    @property
    def memory_bytes(self) -> int:
        return 1

    def matches(self, ending: Sequence[int]) -> list[LookupMatch]:
        ending = list(ending)
        known = ending[-len(self._ending) :] == self._ending
        return [LookupMatch(len(self._ending), self._following, True)] if known else []


def test_earlier_replies_vote_and_are_named() -> None:
    earlier = Earlier([4, 5, 6], [7, 8])
    tree = LookupIndex([1, 4, 5, 6], earlier=earlier).draft_tree(4)
    assert (tree.tokens, tree.sources) == ([7, 8], [NodeSource.REPLIES] * 2)
    both = LookupIndex([4, 5, 6, 7, 4, 5, 6], earlier=earlier).draft_tree(2)
    assert both.tokens[0] == 7
    assert both.sources[0] is NodeSource.CHAT, "the chat speaks for it at least as much"
    assert both.chances[0] > LookupIndex([4, 5, 6, 7, 4, 5, 6]).draft_tree(1).chances[0]


def test_what_comes_after_the_first_token_keeps_its_chance() -> None:
    tree = LookupIndex([1, 2, 3, 4, 9, 1, 2, 3, 5, 8, 1, 2]).draft_tree(6)
    below = tree.first_subtree()
    assert tree.tokens[0] == 3
    assert {tuple(below.tokens[:2])} <= {(4, 5), (5, 4)}
    assert below.parents[:2] == [0, 0]
    assert below.depths[:2] == [1, 1]
    assert below.chances[0] < tree.chances[0]
    assert LookupTree().first_subtree() == LookupTree()


def test_a_tree_is_numbered_depth_first_and_likelier_siblings_stay_first() -> None:
    sources = [NodeSource.CHAT] * 5
    tree = LookupTree([7, 8, 9, 6, 5], [0, 0, 2, 1, 3], [1, 1, 2, 2, 3], [0.5, 0.4, 0.3, 0.2, 0.1], sources)
    assert tree.depth_first() == LookupTree(
        [7, 6, 8, 9, 5], [0, 1, 0, 3, 4], [1, 2, 1, 2, 3], [0.5, 0.2, 0.4, 0.3, 0.1], sources
    )


def ngrams_of(folder: Path, *texts: list[int]) -> NgramTable:
    write_table(folder / "n-grams", count_ngrams([(text, 0) for text in texts]))
    return NgramTable(folder / "n-grams")


def test_ngrams_draft_where_nothing_in_the_chat_repeats(tmp_path: Path) -> None:
    index = LookupIndex([90, 1], ngrams=NgramModel(ngrams_of(tmp_path, *[[1, 2, 3, 4]] * 3)))
    tree = index.draft_tree(3)
    assert (tree.tokens, tree.parents) == ([2, 3, 4], [0, 1, 2])
    assert tree.sources == [NodeSource.NGRAMS] * 3


def test_ngrams_and_matches_vote_together(tmp_path: Path) -> None:
    table = ngrams_of(tmp_path, *[[1, 2]] * 3, *[[1, 3]] * 2)
    text = [1, 3, 9, 1]
    alone = dict(zip((tree := LookupIndex(text).draft_tree(2)).tokens, tree.chances, strict=True))
    tree = LookupIndex(text, ngrams=NgramModel(table)).draft_tree(2, deepest=1)
    both = dict(zip(tree.tokens, tree.chances, strict=True))
    assert both[3] > alone[3]
    assert 0 < both[2] < both[3]
    assert sum(both.values()) <= 1


@settings(max_examples=50)
@given(some.lists(some.integers(0, 4), min_size=1, max_size=40), some.lists(some.integers(0, 4), max_size=12))
def test_chances_of_a_tree_are_shares_of_the_parents(
    tmp_path_factory: pytest.TempPathFactory, text: list[int], answer: list[int]
) -> None:
    table = ngrams_of(tmp_path_factory.mktemp("table"), *[answer] * 2, answer[::-1])
    index = LookupIndex(text, ngrams=NgramModel(table, 0.7, lambda position, token: float((position + token) % 3)))
    for token in answer:
        index.extend([token])
    tree = index.draft_tree(20)
    below = [0.0] * (1 + len(tree.tokens))
    for parent, chance in zip(tree.parents, tree.chances, strict=True):
        below[parent] += chance
    assert all(total <= chance + 1e-6 for total, chance in zip(below, [1.0, *tree.chances], strict=True))
    assert len(set(zip(tree.parents, tree.tokens, strict=True))) == len(tree.tokens)


@pytest.mark.parametrize("came", [True, False])
def test_what_came_changes_the_chances_of_ngrams(tmp_path: Path, came: bool) -> None:
    table = ngrams_of(tmp_path, *[[1, 2]] * 2, [1, 3])
    of_texts = LookupEstimate().ngrams
    ngrams = NgramModel(table)
    before = ngrams.chances([1], 1, of_texts)
    for _ in range(20):
        ngrams.learn([1], 1, 2 if came else 7, of_texts)
    after = ngrams.chances([1], 1, of_texts)
    in_another_text = NgramModel(table).chances([1], 1, of_texts)
    assert (after[2] > in_another_text[2] > before[2]) if came else (after[2] < in_another_text[2] < before[2])
    assert sum(after.values()) <= 1 + 1e-9


def test_noise_decides_between_ngrams_where_replies_are_sampled(tmp_path: Path) -> None:
    table = ngrams_of(tmp_path, *[[1, 2]] * 3, *[[1, 3]] * 2)
    for drawn in (2, 3):
        noise = {2: 0.0, 3: 0.0} | {drawn: 2.0}
        ngrams = NgramModel(table, 0.9, lambda _position, token, noise=noise: noise[token])
        assert LookupIndex([1], ngrams=ngrams).draft_tree(1).tokens == [drawn]


def index_of(*replies: list[int]) -> ReplyIndex:
    return ReplyIndex(dict(enumerate(replies)))


def found(index: ReplyIndex, ending: list[int]) -> list[tuple[int, list[int]]]:
    return [(match.length, list(match.following)) for match in index.matches(ending)]


def all_places(replies: list[list[int]], ending: list[int]) -> list[tuple[int, list[int]]]:
    """Return what `matches` may return, by comparing every position of every reply."""
    places = ((reply, places_of(reply, ending)) for reply in replies)
    return [(match, reply[end : end + DEEPEST]) for reply, found in places for end, match in found.items()]


@pytest.mark.parametrize("seed", range(10))
def test_what_is_found_follows_the_same_tokens(seed: int) -> None:
    rng = np.random.default_rng(seed)
    symbols = 2 + seed
    replies = [rng.integers(0, symbols, size=int(rng.integers(1, 40))).tolist() for _ in range(30)]
    replies[3] = []
    index = index_of(*replies)
    for length in (1, 2, 5, 12, 60):
        ending = rng.integers(0, symbols + 1, size=length).tolist()
        places = found(index, ending)
        every = all_places(replies, ending)
        longest = max((match for match, _ in every), default=0)
        assert all(place in every for place in places)
        assert len(places) <= 12
        assert bool(places) == bool(every)
        assert all(match.earlier for match in index.matches(ending))
        if longest <= 6:
            assert max((match for match, _ in places), default=0) >= min(longest, 2)


def test_a_later_reply_is_found_too() -> None:
    index = index_of([1, 2, 3])
    index.add_reply(7, [8, 9, 10])
    index.add_reply(8, [11])
    assert found(index, [8, 9]) == [(2, [10])]
    assert found(index, [10]) == [], "the next reply does not follow"
    assert index.messages == {0, 7, 8}


def test_a_later_reply_for_which_there_is_no_room_is_left_out() -> None:
    index = index_of([1, 2, 3])
    index.add_reply(7, [8] * MAX_TOKENS)
    assert (index.messages, found(index, [8])) == ({0}, [])


@pytest.mark.slow
def test_the_newest_replies_are_kept_up_to_the_limit() -> None:
    index = index_of([1, 2, 3], [4] * BUILT_TOKENS, [7, 8, 9])
    assert found(index, [1, 2]) == [(2, [3])]
    assert found(index, [4])
    assert found(index, [7]) == []
    assert (index.messages, index.tokens) == ({0, 1}, BUILT_TOKENS)


WAYS = ("lookup", "head", "auto", "auto with a draft model")
SEED = 5


def events_of(way: str, model: LoadedModel, request: GenerationRequest, index: ReplyIndex) -> list[GenerationEvent]:
    job = ReplyJob.fresh(model, model.encode_chat(request.messages), replace(request, earlier=index))
    drafter: Drafter
    if way == "lookup":
        drafter = LookupDrafter(job.prompt, 4, trees=True, earlier=index)
    elif way == "head":
        drafter = random_drafter(model).drafter(job.prompt, request, earlier=index)
    else:
        small = DraftModel(model, shared_llama(seed=3), len(ALPHABET)) if "model" in way else None
        state = state_of(model, AvailableDrafters(None if small else random_drafter(model), None, small))
        modes = (Mode.LOOKUP, Mode.SPECULATIVE if small else Mode.DRAFTER)
        state.planner = RandomPlanner(state.costs, modes, SEED)
        drafter = AutoDrafter(state, job)
    return list(ReplyIterator(job, drafter))


def index_with(*replies: Sequence[int]) -> ReplyIndex:
    return ReplyIndex(dict(enumerate([*replies, range(len(ALPHABET)), [3, 1, 4, 1, 5, 9] * 4])))


@pytest.mark.slow
@pytest.mark.across_rows
@pytest.mark.parametrize(("way", "temperature"), share(product(WAYS, [0.0, 0.9]), 9))
def test_the_text_is_that_of_plain_decoding(way: str, temperature: float) -> None:
    model = shared_llama()
    draft = DraftSettings(Mode.DRAFTER, beam_width=3, beam_length=4, trace=True)
    request = replace(ask("what is it", seed=SEED, max_tokens=60, temperature=temperature), draft=draft)
    expected = plain(model, request)
    index = index_with(expected.token_ids)  # the same reply: it is drafted whole
    events = events_of(way, model, request, index)
    end = reply_end(events)
    assert (end.token_ids, end.text) == (expected.token_ids, expected.text)
    drafters = {event.drafter for event in events if isinstance(event, TokenEvent)}
    assert EARLIER_REPLIES in drafters
    assert end.statistics.from_replies > 0
    assert end.statistics.from_chat + end.statistics.from_replies <= end.statistics.accepted


def test_a_reply_in_the_index_is_drafted_whole() -> None:
    model = shared_llama()
    request = ask("what is it", seed=SEED, max_tokens=60, temperature=0.9)
    index = index_with()
    first = reply_end(events_of("lookup", model, request, index))
    index.add_reply(9, first.token_ids)
    second = reply_end(events_of("lookup", model, request, index))
    assert first.token_ids == second.token_ids
    assert second.statistics.target_calls < first.statistics.target_calls / 2
