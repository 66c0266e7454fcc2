"""Measures how far a target follows a recurrent drafter, on replies that are decoded plainly."""

from collections.abc import Sequence
from pathlib import Path
from typing import override
from zipfile import BadZipFile

import numpy as np

from rdchat.files.atomic_file import atomic_file
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.requests import BeamShape, GenerationRequest, SamplingParams
from rdchat.inference.auto.acceptance_estimates import (
    Acceptance,
    DraftValues,
    NodeRates,
    ScoredNodes,
    promises,
    tree_values,
)
from rdchat.inference.auto.curve import Floats
from rdchat.inference.auto.drafter import LARGEST, AutoDrafter
from rdchat.inference.auto.iterator import AutoIterator
from rdchat.inference.auto.plan import LONGEST
from rdchat.inference.auto.state import AutoState, Equipment, Followed
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import Clock, ReplyJob
from rdchat.inference.drafting.recurrent_drafter import RecurrentModel
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.target import LoadedModel

_Compared = tuple[ScoredNodes, list[int]]  # a draft, and the text that followed
_NOWHERE = -1  # a token that is in no draft
_PRIOR = 4.0  # promised nodes that came true, with which each depth begins


class _Drafts(NodeRates):
    """Keeps drafts and the texts that followed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[_Compared] = []

    @override
    def learn(self, drawn: ScoredNodes, text: Sequence[int]) -> None:
        missing = drawn.levels - len(text)  # of one that was left, or in which the reply ended
        self.seen.append((drawn, [*text, *[_NOWHERE] * missing]))


class _Nothing(DraftValues):
    @override
    def learn(self, drawn: ScoredNodes, chances: Floats) -> None:
        pass


class _Watcher(AutoDrafter):
    """Decodes plainly, with as many drafts of the largest shape as can be compared with the text."""

    @override
    def wants_round(self, limit: int) -> bool:
        return False

    @override
    def wants_to_stop(self, limit: int) -> bool:
        return False

    @override
    def shadow(self) -> tuple[BeamShape, float]:
        return LARGEST, 0.0


class _WatchedState(AutoState):
    def __init__(self, model: LoadedModel, drafts: _Drafts) -> None:
        super().__init__(model)
        self._drafts = drafts

    @override
    def followed(self, sampling: SamplingParams) -> Followed:
        return Followed(nodes=self._drafts, values=_Nothing())


class Watching:
    """Compares drafts with replies.

    Args:
        model: The target.
        recurrent: Its drafter.
    """

    def __init__(self, model: LoadedModel, recurrent: RecurrentModel) -> None:
        self._model = model
        self._drafts = _Drafts()
        self._state = _WatchedState(model, self._drafts)
        self._state.equip(Equipment(recurrent))

    def reply(self, request: GenerationRequest, file: Path) -> int:
        """Decode a reply and compare drafts with it; return its number of tokens, 0 where the comparison was kept.

        Args:
            request: What to answer.
            file: Keeps what the comparison showed (`.npz`), so that an interruption costs one reply.

        Raises:
            StorageFullError: If the disk is full.
            StorageError: If the file cannot be written.
        """
        seen = self._drafts.seen
        if (kept := _read(file)) is not None:
            seen += kept
            return 0
        before = len(seen)
        prompt = self._model.encode_chat(request.messages, continue_last=False)
        job = ReplyJob(self._model, KVCache(self._model.network), prompt, request, Ledger(), Clock())
        *_, end = AutoIterator(job, _Watcher(self._state, prompt, request, job.ledger))
        assert isinstance(end, ReplyEnd)
        _keep(file, seen[before:])
        return len(end.token_ids)

    @property
    def acceptance(self) -> Acceptance | None:
        """What all replies together show; None where there were no drafts to compare."""
        seen = self._drafts.seen
        if not seen:
            return None
        sums = np.zeros((LONGEST, 2))
        for drawn, text in seen:
            for depth, (came, promised) in enumerate(promises(drawn, text)):
                sums[depth] += came, promised
        told = int((sums[:, 1] > 0).sum())
        rates = tuple(float((came + _PRIOR) / (promised + _PRIOR)) for came, promised in sums[:told])
        calibrated = NodeRates(rates)
        return Acceptance(rates, np.mean([tree_values(drawn, calibrated.chances(drawn)) for drawn, _ in seen], axis=0))


def _keep(file: Path, drafts: list[_Compared]) -> None:
    levels = LARGEST.length - 1
    columns = {
        "tokens": np.array([drawn.tokens for drawn, _ in drafts], dtype=np.int64),
        "parents": np.array([drawn.parents for drawn, _ in drafts], dtype=np.int64),
        "scores": np.array([drawn.scores for drawn, _ in drafts], dtype=np.float64),
        "texts": np.array([text for _, text in drafts], dtype=np.int64).reshape(len(drafts), levels),
    }
    with atomic_file(file) as draft:
        np.savez(draft, **columns)  # type: ignore[arg-type]


def _read(file: Path) -> list[_Compared] | None:
    try:
        with np.load(file) as data:
            columns = [data[name] for name in ("tokens", "parents", "scores", "texts")]
    except (OSError, ValueError, KeyError, BadZipFile):
        return None
    levels = LARGEST.length - 1
    return [
        (ScoredNodes(tokens, parents, scores, (len(tokens) - 1) // levels, levels, LARGEST.width), text.tolist())
        for tokens, parents, scores, text in zip(*columns, strict=True)
    ]
