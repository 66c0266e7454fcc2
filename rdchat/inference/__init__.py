"""Language models on this machine: loading, decoding, chat sessions. All MLX code is here, and no Qt.

Importing this package is cheap. The public names below load MLX when they are first used, so that a window can be
shown before.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rdchat.inference.api.protocol import TokenIterator
    from rdchat.inference.api.requests import GenerationRequest, SamplingParams
    from rdchat.inference.models.loading import load_model
    from rdchat.inference.session import ChatSession
    from rdchat.inference.verification.prefix_tree import PrefixTree

__all__ = ["ChatSession", "GenerationRequest", "PrefixTree", "SamplingParams", "TokenIterator", "load_model"]

_HOMES = {
    "ChatSession": "session",
    "GenerationRequest": "api.requests",
    "PrefixTree": "verification.prefix_tree",
    "SamplingParams": "api.requests",
    "TokenIterator": "api.protocol",
    "load_model": "models.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
