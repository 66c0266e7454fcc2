"""A model's KV cache, all layers of it, and the tokens that it holds."""

from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.target.round_cache import UnsupportedCacheError, round_cache


class KVCache:
    """A model's KV cache together with the tokens it holds.

    `tokens` are the ids that the network has been fed. `trim_to` shortens both alike or, where a cache cannot be
    shortened (a rotating window that wrapped, recurrent state), empties both.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.layers: list[Any] = _with_rounds(make_prompt_cache(self._network))
        self.tokens: list[int] = []

    def trim_to(self, length: int) -> int:
        """Keep the first `length` tokens, or none where that cannot be done; return how many are left."""
        surplus = len(self.tokens) - length
        if surplus > 0:
            if not all(_can_trim(layer, surplus) for layer in self.layers):
                self.reset()
                return 0
            for layer in self.layers:
                layer.trim(surplus)
            del self.tokens[length:]
        return len(self.tokens)

    def keep_prefix_of(self, prompt: list[int]) -> int:
        """Keep what the cache shares with a prompt, the prompt's last token excepted; return how much that is."""
        pairs = zip(self.tokens, prompt[:-1], strict=False)
        shared = next((i for i, (held, wanted) in enumerate(pairs) if held != wanted), None)
        return self.trim_to(min(len(self.tokens), len(prompt) - 1) if shared is None else shared)

    def evaluate(self) -> None:
        """Wait until the cache's own arrays are computed."""
        mx.eval([layer.state for layer in self.layers])


def _with_rounds(layers: list[Any]) -> list[Any]:
    """Return caches that can open rounds, or the stock ones where a type is not known."""
    try:
        return [round_cache(layer) for layer in layers]
    except UnsupportedCacheError:
        return layers


def _can_trim(layer: Any, count: int) -> bool:
    return bool(layer.can_trim(count) if hasattr(layer, "can_trim") else layer.is_trimmable())
