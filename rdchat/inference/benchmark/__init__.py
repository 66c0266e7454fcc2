"""Measuring drafting modes against plain decoding, interleaved, on prompts of one's own."""

import rdchat.inference.blas  # noqa: F401  before MLX
