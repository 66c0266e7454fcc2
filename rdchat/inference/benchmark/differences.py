"""Finds where two replies differ, how close the scores of the two tokens were there, and how often it happens."""

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import mlx.core as mx

from rdchat.inference.api.benchmark import EVERYDAY_PROMPTS, Difference
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.inference.api.requests import DraftSettings, GenerationRequest, Mode, SamplingParams
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reductions import log_denominator
from rdchat.inference.decoding.reply_iterator import prefill, read_prompt
from rdchat.inference.decoding.sampling import TokenChooser, filter_border
from rdchat.inference.session import ChatSession
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
    before, last = tokens[:-_TOGETHER], tokens[-_TOGETHER:]
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


def divergences(model: LoadedModel, request: GenerationRequest, reply: Sequence[int]) -> Iterator[Difference]:
    """Feed a drafted reply to plain decoding, and yield where it would have chosen another token.

    Once two replies differ, they stay different, so replies are not compared: each position is judged on the drafted
    reply. The first token is left out, since it comes with the prompt in all modes.

    Args:
        model: The target.
        request: The request of both replies; no repetition penalty.
        reply: The drafted reply.
    """
    prompt = model.encode_chat(request.messages, continue_last=False)
    chooser = TokenChooser(request.sampling, request.seed, model.info.vocabulary_size)
    cache = KVCache(model.network)
    read_prompt(model, cache, prompt)
    for index, token in enumerate(reply[:-1], start=1):
        logits = model.network(mx.array([[token]]), cache=cache.layers)[:, -1]
        plain = int(fetch(chooser.choose(logits, mx.array([len(prompt) + index])))[0])
        if plain != reply[index]:
            gap, rounding = score_gap(model, request, [*reply[:index], plain], index, reply[index])
            yield Difference(0, index, model.decode([plain]), model.decode([reply[index]]), gap, rounding)


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


def count_divergences(session: ChatSession, mode: Mode, temperature: float, tokens: int) -> Iterator[dict[str, Any]]:
    """Decode everyday replies with drafts and compare them; yield the count so far after each.

    Drafts are verified with several rows a call, plain decoding feeds one row a call, and their kernels round
    differently. Where two tokens nearly tie, each may choose another one. A count has the compared tokens, and the
    `Difference.gap` and `rounding` of each difference, 0 where there is none.

    Plain decoding follows the tokens of each reply; each position where it would have chosen another token counts.
    Sampling is the app's, with its default filters.

    Args:
        session: Its caches are emptied.
        mode: How to draft; replies drafted in another way do not count.
        temperature: 0 is greedy.
        tokens: Limit of the tokens of a reply.
    """
    model, compared = session.model, 0
    differences: list[Difference] = []
    for number, prompt in enumerate(EVERYDAY_PROMPTS):
        message = ChatMessage(Role.USER, prompt.text)
        sampling = SamplingParams(temperature, max_tokens=tokens)
        request = GenerationRequest((message,), sampling, number, draft=DraftSettings(mode))
        session.forget()
        *_, end = session.generate(request)
        assert isinstance(end, ReplyEnd)
        if end.mode is mode:
            differences += divergences(model, request, end.token_ids)
            compared += len(end.token_ids) - 1
        yield {
            "dtype": model.info.dtype,
            "temperature": temperature,
            "mode": mode,
            "tokens": compared,
            "gaps": [each.gap or 0.0 for each in differences],
            "rounding": [each.rounding or 0.0 for each in differences],
            "per_thousand": 1000 * len(differences) / max(compared, 1),
        }
