"""Compares the default model's logits in float32 with those that another machine computed.

`known_replies.json` has for each of `EVERYDAY_PROMPTS` the ids of a greedy reply without drafts, and the logit of each
token. `scripts/known_replies.py` writes it. So a device that computes wrongly is found, even where it does so always.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import numpy as np

from rdchat.inference.api import EVERYDAY_PROMPTS, Dtype, Prompt
from rdchat.inference.device import fetch
from rdchat.inference.loading import load_model
from rdchat.inference.verification import KVCache, LoadedModel

KNOWN = Path(__file__).with_name("known_replies.json")
NEAR = 0.01
"""Two tokens whose logits are closer are a near-tie. Rounding in float32 moves logits by a hundredth of that."""


def logits_along(model: LoadedModel, prompt: Prompt, reply: Sequence[int]) -> Any:
    """Return (tokens, vocabulary): the logits at each token of a reply, which is fed token by token, as in decoding."""
    layers = KVCache(model.network).layers
    feeds = [model.encode_chat((prompt.message,)), *([token] for token in reply[:-1])]
    return np.stack([fetch(model.network(mx.array([feed]), cache=layers)[0, -1]) for feed in feeds])


def compare_replies(facts: dict[str, Any], show: Callable[[str], None]) -> None:
    """Add to `replies` how this machine's logits along the reply to each prompt compare with the known ones.

    `gap` is by how much another token was likelier than the reply's, at most: 0 where the reply is the same. `distance`
    is the largest difference between a logit and the known one. `is_right` says whether both are below `NEAR`.
    """
    model = load_model(None, Dtype.FLOAT32, lambda progress: show(progress.stage))
    facts["replies"] = []
    for prompt, known in zip(EVERYDAY_PROMPTS, json.loads(KNOWN.read_text()), strict=True):
        show("Comparing replies")
        reply = known["ids"]
        logits = logits_along(model, prompt, reply)
        chosen = logits[np.arange(len(reply)), reply]
        gap = float((logits.max(1) - chosen).max())
        distance = float(np.abs(chosen - known["logits"]).max())
        # A logit that is no number is not near.
        outcome = {"gap": gap, "distance": distance, "is_right": gap < NEAR and distance < NEAR}
        facts["replies"].append(outcome)
