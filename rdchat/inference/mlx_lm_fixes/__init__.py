"""What rdchat mends of mlx-lm (0.32.2): settings that it misses, rotary positions, and faults of its modules.

The reference is transformers (5.23), the library of the models' authors; docs/families.md compares them type by type.
Each mend gives its reason. `tests/inference/mlx_lm_fixes/test_still_needed.py` takes one mend away at a time: a case
fails once mlx-lm computes right without it, and then the mend may go.
"""
