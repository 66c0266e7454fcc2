"""Training a recurrent drafter for a target: data that the target writes itself, then a small head that predicts it."""

import rdchat.inference.blas  # noqa: F401  before MLX
