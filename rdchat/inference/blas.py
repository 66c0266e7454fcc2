"""Prepares this process for MLX. Every room that imports MLX imports this module first: MLX takes what is there.

The fast BLAS is loaded, and float32 products are float32; kernels are kept where no other user can put any;
transformers, which mlx-lm imports, begins more quickly.
"""

from rdchat import host
from rdchat.inference.kernel_folder import keep_kernels_private
from rdchat.inference.transformers_start import quicken_transformers

host.prefer_fast_blas()
host.switch_tf32_off()
keep_kernels_private()
quicken_transformers()
