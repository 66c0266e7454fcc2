"""Measures how far a target follows a drafter head, on replies that are decoded plainly."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import override
from zipfile import BadZipFile

import mlx.core as mx
import numpy as np

from rdchat.files.atomic_file import atomic_file
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.requests import BeamShape, GenerationRequest
from rdchat.inference.auto.acceptance import Acceptance
from rdchat.inference.auto.plan import LENGTHS, LONGEST, MOST_ROWS, WIDEST, WIDTHS, Floats
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.rounds import RoundIterator
from rdchat.inference.drafting.beam_search import HostPool, NodePool, children, step_probs
from rdchat.inference.drafting.head_drafter import HeadDrafter, HeadModel
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.target.verifier import Verified

_Compared = tuple[HostPool, list[int]]  # a draft, and the text that followed
_NOWHERE = -1  # a token that is in no draft
_PRIOR = 4.0  # promised nodes that came true, with which each depth begins
_EVERY = 3  # tokens: neighbouring drafts tell much the same


class DraftRecorder(Drafter):
    """Offers nothing, so that decoding is plain, and keeps the longest drafts below the reply's tokens.

    Args:
        drafter: Drafts.
        widths: Beams of the drafts that are kept below each of those tokens.
        every: Tokens from one to the next of those.

    Attributes:
        pools: The drafts by width, from the reply's first token on.
    """

    name = "recorder"

    def __init__(self, drafter: HeadDrafter, widths: Sequence[int], every: int = 1) -> None:
        self._drafter, self._every = drafter, every
        self._tokens = 0
        self.pools: dict[int, list[HostPool]] = {width: [] for width in widths}

    @override
    def propose(self, root: int, limit: int) -> Draft:
        """See `Drafter`."""
        if self._tokens % self._every == 0:
            for width, pools in self.pools.items():
                pools.append(self._drafter.search(root, BeamShape(width, LONGEST)).fetch())
        return Draft(PackedTree.chain(mx.array([root])))

    @override
    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int]) -> None:
        """See `Drafter`."""
        self._tokens += 1
        self._drafter.observe(root, tokens, verified, path)


def record_drafts(
    model: LoadedModel, head: HeadModel, request: GenerationRequest, widths: Sequence[int], every: int = 1
) -> tuple[list[int], list[int], dict[int, list[HostPool]]]:
    """Answer plainly; return the prompt's and the reply's token ids, and what a `DraftRecorder` kept."""
    prompt = model.encode_chat(request.messages, continue_last=False)
    job = ReplyJob.fresh(model, prompt, request)
    alone = head.drafter(prompt, request, job.ledger)
    recorder = DraftRecorder(alone, widths, every)
    *_, end = RoundIterator(job, recorder)
    assert isinstance(end, ReplyEnd)
    return prompt, list(end.token_ids), recorder.pools


class AcceptanceCalibration:
    """Compares drafts of the largest shape with replies.

    Args:
        model: The target.
        head: Its drafter.
    """

    def __init__(self, model: LoadedModel, head: HeadModel) -> None:
        self._model = model
        self._head = head
        self._compared: list[_Compared] = []

    def reply(self, request: GenerationRequest, file: Path) -> int:
        """Decode a reply and compare drafts with it; return its number of tokens, 0 where the comparison was kept.

        Args:
            request: What to answer.
            file: Keeps what the comparison showed (`.npz`), so that an interruption costs one reply.

        Raises:
            StorageFullError: If the disk is full.
            StorageError: If the file cannot be written.
        """
        if (kept := _read(file)) is not None:
            self._compared += kept
            return 0
        _, reply, pools = record_drafts(self._model, self._head, request, (WIDEST,), _EVERY)
        compared = []
        for place, pool in enumerate(pools[WIDEST]):
            text = reply[place * _EVERY + 1 :][: pool.levels]
            compared.append((pool, [*text, *[_NOWHERE] * (pool.levels - len(text))]))
        _keep(file, compared)
        self._compared += compared
        return len(reply)

    @property
    def acceptance(self) -> Acceptance | None:
        """What all replies together show; None where there were no drafts to compare."""
        compared = self._compared
        if not compared:
            return None
        sums = np.zeros((LONGEST, 2))
        for pool, text in compared:
            for depth, (came, promised) in enumerate(promises(pool, text)):
                sums[depth] += came, promised
        told = int((sums[:, 1] > 0).sum())
        rates = tuple(float((came + _PRIOR) / (promised + _PRIOR)) for came, promised in sums[:told])
        pairs = [(pool, node_chances(pool, rates)) for pool, _ in compared]
        values = [np.mean([values_of_width(*pair, width) for pair in pairs], axis=0) for width in WIDTHS]
        # lengths that the head does not draft come to nothing
        return Acceptance(rates, np.nan_to_num(np.stack(values)))


def promises(drawn: HostPool, text: Sequence[int]) -> Iterator[tuple[float, float]]:
    """Yield for each depth whether one of a draft's nodes was right, and the probability that it gave them together.

    Nodes whose parent was not right say nothing.
    """
    probs, node = step_probs(drawn), 0
    for token in text:
        below = children(drawn, node)
        if not below.size:
            return
        right = below[drawn.tokens[below] == token]
        yield float(right.size > 0), float(probs[below].sum())
        if not right.size:
            return
        node = int(right[0])


def node_chances(drawn: HostPool, rates: Sequence[float]) -> Floats:
    """Return (nodes,) the chance that each node lies on the accepted path; 1 for the root.

    Args:
        drawn: A draft.
        rates: By depth, the share of what its probabilities promise that comes true; the last one holds beyond.
    """
    probs, chances = step_probs(drawn), np.ones(len(drawn.tokens))
    for depth in range(1, drawn.levels + 1):
        level, rate = drawn.level(depth), rates[min(depth, len(rates)) - 1]
        chances[level] = chances[drawn.parents[level]] * np.minimum(probs[level] * rate, 1.0)
    return chances


def values_by_length(drawn: HostPool, chances: Floats) -> Floats:
    """Return the expected accepted tokens of a draft's best nodes, (lengths, nodes), the root counted.

    A tree's value is the sum of its nodes' chances. A long draft holds all shorter ones; longer ones are not a
    number.
    """
    values = np.full((len(LENGTHS), MOST_ROWS + 1), np.nan)
    best_first = np.argsort(-drawn.scores, kind="stable")
    for n, length in enumerate(LENGTHS[: np.searchsorted(LENGTHS, drawn.levels + 1, side="right")]):
        shorter = best_first[best_first < 1 + (length - 1) * drawn.level_size]
        sums = np.concatenate([[0.0, 0.0], np.cumsum(chances[shorter][1:MOST_ROWS])])  # the root is worth none
        values[n] = np.pad(sums, (0, MOST_ROWS + 1 - len(sums)), mode="edge")
    return values


def values_of_width(pool: HostPool, chances: Floats, width: int) -> Floats:
    """Return `values_by_length` of what a search with fewer beams would have kept, as far as can be told."""
    kept = np.zeros(len(pool.tokens), dtype=bool)
    kept[0] = True
    live = np.array([0])
    for depth in range(1, pool.levels + 1):
        level = pool.level(depth)
        grown = level.start + np.flatnonzero(np.isin(pool.parents[level], live))
        grown = grown[: 2 * width if width > 1 else 1]
        kept[grown] = True
        live = grown[:width]
    return values_by_length(replace(pool, scores=np.where(kept, pool.scores, -np.inf)), np.where(kept, chances, 0.0))


def _keep(file: Path, drafts: list[_Compared]) -> None:
    levels = drafts[0][0].levels if drafts else LONGEST - 1
    columns = {
        "tokens": np.array([pool.tokens for pool, _ in drafts], dtype=np.int64),
        "parents": np.array([pool.parents for pool, _ in drafts], dtype=np.int64),
        "scores": np.array([pool.scores for pool, _ in drafts], dtype=np.float64),
        "texts": np.array([text for _, text in drafts], dtype=np.int64).reshape(len(drafts), levels),
    }
    with atomic_file(file) as temporary:
        np.savez(temporary, **columns)  # type: ignore[arg-type]


def _read(file: Path) -> list[_Compared] | None:
    try:
        with np.load(file) as data:
            columns = [data[name] for name in ("tokens", "parents", "scores", "texts")]
    except (OSError, ValueError, KeyError, BadZipFile):
        return None
    return [
        (NodePool(tokens, parents, scores, len(text), WIDEST), text.tolist())
        for tokens, parents, scores, text in zip(*columns, strict=True)
    ]
