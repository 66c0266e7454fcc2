"""The loaded model as decoding sees it: its hooks, its caches with rounds, the prefix tree and its verification."""

import rdchat.inference.blas  # noqa: F401  before MLX
