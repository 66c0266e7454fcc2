"""Model folders and GGUF files: finding, checking, converting and loading them."""

import rdchat.inference.blas  # noqa: F401  before MLX
