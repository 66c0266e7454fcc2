"""Drafters: prompt lookup, a draft model, the recurrent drafter with its head and its folder."""

import rdchat.inference.blas  # noqa: F401  before MLX
