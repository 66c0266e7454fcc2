"""The target's token embeddings and output rows, as a recurrent drafter uses them."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import mlx.nn as nn

from rdchat.errors import ModelError

_EMBEDDINGS = (nn.Embedding, nn.QuantizedEmbedding)
_OUTPUTS = (nn.Linear, nn.QuantizedLinear)


class TargetEmbeddings:
    """Finds both tables in an unmodified mlx-lm model, by their type and number of rows.

    Args:
        network: The target.
        vocabulary_size: Columns of its logits.

    Attributes:
        width: `hidden_size`, of a token's embedding.
        dtype: Of a token's embedding.

    Raises:
        ModelError: If no embedding table of that many rows is found.
    """

    def __init__(self, network: nn.Module, vocabulary_size: int) -> None:
        named = [(name, module) for name, module in network.named_modules() if _rows(module) == vocabulary_size]
        modules = [module for _, module in sorted(named, key=lambda pair: pair[0].count("."))]  # outermost first
        tables = [module for module in modules if isinstance(module, _EMBEDDINGS)]
        heads = [module for module in modules if isinstance(module, _OUTPUTS)]
        if not tables:
            raise ModelError("The model keeps its token embeddings in a way that recurrent drafters cannot use.")
        self._table: Any = tables[0]
        self._output: Any = heads[0] if heads else self._table

        example = self.embed(mx.array([0]))
        self.width = int(example.shape[-1])
        self.dtype = example.dtype

    def embed(self, tokens: mx.array) -> mx.array:
        """Return the embeddings of tokens, (...) -> (..., hidden_size), as stored: without a family's scaling."""
        embeddings: mx.array = self._table(tokens)
        return embeddings

    def output_rows(self, token_ids: mx.array) -> mx.array:
        """Return the output rows of tokens, (n,) -> (n, hidden_size), in the precision of the embeddings."""
        module = self._output
        if isinstance(module, nn.QuantizedEmbedding):
            return self.embed(token_ids)
        if not isinstance(module, nn.QuantizedLinear):
            rows: mx.array = module.weight[token_ids]
            return rows
        parts = (module.weight[token_ids], module.scales[token_ids], module.biases[token_ids])
        return mx.dequantize(*parts, group_size=module.group_size, bits=module.bits, mode=module.mode)

    def output_for(self, token_ids: mx.array) -> Callable[[mx.array], mx.array]:
        """Return the function from features, (..., hidden_size), to the logits of some tokens, (..., n).

        It holds its own copy of their rows, quantised where the target's are.
        """
        module = self._output
        bias = module.bias[token_ids] if "bias" in module else None
        if not isinstance(module, nn.QuantizedEmbedding | nn.QuantizedLinear):
            rows = mx.contiguous(module.weight[token_ids])
            mx.eval(rows, bias)
            return lambda features: _plus(features @ rows.T, bias)
        weight, scales, biases = module.weight[token_ids], module.scales[token_ids], module.biases[token_ids]
        mx.eval(weight, scales, biases, bias)
        options = {"group_size": module.group_size, "bits": module.bits, "mode": module.mode}
        return lambda features: _plus(
            mx.quantized_matmul(features, weight, scales, biases, transpose=True, **options), bias
        )


def _plus(logits: mx.array, bias: mx.array | None) -> mx.array:
    return logits if bias is None else logits + bias


def _rows(module: nn.Module) -> int:
    return int(module.weight.shape[0]) if isinstance(module, (*_EMBEDDINGS, *_OUTPUTS)) else 0
