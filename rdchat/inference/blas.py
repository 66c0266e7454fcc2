"""Has the fast BLAS loaded. Every room that imports MLX imports this module first, since MLX takes what is there."""

from rdchat import host

host.prefer_fast_blas()
