"""Networks that draft from the target's hidden states: one protocol, several kinds."""

import rdchat.inference.blas  # noqa: F401  before MLX
