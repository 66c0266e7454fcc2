"""Finds where two replies differ, and how close the scores of the two tokens were there."""

import math
from collections.abc import Sequence
from itertools import zip_longest

import mlx.core as mx

from rdchat.inference.api.requests import GenerationRequest
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reductions import log_denominator
from rdchat.inference.decoding.reply_iterator import prefill
from rdchat.inference.decoding.sampling import TokenChooser, filter_border
from rdchat.inference.verification.fetch import fetch
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel

# Tokens fed in one call, to measure how rounding changes the scores.
_TOGETHER = 6


def first_difference(plain: Sequence[int], other: Sequence[int]) -> int | None:
    """Return the first position where two replies differ or one has ended; None where they are the same."""
    pairs = enumerate(zip_longest(plain, other))
    return next((index for index, (one, two) in pairs if one != two), None)


def score_gap(
    model: LoadedModel, request: GenerationRequest, plain: Sequence[int], index: int, other: int
) -> tuple[float, float]:
    """Return how far a token was from being chosen by plain decoding, and how far rounding moves scores there.

    Args:
        model: The target.
        request: The request of both replies; no repetition penalty.
        plain: Plain decoding's reply, along which the target is fed.
        index: Position of the token in the reply.
        other: The token that another mode chose there.

    Returns:
        The difference of the two tokens' final scores, logit over temperature plus noise, in nats; where a filter drops
        the other token, its distance from the filter's border. And the effect of rounding: the root mean square, over
        the vocabulary, of the change in these scores when the last tokens are fed together instead of one by one. Not
        finite where a logit is not.
    """
    tokens = [*model.encode_chat(request.messages, continue_last=False), *plain[:index]]
    before = tokens[:-_TOGETHER]
    last = tokens[-_TOGETHER:]
    cache = KVCache(model.network)
    _fill(model, cache, before)
    for token in last:
        logits = model.network(mx.array([[token]]), cache=cache.layers)[:, -1]
        cache.tokens.append(token)
    gap = gap_of(logits, len(tokens), request, plain[index], other)
    cache.trim_to(len(before))
    _fill(model, cache, before)  # In case the cache could not be shortened.
    together = model.network(mx.array([last]), cache=cache.layers)[:, -1]
    moved = (together.astype(mx.float32) - logits.astype(mx.float32)) / (request.sampling.temperature or 1)
    return gap, _number(mx.sqrt(mx.mean(mx.square(moved))))


def _fill(model: LoadedModel, cache: KVCache, tokens: list[int]) -> None:
    """Feed tokens from where the cache ends."""
    for _ in prefill(model, cache, [*tokens, 0], lambda: False, Ledger()):  # `prefill` leaves out the last token
        pass


def gap_of(logits: mx.array, position: int, request: GenerationRequest, chosen: int, other: int) -> float:
    """Return the score difference of two tokens in plain decoding's logits, (1, vocabulary); see `score_gap`."""
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
    return float(fetch(scalar))
