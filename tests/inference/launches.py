"""The launches of a lazy graph."""

import io
import re

import mlx.core as mx

# Primitives that compute nothing.
_VIEWS = {"Broadcast", "BroadcastAxes", "Depends", "ExpandDims", "Flatten", "Reshape", "Slice", "Split", "Squeeze",
          "Transpose", "Unflatten"}  # fmt: skip


def launches(*lazy: mx.array) -> list[str]:
    """Return the primitives of a graph that cost a launch."""
    text = io.StringIO()
    mx.export_to_dot(text, *lazy)
    return [name for name in re.findall(r'label ="(\w+)", shape=rectangle', text.getvalue()) if name not in _VIEWS]
