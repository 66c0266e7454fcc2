"""Decodes many conversations at a time: one target call per step, with each sequence at its own position.

mlx-lm's batch caches hold the sequences padded on the left, with a position and mask for each row. Sliding windows
become masks of full caches here.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx_lm.models.cache import BatchKVCache, KVCache, make_prompt_cache

from rdchat.errors import ModelError
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.verification.capability import median_error, on_host, rounding_limit, row_errors
from rdchat.inference.verification.fetch import fetch
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.memory_errors import is_device_error
from rdchat.inference.verification.target import LoadedModel

Halves = npt.NDArray[np.float16]

# Prompt tokens of one call, padding included.
_CALL_TOKENS = 2048
# Tokens of one call that reads hidden states, padding included.
_STATE_TOKENS = 4096
_PREFIX, _PROMPTS = (1, 2), ((3,), (4, 5, 6, 7, 8), (9, 3, 7), (6, 4))
_STEPS = ((9, 10, 5, 13), (11, 12, 14, 3))


class BatchedDecoder:
    """Feeds one token of every sequence of a batch per call, after it has read the prompts.

    Args:
        model: The target.
        prefix: Token ids that all sequences begin with; computed once.
        prompts: Token ids that follow in each sequence; may be empty; fastest if sorted by length.
    """

    def __init__(self, model: LoadedModel, prefix: Sequence[int], prompts: Sequence[Sequence[int]]) -> None:
        self._network = model.network
        shared: list[Any] = [KVCache() for _ in make_prompt_cache(model.network)]
        _feed(model.network, [prefix], shared)
        parts: list[list[Any]] = []
        for part in parts_of_a_call([len(prompt) for prompt in prompts], _CALL_TOKENS):
            group = prompts[part.start : part.stop]
            width = max(map(len, group))
            parts.append([BatchKVCache.merge([layer] * len(group)) for layer in shared])
            for cache in parts[-1]:
                cache.prepare(right_padding=[width - len(prompt) for prompt in group])
            _feed(model.network, group, parts[-1])
            for cache in parts[-1]:
                cache.finalize()
            mx.eval([cache.state[:2] for cache in parts[-1]])
        while len(parts) > 1:  # Joining in pairs copies less than one after the other.
            for ours, theirs in zip(parts[::2], parts[1::2], strict=False):
                for cache, other in zip(ours, theirs, strict=True):
                    cache.extend(other)
                    mx.eval(cache.state[:2])
                    other.keys = other.values = None  # This frees their memory.
            parts = parts[::2]
        self._layers = parts[0]

    def step(self, tokens: Sequence[int]) -> mx.array:
        """Feed one token of each sequence; return the (batch, vocabulary) logits, lazy."""
        logits: mx.array = self._network(mx.array(list(tokens))[:, None], cache=self._layers)
        return logits[:, -1]

    def keep(self, sequences: Sequence[int]) -> None:
        """Drop all sequences but these indices."""
        chosen = mx.array(list(sequences))
        for layer in self._layers:
            layer.filter(chosen)
            mx.eval(layer.state[:2])
        mx.clear_cache()


def parts_of_a_call(lengths: Sequence[int], token_limit: int) -> list[range]:
    """Split neighbouring sequences into parts of at most `token_limit`, padded; a part may be one longer sequence."""
    starts, longest = [0], 0
    for index, length in enumerate(lengths):
        longest = max(longest, length)
        if index > starts[-1] and (index + 1 - starts[-1]) * longest > token_limit:
            starts.append(index)
            longest = length
    return [range(start, stop) for start, stop in zip(starts, [*starts[1:], len(lengths)], strict=True)]


def padded(rows: Sequence[Sequence[int]]) -> mx.array:
    """Return rows of token ids, padded on the right: later tokens cannot change a token's keys, values and state."""
    width = max(map(len, rows))
    return mx.array([[*row, *[0] * (width - len(row))] for row in rows])


def _feed(network: nn.Module, rows: Sequence[Sequence[int]], caches: list[Any]) -> None:
    if any(rows):
        trunk: nn.Module = network.get("model", network)
        trunk(padded(rows), cache=caches)


def check_batched_decoding(model: LoadedModel) -> None:
    """Refuse a model whose logits in a batch differ from those of each sequence alone, tried on a few tokens.

    Feeding sequences at once and token by token shows how much rounding alone explains.

    Raises:
        ModelError: If the model keeps more than keys and values between tokens, or has its own way of reading positions
            or masks; the message says so.
    """
    if any(not hasattr(layer, "keys") for layer in make_prompt_cache(model.network)):
        raise _refusal(model, "it keeps more than keys and values between tokens")
    try:
        error, limit = _compare(model)
    except Exception as failure:  # Models may use caches and masks in any way.
        if is_device_error(failure):
            raise
        raise _refusal(model, " ".join(str(failure).split())[:120]) from failure
    if not error <= limit:  # Also where it is NaN.
        raise _refusal(model, f"its logits in a batch were different (off by {error:.2g} deviations)")


def _refusal(model: LoadedModel, reason: str) -> ModelError:
    return ModelError(
        f"{model.info.name} cannot answer several questions at once, so no drafter can be trained for it: {reason}.",
        "Choose another model.",
    )


def _compare(model: LoadedModel) -> tuple[float, float]:
    """Return how far sequences in a batch are from those fed alone, in standard deviations, and the limit."""
    decoder = BatchedDecoder(model, _PREFIX, _PROMPTS)
    decoder.step(_STEPS[0])
    logits = decoder.step(_STEPS[1])
    rows = on_host(logits)
    errors, noise = list[float](), list[float]()
    for sequence, prompt in enumerate(_PROMPTS):
        tokens = [*_PREFIX, *prompt, *(step[sequence] for step in _STEPS)]
        expected = _alone(model, [tokens])
        errors += row_errors(rows[sequence : sequence + 1], expected)
        noise += row_errors(_alone(model, [[token] for token in tokens]), expected)
    return median_error(errors), rounding_limit(noise, logits.dtype)


def _alone(model: LoadedModel, calls: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
    """Return the (1, vocabulary) logits after the last token of a sequence fed in several calls."""
    caches = make_prompt_cache(model.network)
    for tokens in calls:
        logits = model.network(mx.array([tokens]), cache=caches)
    return on_host(logits[0, -1:])


def hidden_states(
    model: LoadedModel, conversations: Sequence[TrainingConversation], reads: HiddenReads
) -> Iterator[tuple[int, Halves]]:
    """Yield the index of each conversation with its (tokens, width) states; those of similar length share a call."""
    model.hooks.read(reads)
    order = sorted(range(len(conversations)), key=lambda index: len(conversations[index].tokens))
    for part in parts_of_a_call([len(conversations[index].tokens) for index in order], _STATE_TOKENS):
        group = order[part.start : part.stop]
        model.network(padded([conversations[index].tokens for index in group]))
        assert model.hooks.hidden is not None
        states = fetch(model.hooks.hidden.astype(mx.float16))
        for index, row in zip(group, states, strict=True):
            yield index, row[: len(conversations[index].tokens)]
