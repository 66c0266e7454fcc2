"""Benchmarks of drafting modes against plain decoding, interleaved, on any prompts."""

import rdchat.inference.blas  # noqa: F401  before MLX
