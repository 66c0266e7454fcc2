"""Towers that make rows of images, as functions of their weights."""

import rdchat.inference.blas  # noqa: F401  before MLX
