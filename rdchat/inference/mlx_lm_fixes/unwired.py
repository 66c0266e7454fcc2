"""mlx-lm's own decoding (0.32.2), which wires no memory here: only `wired_memory` does, where a person asks for it."""

import importlib

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
from mlx_lm.generate import BatchGenerator, generation_stream, stream_generate

__all__ = ["BatchGenerator", "generation_stream", "stream_generate"]

# Both call this, which sets the limit to all that Metal recommends. None means that the device has no limit.
vars(importlib.import_module("mlx_lm.generate"))["maybe_set_recommended_wired_limit"] = lambda: None
