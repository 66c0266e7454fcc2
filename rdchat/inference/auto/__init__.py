"""The automatic mode: decodes plainly until drafting pays, then drafts with the best drafter and size.

`cost_model` predicts the cost of target calls and drafts on this machine. `planner` lists what each drafter can draft,
estimates how many tokens the target accepts, and compares the drafts. `controller` decides. Only `auto_drafter` and
`measuring` import MLX.
"""

import rdchat.inference.blas  # noqa: F401  before MLX
