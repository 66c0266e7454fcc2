"""The automatic mode: decodes plainly until drafting pays, then drafts with the best drafter and size.

`cost_model` predicts the cost of target calls and drafts on this machine, and `acceptance` how many drafted tokens the
target accepts. `sources` lists what each drafter can draft, `planner` compares the drafts, `controller` decides.
Only `auto_drafter`, `state` and `measuring` import MLX.
"""

import rdchat.inference.blas  # noqa: F401  before MLX
