"""Each rank's part of a model on a ring: rank 0 sends its network's calls, and the others repeat them."""

import rdchat.inference.blas  # noqa: F401  before MLX
