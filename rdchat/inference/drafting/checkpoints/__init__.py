"""Drafter files: recognising, checking, reading and writing them, and finding those made for a model."""

import rdchat.inference.blas  # noqa: F401  before MLX
