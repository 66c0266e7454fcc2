"""Training of drafters: the target writes the training data, and a small head learns to predict it."""

import rdchat.inference.blas  # noqa: F401  before MLX
