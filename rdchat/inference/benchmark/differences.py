"""Where two replies part, and how near a tie it was."""

import math
from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from rdchat.inference.api.requests import GenerationRequest
from rdchat.inference.decoding.prefill import read_prompt
from rdchat.inference.decoding.reductions import log_denominator
from rdchat.inference.decoding.sampling import TokenChooser, filter_border
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.target import LoadedModel


def first_difference(plain: Sequence[int], other: Sequence[int]) -> int | None:
    """Return the first position at which two replies differ, or one of them has ended; None where they are the same."""
    for index, (one, two) in enumerate(zip(plain, other, strict=False)):
        if one != two:
            return index
    return None if len(plain) == len(other) else min(len(plain), len(other))


def score_gap(model: LoadedModel, request: GenerationRequest, plain: Sequence[int], index: int, other: int) -> float:
    """Return how far another token was from being chosen by plain decoding.

    Args:
        model: The target.
        request: What was asked; no repetition penalty.
        plain: Plain decoding's reply, along which the target is fed.
        index: Position of the token in the reply.
        other: The token that another way of decoding chose there.

    Returns:
        The difference of the two tokens' final scores, logit over temperature plus noise, in nats; where a filter drops
        the other one, its distance to the filter's border. Not finite where a logit is not.
    """
    tokens = [*model.encode_chat(request.messages, continue_last=False), *plain[:index]]
    logits = read_prompt(model, KVCache(model.network), tokens)
    return gap_of(logits, len(tokens), request, plain[index], other)


def gap_of(logits: mx.array, position: int, request: GenerationRequest, chosen: int, other: int) -> float:
    """Return what separates two tokens in plain decoding's logits, (1, vocabulary); see `score_gap`."""
    sampling = request.sampling
    chooser = TokenChooser(sampling, request.seed, logits.shape[-1])
    scores = chooser.scores(logits, mx.array([position]))[0]
    gap = abs(_number(scores[chosen]) - _number(scores[other]))
    if math.isfinite(gap) or sampling.greedy:
        return gap
    logits = logits.astype(mx.float32)
    border = filter_border(mx.sort(logits, axis=-1)[:, ::-1], log_denominator(logits), sampling)
    return abs(_number(border[0, 0]) - _number(logits[0, other])) / sampling.temperature


def _number(scalar: mx.array) -> float:
    return float(np.array(scalar))
