"""Finds weights that are not finite."""

import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten


def first_damaged_layer(network: nn.Module) -> str | None:
    """Return the path of the first layer whose weights are not all finite, such as `model.layers.3.mlp.up_proj`."""
    for name, array in tree_flatten(network.parameters()):
        if mx.issubdtype(array.dtype, mx.floating) and not mx.all(mx.isfinite(array)).item():
            return str(name.rpartition(".")[0])
    return None
