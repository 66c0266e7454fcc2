"""What each rank of a ring computes of a model: rank 0 sends its network's calls, the others repeat them."""

import rdchat.inference.blas  # noqa: F401  before MLX
