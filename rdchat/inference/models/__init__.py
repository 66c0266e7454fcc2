"""Model folders: finding, checking, making and loading them."""

import rdchat.inference.blas  # noqa: F401  before MLX
