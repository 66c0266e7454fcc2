"""Language models on this machine: loading, decoding, chat sessions. MLX lives here and nowhere else; Qt never does.

Importing this package is cheap. The names below load MLX when they are first used, so that a window can be shown
before; its `requests`, `statistics`, `events` and `protocol` never need MLX at all.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rdchat import host

if TYPE_CHECKING:
    from rdchat.inference.loading import load_model
    from rdchat.inference.prefix_tree import PrefixTree
    from rdchat.inference.protocol import TokenIterator
    from rdchat.inference.requests import GenerationRequest, SamplingParams
    from rdchat.inference.session import ChatSession

__all__ = ["ChatSession", "GenerationRequest", "PrefixTree", "SamplingParams", "TokenIterator", "load_model"]

_HOMES = {
    "ChatSession": "session",
    "GenerationRequest": "requests",
    "PrefixTree": "prefix_tree",
    "SamplingParams": "requests",
    "TokenIterator": "protocol",
    "load_model": "loading",
}

host.prefer_fast_blas()  # must precede the process's first `import mlx.core`


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
