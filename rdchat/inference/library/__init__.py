"""The models on this machine as the models window lists them: read from headers, cached on disk.

Only `fitting_drafters` imports MLX: the window may ask before the engine has started.
"""

import rdchat.inference.blas  # noqa: F401  before MLX
