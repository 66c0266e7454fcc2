"""`EnginesByAddress`, the engines of the app: a model's address says which of them runs it.

That is the one on this machine, of remote servers, or over several Macs.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rdchat.inference.api import (
    ChatImage,
    Dtype,
    Engine,
    Engines,
    Host,
    ModelInfo,
    OnProgress,
    RemoteServer,
    ranked_model,
    remote_model,
)
from rdchat.inference.prompts.tokenizer_process import shared_tokenizers
from rdchat.inference.vision.image_process import shared_images

# Characters of a text whose count would take seconds.
_LONG = 1_000_000
# The module that imports MLX.
_LOCAL = "rdchat.inference.local_engine"


class EnginesByAddress(Engines):
    """Chooses an engine by a model's address; see `remote_model` and `ranked_model`.

    An engine is imported and made at its first use, on the thread of the calls. It stays, without its model, while
    another one is used.

    Args:
        remote_servers: Returns the remote servers that the person added.
        hosts: Returns the Macs that the person added.
    """

    def __init__(
        self, remote_servers: Callable[[], Sequence[RemoteServer]] = tuple, hosts: Callable[[], Sequence[Host]] = tuple
    ) -> None:
        self._remote_servers = remote_servers
        self._hosts = hosts
        self._engines: dict[Callable[..., Engine], Engine] = {}
        # Other threads read these: the engine of the last load, and the folder of the last model on this machine.
        self._used: Engine | None = None
        self._folder: Path | None = None

    @property
    def chosen(self) -> Engine:
        return self._used or self._engine_for(None)

    def load(self, model: str | None, dtype: Dtype, on_progress: OnProgress, anyway: bool = False) -> ModelInfo:
        engine = self._engine_for(model)
        if self._used not in (None, engine):
            # Two models may not fit into memory.
            self._used.unload()
        self._used = engine
        info = engine.load(model, dtype, on_progress, anyway)
        if not info.server:
            self._folder = info.path
        return info

    def close(self) -> None:
        self._used = None
        while self._engines:
            self._engines.popitem()[1].close()

    def _engine_for(self, model: str | None) -> Engine:
        """Return the engine for an address, made at its first use."""
        if remote_model(model):
            from rdchat.inference.remote.remote_engine import RemoteEngine  # noqa: PLC0415  it loads an HTTP client

            return self._made(RemoteEngine, self._remote_servers, _draw, self._count_text)
        if ranked_model(model):
            from rdchat.inference.rank_processes.ranks_engine import RanksEngine  # noqa: PLC0415

            return self._made(RanksEngine, self._hosts)
        from rdchat.inference.local_engine import LocalEngine  # noqa: PLC0415  MLX

        return self._made(LocalEngine)

    def _count_text(self, text: str) -> int:
        """Count a text with the tokenizer of the last model on this machine; 0 without one, and of a long text."""
        if self._folder is None or len(text) > _LONG:
            return 0
        return len(shared_tokenizers().encode_text(self._folder, text))

    def _made(self, kind: Callable[..., Engine], *arguments: Any) -> Engine:
        """Return the engine of a class, made with these arguments if there is none yet."""
        if kind not in self._engines:
            self._engines[kind] = kind(*arguments)
        return self._engines[kind]


def start_tokenizers() -> None:
    """Start the child that runs tokenizers: it imports transformers while this process imports MLX."""
    shared_tokenizers().start_child()


def import_mlx() -> None:
    """Import what runs models on this machine, on the thread that calls the engine.

    Two threads that import mlx-lm at the same time may block each other for ever.
    """
    importlib.import_module(_LOCAL)


def has_mlx() -> bool:
    """Return whether MLX is imported, so that other threads may use it.

    A module stands in `sys.modules` while it is still being imported; its class is there only after its own imports.
    """
    return hasattr(sys.modules.get(_LOCAL), "LocalEngine")


def _draw(image: ChatImage, size: tuple[int, int]) -> bytes:
    """Return an image scaled to a size, as the bytes that a remote server gets."""
    return shared_images().scale_image(image.path, size, name=image.name)
