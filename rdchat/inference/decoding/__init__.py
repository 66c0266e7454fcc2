"""Decoding of a reply: plain steps and rounds, the choice of each token, and the text."""

import rdchat.inference.blas  # noqa: F401  before MLX
