"""The loaded model as decoding sees it: hooks, caches with rounds, the prefix tree, and verification."""

import rdchat.inference.blas  # noqa: F401  before MLX
