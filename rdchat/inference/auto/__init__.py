"""The automatic mode: decodes plainly until drafting pays, with what drafts best, in the size that pays best.

`costs/` says what a target call and a draft cost on this machine, `estimates/` how far the target follows, `controller`
decides by both, `control_loop` asks and tells it. Only `drafter`, `iterator`, `state`, `costs/measuring` and
`estimates/acceptance_calibration` know MLX; the rest is plain arithmetic.
"""

import rdchat.inference.blas  # noqa: F401  before MLX
