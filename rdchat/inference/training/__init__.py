"""Training a drafter: the target writes the data itself, and a small head learns to predict it."""

import rdchat.inference.blas  # noqa: F401  before MLX
