"""Making a reply: plain decoding and rounds, how a token is chosen, and the text that comes of it."""

import rdchat.inference.blas  # noqa: F401  before MLX
