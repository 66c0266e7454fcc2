"""Records replies with everything that could have been drafted in them, for `replay_auto.py`.

The target answers plainly. At each token the drafter head searches a draft of every width, and a stand-in for a draft
model (the target with its weights rounded to 5 bits) ranks its candidates in one pass over the finished reply. That
pass shows what the draft model drafts after accepted tokens; after a rejected one nothing counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast, override

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_unflatten

from rdchat.files.atomic_file import atomic_file
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.requests import BeamShape, GenerationRequest
from rdchat.inference.auto.plan import LONGEST
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.beam_search import CandidateRanker, NodePool
from rdchat.inference.drafting.head_drafter import HeadDrafter, HeadModel
from rdchat.inference.models.model_files import target_hash
from rdchat.inference.verification.fetch import fetch
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree, Verified

# Beams of the recorded drafts.
WIDTHS = (1, 2, 4, 8)
# Tokens below a root, by the recorded head.
MAX_DRAFTED = LONGEST - 1
# Bits and group size of the stand-in's weights.
BITS, GROUP_SIZE = 5, 64
# Candidates of the stand-in at each token.
CANDIDATES = 17
COLUMNS = ("tokens", "parents", "scores")


@dataclass(frozen=True)
class Record:
    """A plain reply and what drafters offer at each of its tokens.

    Attributes:
        prompt: Token ids.
        reply: Token ids.
        pools: The head's draft, by width, below each token of the reply but the last.
        candidates: (reply, `CANDIDATES`) the draft model's candidates for each token of the reply, best first.
    """

    prompt: list[int]
    reply: list[int]
    pools: dict[int, list[NodePool]]
    candidates: Sequence[list[int]]

    @property
    def last(self) -> int:
        return len(self.reply) - 1


class DraftRecorder(Drafter):
    """Offers nothing, so that decoding is plain, and keeps the longest drafts below the reply's tokens, on the host."""

    name = "recorder"

    def __init__(self, drafter: HeadDrafter) -> None:
        self._drafter = drafter
        self.pools: dict[int, list[NodePool]] = {width: [] for width in WIDTHS}

    @override
    def propose(self, root: int, limit: int) -> Draft:
        for width, pools in self.pools.items():
            pool = self._drafter.search(root, BeamShape(width, LONGEST))
            tokens, parents, scores = cast(Any, fetch(pool.tokens, pool.parents, pool.scores))
            pools.append(replace(pool, tokens=tokens, parents=parents, scores=scores.astype(np.float64)))
        return Draft(PackedTree.chain(mx.array([root])))

    @override
    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int]) -> None:
        self._drafter.observe(root, tokens, verified, path)


class Recorder:
    """Answers prompts and keeps the records in a folder; an interrupted run goes on where it was.

    Args:
        model: The target.
        head: Its drafter.
        folder: Keeps the records.
        weights: The drafter's weights, to tell records of different drafters apart.
    """

    def __init__(self, model: LoadedModel, head: HeadModel, folder: Path, weights: bytes) -> None:
        self._model, self._head, self._folder = model, head, folder
        self._made_with = f"{target_hash(model.info.path)} {model.info.dtype} {sha256(weights).hexdigest()} {BITS}"
        folder.mkdir(parents=True, exist_ok=True)

    def record(self, request: GenerationRequest) -> Record | None:
        """Return the record of a reply; None where nothing could be drafted in it."""
        named = f"{self._made_with} {request.sampling} {request.messages[0].content}"
        file = self._folder / f"{sha256(named.encode()).hexdigest()[:16]}.npz"
        if not file.exists():
            self._write(request, file)
        return _read(file)

    def _write(self, request: GenerationRequest, file: Path) -> None:
        prompt = self._model.encode_chat(request.messages, continue_last=False)
        job = ReplyJob.fresh(self._model, prompt, request)
        recorder = DraftRecorder(self._head.drafter(prompt, request, job.ledger))
        *_, end = ReplyIterator(job, recorder)
        assert isinstance(end, ReplyEnd)
        reply, pools = list(end.token_ids), recorder.pools
        candidates = self._rank(request, prompt, reply)
        columns: dict[str, Any] = {"prompt": prompt, "reply": reply, "candidates": candidates}
        for width, of_width in pools.items():
            columns |= {f"{name} {width}": np.array([getattr(pool, name) for pool in of_width]) for name in COLUMNS}
        with atomic_file(file) as temporary:
            np.savez_compressed(temporary, **columns)

    def _rank(self, request: GenerationRequest, prompt: list[int], reply: list[int]) -> list[list[int]]:
        network = self._model.network
        exact = tree_flatten(network.parameters())
        network.update(tree_unflatten([(name, _rounded(name, weights)) for name, weights in exact]))
        logits = network(mx.array([prompt + reply]))[0, len(prompt) - 1 : -1]
        ranker = CandidateRanker(request.sampling, request.seed, self._model.info.vocabulary_size)
        ranked = [ranker.rank(logits[n][None], len(prompt) + n, CANDIDATES)[0] for n in range(len(reply))]
        mx.eval(ranked)
        network.update(tree_unflatten(exact))
        return cast(list[list[int]], [tokens.tolist() for tokens in ranked])


def _rounded(name: str, weights: mx.array) -> mx.array:
    if weights.ndim != 2 or "embed" in name or weights.shape[-1] % GROUP_SIZE:
        return weights
    quantised = mx.quantize(weights, GROUP_SIZE, BITS)
    return mx.dequantize(*quantised, group_size=GROUP_SIZE, bits=BITS).astype(weights.dtype)


def _read(file: Path) -> Record | None:
    with np.load(file) as data:
        if len(data["reply"]) < 2:
            return None
        pools = {
            width: [
                NodePool(tokens.astype(np.int64), parents.astype(np.int64), scores, MAX_DRAFTED)
                for tokens, parents, scores in cast(Any, zip(*(data[f"{n} {width}"] for n in COLUMNS), strict=True))
            ]
            for width in WIDTHS
        }
        return Record(data["prompt"].tolist(), data["reply"].tolist(), pools, data["candidates"].tolist())
