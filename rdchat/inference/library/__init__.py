"""The models on this machine as the models window lists them: read from headers, kept in the cache folder.

No MLX here but in `fitting_drafters`: a window may ask before the engine has begun.
"""

import rdchat.inference.blas  # noqa: F401  before MLX
