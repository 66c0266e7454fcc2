"""What a model can verify, tried once for all equal ones of a process: a trial takes some 60 calls."""

import hashlib
from dataclasses import replace

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

from rdchat.inference.verification.capability import Capability, check_capability, use_capability
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.target import LoadedModel

_found: dict[str, Capability] = {}


def with_known(model: LoadedModel, capability: Capability) -> LoadedModel:
    """Return a model that was found out to verify this; its hooks are left as a trial leaves them."""
    use_capability(model.network, model.hooks, model.info.vocabulary_size, capability)
    return replace(model, try_out=lambda: capability)


def check_once(network: nn.Module, hooks: ModelHooks, vocabulary_size: int) -> Capability:
    """Return what a network can verify, and leave the hooks as a trial does."""
    weights = tree_flatten(network.parameters())
    setting = f"{vocabulary_size} {mx.default_device()} {network} {getattr(network, 'args', '')}"
    digest = hashlib.sha256(setting.encode())
    for name, array in weights:
        digest.update(f"{name} {array.shape} {array.dtype}".encode())
        digest.update(memoryview(mx.contiguous(array).flatten().view(mx.uint8)))
    key = digest.hexdigest()
    if key not in _found:
        _found[key] = check_capability(network, hooks, vocabulary_size)
    else:
        use_capability(network, hooks, vocabulary_size, _found[key])
    return _found[key]
