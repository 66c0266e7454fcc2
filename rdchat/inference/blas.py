"""Prepares this process for MLX; every package that imports MLX imports this module first.

It loads a fast BLAS, makes float32 products exact, and keeps compiled kernels where no other user can write.
"""

from rdchat import host
from rdchat.inference.kernel_folder import keep_kernels_private

host.prefer_fast_blas()
host.switch_tf32_off()
keep_kernels_private()
