"""What a target makes of the products of its hidden states and output rows, before they are its logits.

Most families take them as they are; Cohere's and Granite's scale them, Gemma's caps them with a tanh. All of them keep
their order, so a curve that is read off the target itself serves every family.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.target import LoadedModel

_TOKENS = 64  # that are read
_POINTS = 1025  # of the curve, at most


@dataclass(frozen=True, slots=True)
class LogitCurve:
    """A rising curve through points; beyond its ends it goes on straight.

    Attributes:
        products: (points,) float32, ascending.
        logits: (points,) float32: what the target makes of each.
    """

    products: npt.NDArray[np.float32]
    logits: npt.NDArray[np.float32]

    @classmethod
    def of(cls, model: LoadedModel, embeddings: TargetEmbeddings) -> "LogitCurve":
        """Read it off the target: one call with tokens from all of its vocabulary."""
        size = model.info.vocabulary_size
        tokens = mx.linspace(0, size - 1, min(_TOKENS, size)).astype(mx.int32)
        logits = model.network(tokens[None])[0].astype(mx.float32)
        assert model.hooks.hidden is not None
        states = model.hooks.hidden[0, :, : embeddings.width].astype(mx.float32)
        products = states @ embeddings.output_rows(mx.arange(size)).astype(mx.float32).T
        x, y = np.array(products).ravel(), np.array(logits).ravel()
        order = np.argsort(x, kind="stable")
        x, y = x[order], y[order]
        chosen = np.minimum(np.searchsorted(x, np.linspace(x[0], x[-1], _POINTS)), x.size - 1)
        x, places = np.unique(x[chosen], return_index=True)
        return cls(x, np.maximum.accumulate(y[chosen][places]))

    def __call__(self, products: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return the logits that belong to products, of any shape."""
        x, y = self.products, self.logits
        slope = (y[-1] - y[-2]) / (x[-1] - x[-2])
        logits: npt.NDArray[np.floating] = np.interp(products, x, y) + slope * np.maximum(products - x[-1], 0)
        return logits
