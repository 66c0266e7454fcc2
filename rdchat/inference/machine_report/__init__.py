"""The measurements of `rdchat report`: plain dictionaries of figures, without chats, names or paths."""

import rdchat.inference.blas  # noqa: F401  before MLX
