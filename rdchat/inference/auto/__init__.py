"""The automatic mode: decodes plainly until drafting pays, with what drafts best, in the size that pays best.

`costs` says what a target call and a draft cost on this machine, `acceptance` how far the target follows, `planner`
picks what gives the most tokens for the time, `iterator` decodes by it. Only `measuring`, `drafter` and `iterator` know
MLX; the rest is plain arithmetic.
"""

import rdchat.inference.blas  # noqa: F401  before MLX
