"""KV caches on disk: their files, when they are written, and how a prompt begins with them."""

import rdchat.inference.blas  # noqa: F401  before MLX
