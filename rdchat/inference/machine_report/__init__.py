"""What `rdchat report` measures of a machine and a model: plain dictionaries of figures, no chats, names or paths."""

import rdchat.inference.blas  # noqa: F401  before MLX
