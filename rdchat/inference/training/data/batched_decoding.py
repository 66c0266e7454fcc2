"""Batched decoding of many conversations: one target call a step for all sequences, each at its own position.

mlx-lm's batch caches hold the sequences padded on the left, and give each row its own positions and mask. Sliding
windows are masks of full caches here.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import BatchKVCache, KVCache, dynamic_roll, make_prompt_cache

from rdchat.inference.target.target import LoadedModel

_CALL_TOKENS = 2048  # prompt tokens, padding included, in one call


class BatchedDecoder:
    """Feeds every sequence of a batch one token a call.

    Args:
        model: The target.
        layers: One cache for each layer of the model.
    """

    def __init__(self, model: LoadedModel, layers: list[BatchKVCache]) -> None:
        self._network, self._hooks, self._layers = model.network, model.hooks, layers

    @classmethod
    def read(cls, model: LoadedModel, prefix: Sequence[int], prompts: Sequence[Sequence[int]]) -> "BatchedDecoder":
        """Prefill a batch.

        Args:
            model: The target.
            prefix: Token ids that all sequences begin with; computed once.
            prompts: Token ids that follow in each sequence, fastest in order of their length; a prompt may be empty.
        """
        shared: list[Any] = [KVCache() for _ in make_prompt_cache(model.network)]
        _feed(model.network, [prefix], shared)
        layers: list[Any] = []
        for part in parts_of_a_call([len(prompt) for prompt in prompts], _CALL_TOKENS):
            group = prompts[part.start : part.stop]
            width = max(map(len, group))
            filled = [BatchKVCache.merge([layer] * len(group)) for layer in shared]
            for cache in filled:
                cache.prepare(right_padding=[width - len(prompt) for prompt in group])
            _feed(model.network, group, filled)
            for place, cache in enumerate(filled):
                cache.finalize()
                if part.start:
                    layers[place].extend(cache)
            layers = layers or filled
            mx.eval([layer.state[:2] for layer in layers])
        return cls(model, layers)

    @classmethod
    def of_state(
        cls, model: LoadedModel, held: Sequence[int], layers: Sequence[tuple[mx.array, mx.array]]
    ) -> "BatchedDecoder":
        """Return the decoder whose `state` is given."""
        width, caches = max(held), []
        for keys, values in layers:
            cache = BatchKVCache([0] * len(held))
            cache.update_and_fetch(keys[:, :, :width], values[:, :, :width])
            cache.prepare(right_padding=[width - count for count in held])
            cache.finalize()
            caches.append(cache)
        return cls(model, caches)

    def state(self) -> tuple[list[int], list[tuple[mx.array, mx.array]]]:
        """Return how many tokens each sequence holds, and the keys and values of each layer.

        These are (batch, heads, columns, head_dim), the tokens of each sequence from column 0 on.
        """
        layers = []
        for layer in self._layers:
            padding = layer.left_padding[:, None]
            keys, values = (dynamic_roll(array, -padding, axis=2) for array in layer.keys_and_values())
            layers.append((keys, values))
        held: list[int] = self._layers[0].offset.tolist()
        return held, layers

    def step(self, tokens: Sequence[int]) -> tuple[mx.array, mx.array]:
        """Feed one token of each sequence; return (batch, vocabulary) logits and (batch, width) hidden states, lazy."""
        logits: mx.array = self._network(mx.array(list(tokens))[:, None], cache=self._layers)
        assert self._hooks.hidden is not None
        return logits[:, -1], self._hooks.hidden[:, -1]

    def keep(self, sequences: Sequence[int]) -> None:
        """Drop all sequences but these indices."""
        chosen = mx.array(list(sequences))
        for layer in self._layers:
            layer.filter(chosen)
            mx.eval(layer.state[:2])
        mx.clear_cache()


def parts_of_a_call(lengths: Sequence[int], most_tokens: int) -> list[range]:
    """Split neighbouring sequences into parts that take at most so many tokens, once padded; or are one sequence."""
    starts, longest = [0], 0
    for place, length in enumerate(lengths):
        longest = max(longest, length)
        if place > starts[-1] and (place + 1 - starts[-1]) * longest > most_tokens:
            starts.append(place)
            longest = length
    return [range(start, stop) for start, stop in zip(starts, [*starts[1:], len(lengths)], strict=True)]


def padded(rows: Sequence[Sequence[int]]) -> mx.array:
    """Return rows of token ids, padded on the right: what follows a token cannot change its keys, values and state."""
    width = max(map(len, rows))
    return mx.array([[*row, *[0] * (width - len(row))] for row in rows])


def _feed(network: nn.Module, rows: Sequence[Sequence[int]], caches: list[Any]) -> None:
    if any(rows):
        trunk: nn.Module = network.get("model", network)
        trunk(padded(rows), cache=caches)
