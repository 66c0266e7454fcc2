"""The function from products of hidden states and output rows to a target's logits.

In most families it is the identity; Cohere's and Granite's scale the products, Gemma's caps them with a tanh. It rises
in all of them, so a curve that is measured on the target serves every family.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import LoadedModel

_TOKENS = 64  # tokens that it is measured on
_POINTS = 1025  # of the curve, at most


@dataclass(frozen=True, slots=True)
class LogitCurve:
    """A rising piecewise linear function.

    Attributes:
        products: (points,) float32, ascending: products of hidden state and output row.
        logits: (points,) float32: the target's logit of each. Below the first product the first logit holds; beyond
            the last one the slope of the last tenth goes on: that of two points is rounding, where logits have 16 bits.
    """

    products: npt.NDArray[np.float32]
    logits: npt.NDArray[np.float32]

    @classmethod
    def of(cls, model: LoadedModel, embeddings: TargetEmbeddings) -> "LogitCurve":
        """Measure it in one call of the target, with tokens from all of its vocabulary."""
        size = model.info.vocabulary_size
        tokens = mx.linspace(0, size - 1, min(_TOKENS, size)).astype(mx.int32)
        logits = model.network(tokens[None])[0].astype(mx.float32)
        assert model.hooks.hidden is not None
        states = model.hooks.hidden[0, :, : embeddings.width].astype(mx.float32)
        products = states @ embeddings.output_rows(mx.arange(size)).astype(mx.float32).T
        x, y = (each.ravel() for each in fetch(products, logits))
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
        chosen = np.minimum(np.searchsorted(x, np.linspace(x[0], x[-1], _POINTS)), x.size - 1)
        x, places = np.unique(x[chosen], return_index=True)
        return cls(x, np.maximum.accumulate(y[chosen][places]))

    def __call__(self, products: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return the logits of products, in the shape of `products`."""
        x, y = self.products, self.logits
        tenth = min(int(np.searchsorted(x, x[-1] - 0.1 * (x[-1] - x[0]))), x.size - 2)
        slope = (y[-1] - y[tenth]) / (x[-1] - x[tenth])
        logits: npt.NDArray[np.floating] = np.interp(products, x, y) + slope * np.maximum(products - x[-1], 0)
        return logits
