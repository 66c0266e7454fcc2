"""What a model is on disk, and loading it: folders, GGUF files, the default model; checked before they are read."""

import rdchat.inference.blas  # noqa: F401  before MLX
