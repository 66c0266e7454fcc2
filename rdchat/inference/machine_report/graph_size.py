"""Counts the primitives that MLX queues for a plain step, a target call and a draft; on Metal each may be a launch."""

import io
import re
from collections import Counter
from typing import Any

import mlx.core as mx

from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.prefill import read_prompt
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.head_drafter import HeadDrafter
from rdchat.inference.session import ChatSession
from rdchat.inference.target.capability import DraftKind
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.verifier import Verifier

_ROWS = 5
_VIEWS = {  # these compute nothing, they only describe where data is
    "AsStrided",
    "Broadcast",
    "BroadcastAxes",
    "Depends",
    "ExpandDims",
    "Flatten",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "StopGradient",
    "Transpose",
    "Unflatten",
    "View",
}


def primitives(*arrays: mx.array | None) -> Counter[str]:
    """Return the primitives that evaluating lazy arrays would run, by name; those that only make views left out."""
    dot = io.StringIO()
    mx.export_to_dot(dot, *(array for array in arrays if array is not None))
    names = re.findall(r'label ="(\w+)", shape=rectangle', dot.getvalue())
    return Counter(name for name in names if name not in _VIEWS)


def graph_sizes(session: ChatSession) -> dict[str, Any]:
    """Count what a plain step, a target call of five rows and a draft of its drafter queue, choice included."""
    model = session.model
    cache = KVCache(model.network)
    mx.eval(model.network(mx.array([[1, 2, 3]]), cache=cache.layers))
    cache.tokens += [1, 2, 3]
    chooser = TokenChooser(SamplingParams(), 0, model.info.vocabulary_size)
    counts: dict[str, Counter[str]] = {}
    if model.capability.kind is not DraftKind.NONE:
        verifier = Verifier(model, cache)
        tree = PackedTree.chain(mx.arange(1, 1 + _ROWS))
        verified = verifier.verify(tree)
        counts[f"a call of {_ROWS} rows"] = primitives(
            *chooser.choose_quickly(verified.logits, 4, tree.depths, tree.deepest)
        )
        mx.eval(verified.logits)
        verifier.rollback()
    logits = model.network(mx.array([[1]]), cache=cache.layers)[:, -1]
    counts["a plain step"] = primitives(*chooser.choose_quickly(logits, 3, mx.array([0]), 0))
    found = {name: _as_json(count) for name, count in counts.items()}
    if (drafted := draft_size(session, DraftSettings(Mode.DRAFTER))) is not None:
        found["a draft"] = drafted
    return found


def _as_json(count: Counter[str]) -> dict[str, Any]:
    return {"primitives": count.total(), "by_name": dict(count.most_common())}


def draft_size(session: ChatSession, settings: DraftSettings) -> dict[str, Any] | None:
    """Count what a head's draft of the usual shape queues; None without the drafter that the settings name."""
    request = GenerationRequest((ChatMessage(Role.USER, "-"),), draft=settings)
    if session.drafters.try_load(request.draft) is not None:
        return None
    _, drafter = session.drafters.prepare(ReplyJob.fresh(session.model, [1, 2, 3], request)) or (None, None)
    if not isinstance(drafter, HeadDrafter):
        return None
    mx.eval(read_prompt(session.model, KVCache(session.model.network), [1, 2, 3]), session.model.hooks.hidden)
    for _ in drafter.prefill(lambda: False, Ledger()):
        pass
    return _as_json(primitives(*drafter.draft(1, request.draft.shape, _ROWS).tree.arrays))
