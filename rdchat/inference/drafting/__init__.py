"""Drafters: prompt lookup, a draft model, drafter heads, and their files."""

import rdchat.inference.blas  # noqa: F401  before MLX
