"""A chat with one model: applies its chat template and keeps the KV cache between turns."""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace

import mlx.core as mx

from rdchat.errors import PromptTooLongError
from rdchat.inference.api.events import DraftOptions
from rdchat.inference.api.protocol import StoppedError, TokenIterator
from rdchat.inference.api.requests import DraftSettings, GenerationRequest
from rdchat.inference.auto.auto_drafter import AutoDrafter
from rdchat.inference.auto.auto_iterator import AutoIterator
from rdchat.inference.decoding.autoregressive import AutoregressiveIterator
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import Clock, ReplyJob
from rdchat.inference.decoding.rounds import RoundIterator
from rdchat.inference.drafters import Drafters
from rdchat.inference.mode_options import ModeOptions
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.memory_errors import memory_errors
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.warming import warm

_LOG = logging.getLogger(__name__)


class ChatSession:
    """Makes replies, one at a time, each prefilling only what differs from the conversation before.

    The text of a reply is a function of the request alone, up to rounding: the cache is trimmed to the common prefix of
    its tokens and the prompt's, so after a further turn only the new tokens are read, after an edit those behind it.

    Args:
        model: The target.
        drafters: The model's drafters, where another session has loaded some.

    Attributes:
        model: The target.
        drafters: Give a reply its drafter.
        cache: Holds the conversation as far as it was fed to the model.
    """

    def __init__(self, model: LoadedModel, drafters: Drafters | None = None) -> None:
        self.model = model
        self.cache = KVCache(model.network)
        self.drafters = drafters or Drafters(model)
        self._options = ModeOptions(model, self.drafters)
        self._running: TokenIterator | None = None
        self._warming: Generator[None] | None = None

    def generate(self, request: GenerationRequest, stopped: Callable[[], bool] = lambda: False) -> TokenIterator:
        """Begin a reply; one still running is closed first.

        `stopped` is asked while the chat template is rendered, which a stranger wrote.

        A drafting mode that this model cannot serve, or whose drafter or draft model is missing or wrong, gives plain
        decoding; the end of the reply says why.

        Raises:
            PromptTooLongError: If the conversation leaves no room for a reply.
            ModelError: If the chat template refuses the conversation.
            StoppedError: If `stopped` said so.
        """
        self._warming = None
        if self._running is not None:
            self._running.close()
        with memory_errors("for what drafts"):
            reason = self.drafters.try_load(request.draft)
        clock, ledger = Clock(), Ledger()
        with ledger.stage("template and tokenize"):
            prompt = self.model.encode_chat(
                request.messages, request.continue_last, lambda: _go_on(stopped), request.thinking
            )
        self._check_length(len(prompt))
        mx.reset_peak_memory()
        self.cache.keep_prefix_of(prompt)
        costs = self.drafters.auto.costs
        job = ReplyJob(
            self.model,
            self.cache,
            prompt,
            request,
            ledger,
            clock,
            plain_ms=costs.plain_ms,
            plain_error=lambda: costs.plain_error,
        )
        ready = None if reason else self.drafters.prepare(job)
        if ready is None:
            self._running = AutoregressiveIterator(replace(job, mode_reason=reason))
        else:
            job, drafter = ready
            if isinstance(drafter, AutoDrafter):
                self._running = AutoIterator(job, drafter)
            else:
                self._running = RoundIterator(job, drafter)
        return self._running

    def draft_options(self, settings: DraftSettings, drafters: Sequence[str] = ()) -> DraftOptions:
        """Tell which modes the target can have with what `settings` name, and which of some drafters fit it."""
        return DraftOptions(self.model.info.path, self._options.tell(settings), self._options.fits(drafters))

    def idle(self) -> bool:
        """Do a slice of what can wait; see `Engine.idle`. Nothing is measured before the first reply."""
        if self._warming is not None:
            return self._warm()
        return self._running is not None and self.drafters.auto.measure()

    def _warm(self) -> bool:
        """Do a slice of warming; return whether there is more. A model may fail in its own ways, and its reply says."""
        assert self._warming is not None
        try:
            next(self._warming)
        except StopIteration:
            self._warming = None
        except Exception:
            _LOG.exception("Warming up broke off")
            self._warming = None
        return self._warming is not None

    def fork(self) -> "ChatSession":
        """Return another session of the same model and drafters, with an empty KV cache of its own."""
        return ChatSession(self.model, self.drafters)

    def forget(self) -> None:
        """Empty the KV caches, a draft model's too, so that the next reply begins with nothing."""
        if self._running is not None:
            self._running.close()
        self.cache.reset()
        self.drafters.forget()

    def warm_up(self) -> None:
        """Run the network once, so that the model can be used, and load what the usual mode drafts with.

        What else a first reply compiles is compiled by `idle`, until there is one.
        """
        with memory_errors(f"to run {self.model.info.name}"):
            cache = KVCache(self.model.network)
            for tokens in ([0] * 8, [0]):
                mx.eval(self.model.network(mx.array([tokens]), cache=cache.layers))
            self.drafters.try_load(DraftSettings())
        self._warming = warm(self.model, self.drafters)

    def _check_length(self, length: int) -> None:
        context = self.model.info.context_length
        if length >= context:
            raise PromptTooLongError(
                f"The conversation is {length:,} tokens long; with the reply, "
                f"{self.model.info.name} takes {context:,}.",
                "Shorten the prompt, start a new chat, or pick a model with a longer context.",
            )


def _go_on(stopped: Callable[[], bool]) -> None:
    if stopped():
        raise StoppedError
