"""The engine that runs the chosen model: on this machine, on a remote server, or over several hosts."""

from collections.abc import Callable, Sequence

from rdchat.errors import ModelError
from rdchat.inference.api.benchmark import BenchPlan, BenchRunner
from rdchat.inference.api.events import DraftOptions, LoadProgress, ModelInfo, PrefixCacheFacts
from rdchat.inference.api.messages import ChatMessage
from rdchat.inference.api.model_address import ranked_model, remote_model
from rdchat.inference.api.protocol import Engine, TokenIterator
from rdchat.inference.api.requests import DraftSettings, Dtype, GenerationRequest
from rdchat.inference.ranks.hosts import Host
from rdchat.inference.remote.server_list import RemoteServer


class ChosenEngine:
    """Implements `api.protocol.Engine` by the engine that the address of the model asks for; see `model_address`.

    An engine is imported and made at its first use, on the thread of the calls, and kept without its model while
    another one is used.

    Args:
        remote_servers: Returns the remote servers that the person added.
        hosts: Returns the Macs that the person added.
    """

    def __init__(
        self,
        remote_servers: Callable[[], Sequence[RemoteServer]] = tuple,
        hosts: Callable[[], Sequence[Host]] = tuple,
    ) -> None:
        self._remote_servers, self._hosts = remote_servers, hosts
        self._engines: dict[str, Engine] = {}
        # Other threads read it.
        self._used: Engine | None = None
        self._cache_bytes: int | None = None

    def load(
        self, model: str | None, dtype: Dtype, on_progress: Callable[[LoadProgress], None], anyway: bool = False
    ) -> ModelInfo:
        engine, used = self._engine_for(model), self._used
        if used not in (None, engine):
            # Two models may not fit into memory.
            self._used = None
            used.unload()
        self._used = engine
        return engine.load(model, dtype, on_progress, anyway)

    def unload(self) -> int:
        return self._current().unload()

    def generate(self, request: GenerationRequest, stopped: Callable[[], bool] = lambda: False) -> TokenIterator:
        return self._current().generate(request, stopped)

    def draft_options(self, settings: DraftSettings, drafters: Sequence[str] = ()) -> DraftOptions:
        return self._current().draft_options(settings, drafters)

    def load_drafters(self, settings: DraftSettings, on_progress: Callable[[LoadProgress], None]) -> None:
        self._current().load_drafters(settings, on_progress)

    def prefix_caches(self, limit_bytes: int | None = None) -> PrefixCacheFacts:
        self._cache_bytes = limit_bytes if limit_bytes is not None else self._cache_bytes
        return self._current().prefix_caches(limit_bytes)

    def count_tokens(self, prompt: Sequence[ChatMessage] | GenerationRequest) -> int:
        if (used := self._used) is None:
            raise ModelError("No model is loaded.", "Choose one from the menu above the chat.")
        return used.count_tokens(prompt)

    def idle(self, *, hidden: bool = False) -> bool:
        return self._current().idle(hidden=hidden)

    def rest(self) -> None:
        self._current().rest()

    def sleep(self) -> None:
        self._current().sleep()

    def wake(self) -> None:
        self._current().wake()

    def benchmark(self, plan: BenchPlan) -> BenchRunner:
        return self._current().benchmark(plan)

    def close(self) -> None:
        engines, self._used = self._engines, None
        self._engines = {}
        for engine in engines.values():
            engine.close()

    def _current(self) -> Engine:
        """Return the engine of the last `load`; before the first one, that of this machine."""
        return self._used or self._engine_for(None)

    def _engine_for(self, model: str | None) -> Engine:
        if remote_model(model):
            return self._made("remote", self._remote_engine)
        if ranked_model(model):
            return self._made("ranks", self._ranks_engine)
        return self._made("local", self._local_engine)

    def _made(self, kind: str, make: Callable[[], Engine]) -> Engine:
        if kind not in self._engines:
            self._engines[kind] = make()
            if self._cache_bytes is not None:
                self._engines[kind].prefix_caches(self._cache_bytes)
        return self._engines[kind]

    def _local_engine(self) -> Engine:
        from rdchat.inference.local_engine import LocalEngine  # noqa: PLC0415  MLX: at the first use

        return LocalEngine()

    def _remote_engine(self) -> Engine:
        from rdchat.inference.remote.remote_engine import RemoteEngine  # noqa: PLC0415  it loads an HTTP client

        return RemoteEngine(self._remote_servers)

    def _ranks_engine(self) -> Engine:
        from rdchat.inference.ranks.ranks_engine import RanksEngine  # noqa: PLC0415

        return RanksEngine(self._hosts)
