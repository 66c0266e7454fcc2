"""The loaded model as decoding sees it: hooks, caches with rounds, the prefix tree, and verification."""

import rdchat.inference.blas  # before MLX
import rdchat.inference.mlx_lm_fixes  # before mlx-lm
from rdchat.inference.verification.capability import (
    check_capability,
    median_error,
    on_host,
    rounding_limit,
    row_errors,
    use_capability,
)
from rdchat.inference.verification.hooks import HiddenReads, ModelHooks, wrap_call
from rdchat.inference.verification.kv_cache import KVCache, Operation, Tree, first_offset, mirror_of, shared_prefix
from rdchat.inference.verification.prefix_caches import PrefixCaches, usual_limit
from rdchat.inference.verification.prefix_tree import Ints, PrefixTree
from rdchat.inference.verification.round_cache import (
    AttentionRows,
    RoundArraysCache,
    RoundKVCache,
    RowBuffer,
    UnsupportedCacheError,
    has_all_rows,
    leaves,
    take_waits,
)
from rdchat.inference.verification.target import (
    Feed,
    LoadedModel,
    PrefillPace,
    StageTimer,
    TargetEmbeddings,
    embedding_scale,
    untimed,
)
from rdchat.inference.verification.verifier import PackedTree, Verified, Verifier
