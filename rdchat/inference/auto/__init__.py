"""The automatic mode: decodes plainly until drafting pays, with what drafts best, in the size that pays best.

`cost_model` predicts what target calls and drafts cost on this machine, `acceptance` how far the target follows each
drafter, `sources` lists what each can draft, `planner` compares, `controller` decides, `control_loop` carries it out.
Only `auto_drafter`, `auto_iterator`, `state`, `measuring`, `scratch` and `calibration` know MLX.
"""

import rdchat.inference.blas  # noqa: F401  before MLX
