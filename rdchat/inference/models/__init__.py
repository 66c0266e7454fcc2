"""Models on disk, and loading them: folders, GGUF files, the default model; checked before they are read."""

import rdchat.inference.blas  # noqa: F401  before MLX
