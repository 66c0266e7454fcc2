"""Measures the cost of target calls and drafts while the app is idle, in milliseconds, on a cache of its own.

Each measurement is a generator that pauses after one or a few calls, so that a reply can begin, and returns its result.
At each depth (tokens in the cache) it takes about a minute of computing, or twice all calls where that takes longer.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import NamedTuple

import mlx.core as mx
import numpy as np

from rdchat.inference.api import BeamShape, ChatMessage, DraftKind, GenerationRequest, Role, SamplingParams
from rdchat.inference.auto.cost_model import MAX_ROWS, NEAR, PLAIN_STEP, Costs
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.device import fetch
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.head import Root
from rdchat.inference.drafting.heads.mtp_head import BoundMtpHead, Reading
from rdchat.inference.verification import HiddenReads, KVCache, LoadedModel, PackedTree, PrefixTree, Verifier
from rdchat.machine import OtherPrograms

# From these depths on, MLX's attention uses other kernels on Apple's chips.
DEEP = (1024, 4096)
# After 5, 6, 8, 9, 10, 13 and 15 rows Apple's chips may use other kernels for quantised weights: the next tile of 5
# rows begins there, or the chip's limit for the vector kernel lies there.
NEAR_ROWS = (*range(1, 17), 20, 24, 28, MAX_ROWS)
# Fused attention ends after 8 rows, or earlier: after 32 divided by the number of queries that share a key.
DEEP_ROWS = (1, 2, 4, 5, 6, 7, 8, 9, 16, MAX_ROWS)
# Tokens that the context must have left, for a call's rows and for plain steps.
_ROOM = 2 * MAX_ROWS
# Levels below the root of a tree of `MAX_ROWS` nodes in which every node has two children.
_LEVELS = MAX_ROWS.bit_length() - 1
# Lengths of a head's drafts, root included; `CostModel.beams_ms` draws a line through their costs.
_BEAM_LENGTHS = (2, 6)
# Numbers of rows fed to a draft model in one call.
_FED = (1, 4, 16)
# A turn makes each call once. So many undisturbed turns are enough.
_TRIALS = 3
# After so many turns that other programs disturbed, disturbed times are used.
_DISTURBED = 3
# Seconds of computing at one depth.
_MAX_S = 60.0
# Slower plain steps are measured only once in a slice, because a prompt may be waiting; in milliseconds.
_SLOW_MS = 40
# A chunk is some tokens of the cache's text, fed in one call. After one that takes less than this, the next is doubled.
_SHORT_S = 0.05
_LONGEST_CHUNK = 512
# Tokens that a typical round commits.
_COMMITTED = 2
# The timing cache's text, repeated: of random tokens, a call uses nearly all experts of a mixture.
_TEXT = """rain begins with the sun. it warms the sea and the land and some of the water rises as vapour that nobody can
see. warm air is light and so it climbs. high above the ground it cools and cold air holds less water than warm air.
so the vapour settles on tiny grains of dust and salt and becomes small drops. millions of them make a cloud. at first
they are so light that the wind carries them. then they meet each other and join and in cold clouds they freeze and grow
into flakes. when they are too heavy for the air below they fall and what reaches the ground is rain."""
# What a model writes about, at length, to test MTP layers.
_SUBJECT = "Explain in detail how rain forms."
# Tokens that it writes, and tokens that are drafted below every third of them.
_WRITTEN = 288
_CHAIN = 3

# Calls to time, by the two numbers of their cost (see `Part`); each returns its milliseconds.
_Works = dict[tuple[int, int], Callable[[], float]]


class Measured(NamedTuple):
    """The result of a measurement.

    Attributes:
        costs: Milliseconds of each call; for `Part.READINGS` wrong tokens in a hundred.
        quiet: Whether the machine was undisturbed by other programs, as far as that matters.
    """

    costs: Costs
    quiet: bool


Measurement = Generator[None, None, Measured]


def depths_of(context_length: int) -> Sequence[int]:
    """Return the depths to measure, besides `NEAR`, for a model with this context.

    A context that ends before the next depth is measured near its end, if that is far from the depth before.
    """
    deepest = context_length - _ROOM
    depths = [depth for depth in DEEP if depth <= deepest]
    if len(depths) < len(DEEP) and deepest >= 1.5 * (depths or [NEAR])[-1]:
        depths.append(deepest)
    return depths


def measure_calls(model: LoadedModel, depths: Sequence[int], rows: Sequence[int], others: OtherPrograms) -> Measurement:
    """Measure plain steps, and rounds' calls by rows, at ascending depths, as far as the context allows.

    A depth that takes more than a minute to reach is left out, and so are those after it. For a model that cannot
    verify drafts only plain steps are measured.
    """
    # To find this out, models are called: that is a slice of its own.
    kind = model.capability.kind
    yield
    depths = [depth for depth in depths if depth + _ROOM <= model.info.context_length]
    scratch = TimingCache(model, depths[-1] if depths else 0)
    measured = Measured({}, quiet=True)
    for depth in depths:
        if not (yield from scratch.fill(depth)):
            break
        trees = scratch.trees(rows, kind) if kind is not DraftKind.NONE else {}
        yield
        works: _Works = {(count, depth): partial(scratch.call_ms, tree) for count, tree in trees.items()}
        at_depth = yield from _in_turns({(PLAIN_STEP, depth): scratch.plain_step, **works}, others)
        measured = Measured({**measured.costs, **at_depth.costs}, measured.quiet and at_depth.quiet)
    return measured


def measure_beams(model: LoadedModel, head: HeadModel, width: int, others: OtherPrograms) -> Measurement:
    """Measure a head's drafts by length."""
    scratch = TimingCache(model, NEAR, head)
    if not (yield from scratch.fill(NEAR)):
        return Measured({}, quiet=True)
    lengths = sorted({min(length, 1 + head.head.max_drafted) for length in _BEAM_LENGTHS})
    works: _Works = {(width, length): partial(scratch.draft_ms, BeamShape(width, length)) for length in lengths}
    return (yield from _in_turns(works, others))


def measure_draft_model(draft: DraftModel, others: OtherPrograms) -> Measurement:
    """Measure a draft model's calls by rows."""
    scratch = TimingCache(draft.model, NEAR)
    yield from scratch.fill(NEAR)
    trees = scratch.trees(_FED, DraftKind.CHAIN).items()
    return (yield from _in_turns({(rows, 0): partial(scratch.call_ms, tree) for rows, tree in trees}, others))


def measure_readings(model: LoadedModel, head: HeadModel) -> Measurement:
    """Measure how many tokens an MTP layer drafts wrong with each of its readings, along a text the model writes.

    Sources disagree on the hidden states, and a wrong choice changes no text: it only costs acceptance. A draft is a
    chain below a token of the text, counted up to its first wrong token.
    """
    layer = head.head
    assert isinstance(layer, BoundMtpHead)
    # The hidden states before the target's final norm, and with `trunk` those after it too.
    both = replace(Reading(before_norm=True).reads(model), trunk=True)
    prompt = model.encode_chat((ChatMessage(Role.USER, _SUBJECT),))
    text, recorded = yield from _write_text(model, prompt, both)
    # They stand side by side in each row.
    after, before = mx.split(recorded, 2, axis=-1)
    wrong: dict[tuple[int, int], float] = {}
    for reading in layer.readings:
        right = 0
        memory = layer.memory()
        read = 0
        hidden = before if reading.before_norm else after
        roots = range(len(prompt), len(text) - _CHAIN, _CHAIN)
        for root in roots:
            with layer.reading_as(reading):
                memory.take_committed(text[read:root], hidden[read:root], read)
                state = memory.root_state(Root(text[root], root, hidden[root - 1]))
                read = root
                for token in text[root + 1 : root + 1 + _CHAIN]:
                    if int(fetch(mx.argmax(state.logits()[0]))) != token:
                        break
                    right += 1
                    state = state.after(mx.array([0]), mx.array([token]))
            yield
        # Tokens in a hundred that were wrong. A stored cost must be above 0, so it begins at 0.01.
        share = right / (_CHAIN * len(roots))
        wrong[int(reading.before_norm), int(reading.recycles_before_norm)] = 100.01 - 100 * share
    return Measured(wrong, quiet=True)


def _write_text(
    model: LoadedModel, prompt: list[int], reads: HiddenReads
) -> Generator[None, None, tuple[list[int], mx.array]]:
    """Have a model go on with a prompt, one token a slice, without temperature.

    Returns:
        All tokens, and their hidden states, (tokens - 1, width): the last token is not fed.
    """
    cache = KVCache(model.network)
    text = [*prompt]
    parts = list[mx.array]()
    fed = prompt
    while len(text) < len(prompt) + _WRITTEN:
        # A reply between two slices may have requested others.
        model.hooks.record_states(reads)
        logits, hidden = model.call(mx.array(fed), cache)
        assert hidden is not None
        parts.append(hidden)
        fed = [int(fetch(mx.argmax(logits[-1])))]
        mx.eval(parts[-1])
        text += fed
        yield
    return text, mx.concatenate(parts)


def _in_turns(works: _Works, others: OtherPrograms) -> Measurement:
    """Make all calls a few times in turn, since a machine's speed drifts; return the shortest times.

    The first turn only warms up. Then turns are made until three were quiet or three were disturbed, or until the time
    for a depth would not suffice for another one. Disturbed turns are used only if none was quiet: other programs can
    only make a time longer.
    """
    quiet = list[Costs]()
    disturbed = list[Costs]()
    spent_ms = 0.0
    warm = False
    while len(quiet) < _TRIALS and len(disturbed) < _DISTURBED:
        turn: dict[tuple[int, int], float] = {}
        for key, work in works.items():
            turn[key] = work()
            yield
        # Kernels may be compiled in the first turn.
        if warm:
            (disturbed if others.are_busy else quiet).append(turn)
        took_ms = sum(turn.values())
        spent_ms += took_ms
        if warm and spent_ms + took_ms > _MAX_S * 1000:
            break
        warm = True
    return Measured({key: min(turn[key] for turn in quiet or disturbed) for key in works}, quiet=bool(quiet))


class TimingCache:
    """A cache with a plain text, for timing calls and drafts that leave it almost unchanged.

    Args:
        model: The target.
        deepest: Tokens of the text.
        head: The head whose drafts are timed; None without.
    """

    def __init__(self, model: LoadedModel, deepest: int, head: HeadModel | None = None) -> None:
        self._model = model
        self._cache = KVCache(model.network)
        self._verifier = Verifier(model, self._cache)
        self._chooser = TokenChooser(SamplingParams(), 0, model.info.vocabulary_size)
        # A special token may have no row in the model's tables, and some tokenizers know no letter.
        tokens = model.tokenizer.encode(_TEXT, add_special_tokens=False) or [0]
        tokens *= 1 + (deepest + MAX_ROWS) // len(tokens)
        # What is fed.
        self._text = tokens[:deepest]
        # The same with more behind it: drafts take their tokens from here.
        self._following = tokens
        self._chunk = MAX_ROWS
        self._head = head
        request = GenerationRequest((ChatMessage(Role.USER, "-"),))
        self._drafter = head.drafter(self._text, request, apart=True) if head else None
        if self._drafter is not None:
            self._drafter.take_cache(self._cache)
        # (rows, width) the head's input at the last tokens of the text.
        self._hidden = mx.zeros((0, 0))

    def fill(self, depth: int) -> Generator[None, None, bool]:
        """Feed text up to a depth, in chunks that grow as long as they are quick.

        Returns:
            Whether the depth is reached; not if that would take longer than a whole measurement may.
        """
        first = not self._cache.tokens
        while (missing := depth - len(self._cache.tokens)) > 0:
            start = len(self._cache.tokens)
            tokens = self._text[start : start + min(missing, self._chunk)]
            began = perf_counter()
            if self._head is not None:
                self._head.record_states()
            _, hidden = self._model.call(mx.array(tokens), self._cache)
            self._cache.evaluate()
            self._cache.tokens += tokens
            if self._drafter is not None:
                assert hidden is not None
                self._drafter.read_prompt(tokens, hidden, start)
                self._hidden = hidden[-_COMMITTED:]
                mx.eval(self._hidden)
            took_s = perf_counter() - began
            yield
            if took_s < _SHORT_S:
                self._chunk = min(2 * self._chunk, _LONGEST_CHUNK)
            if not first and took_s / len(tokens) * (missing - len(tokens)) > _MAX_S:
                return False
            # Kernels may be compiled the first time.
            first = False
        return True

    def trees(self, rows: Sequence[int], kind: DraftKind) -> dict[int, PackedTree]:
        """Return a draft of each number of rows, of tokens that may follow in the text, in one call of the target.

        A chain has the text's own tokens. A tree, in which every node has two children, has the tokens that the target
        finds likeliest at each depth along them. Its nodes are numbered level by level: the children of node n are
        2n + 1 and 2n + 2, and the first node of a level has the likeliest token.
        """
        depth = len(self._cache.tokens)
        tokens = mx.array(self._following[depth : depth + MAX_ROWS])
        if kind is not DraftKind.TREE or not rows:
            return {count: PackedTree.chain(tokens[:count]) for count in rows}
        ranks = mx.argsort(-self._verifier.verify(PackedTree.chain(tokens[:_LEVELS])).logits, axis=-1)[:, :MAX_ROWS]
        root, likely = fetch(tokens[:1], ranks)
        self._verifier.rollback()
        nodes = np.arange(MAX_ROWS)
        levels = np.log2(1 + nodes).astype(int)
        tree_tokens = np.where(nodes, likely[levels - 1, 1 + nodes - 2**levels], root)
        parents = (nodes - 1) // 2
        return {count: PackedTree.pack(PrefixTree.from_tokens(tree_tokens[:count], parents[:count])) for count in rows}

    def draft_ms(self, shape: BeamShape) -> float:
        """Return the milliseconds of a draft after the tokens of a typical round."""
        assert self._drafter is not None
        rows = self._hidden.shape[0]
        self._drafter.read_prompt(self._text[-rows:], self._hidden, len(self._text) - rows)
        began = perf_counter()
        mx.eval(*self._drafter.draft_in_shape(self._following[len(self._text)], shape, MAX_ROWS // 2).tree.arrays)
        return (perf_counter() - began) * 1000

    def call_ms(self, tree: PackedTree) -> float:
        """Return the milliseconds of a round's call, which is then rolled back."""
        began = perf_counter()
        verified = self._verifier.verify(tree)
        start = len(self._cache.tokens) + 1
        mx.eval(*self._chooser.choose_quickly(verified.logits, start, tree.depths, tree.deepest), verified.hidden)
        ended = perf_counter()
        self._verifier.rollback()
        return (ended - began) * 1000

    def plain_step(self) -> float:
        """Return the milliseconds of a plain step, with each next one queued before the last is read.

        The time between two reads is one step's time only if a step is queued in between: a read may wait for all that
        is queued, as on a CPU, or for its own step alone. The tokens stay in the cache: a few hardly change its depth,
        and not every cache can remove them.
        """
        root = self._following[len(self._text)]
        running = self._step(mx.array([root]))
        reads = list[float]()
        while len(reads) < 2 or (len(reads) < 4 and reads[-1] - reads[-2] < _SLOW_MS / 1000):
            following = self._step(running)
            mx.eval(running)
            reads.append(perf_counter())
            running = following
        mx.eval(running)
        return float(np.diff(reads).min()) * 1000

    def _step(self, token: mx.array) -> mx.array:
        logits = self._model.network(token[None], cache=self._cache.layers)[:, -1]
        position = len(self._cache.tokens)
        # Which token it is does not matter here, only how many there are.
        self._cache.tokens.append(0)
        chosen, sure = self._chooser.choose_quickly(logits, position, mx.array([0]), 0)
        mx.async_eval(chosen, sure)
        return chosen
