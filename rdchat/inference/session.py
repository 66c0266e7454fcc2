"""A chat with one model: applies its chat template and keeps the KV cache between turns."""

import mlx.core as mx

from rdchat.errors import PromptTooLongError
from rdchat.inference.autoregressive import AutoregressiveIterator
from rdchat.inference.ledger import Ledger
from rdchat.inference.protocol import GenerationRequest, TokenIterator
from rdchat.inference.reply import Clock, ReplyJob
from rdchat.inference.target import KVCache, LoadedModel


class ChatSession:
    """Makes replies, one at a time, each prefilling only what differs from the conversation before.

    The text of a reply is a function of the request alone: the cache is trimmed to the common prefix of its tokens and
    the prompt's, so after a further turn only the new tokens are read, after an edit those behind it.

    Args:
        model: The target.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._cache = KVCache(model.network)
        self._running: TokenIterator | None = None

    @property
    def cached_tokens(self) -> list[int]:
        """Token ids the KV cache holds."""
        return list(self._cache.tokens)

    @property
    def cached_positions(self) -> int:
        """Positions the KV cache itself reports, which `cached_tokens` must match."""
        return max((getattr(layer, "offset", 0) for layer in self._cache.layers), default=0)

    def generate(self, request: GenerationRequest) -> TokenIterator:
        """Begin a reply; one still running is closed first.

        Raises:
            PromptTooLongError: If the conversation leaves no room for a reply.
            ModelError: If the chat template refuses the conversation.
        """
        if self._running is not None:
            self._running.close()
        clock, ledger = Clock(), Ledger()
        with ledger.stage("template and tokenize"):
            prompt = self._model.encode_chat(request.messages, request.continue_last)
        self._check_length(len(prompt))
        mx.reset_peak_memory()
        self._cache.keep_prefix_of(prompt)
        self._running = AutoregressiveIterator(ReplyJob(self._model, self._cache, prompt, request, ledger, clock))
        return self._running

    def warm_up(self) -> None:
        """Run the network once, so that kernels are compiled before the first question."""
        cache = KVCache(self._model.network)
        for tokens in ([0] * 8, [0]):
            mx.eval(self._model.network(mx.array([tokens]), cache=cache.layers))

    def _check_length(self, length: int) -> None:
        context = self._model.info.context_length
        if length >= context:
            raise PromptTooLongError(
                f"The conversation is {length:,} tokens long; with the reply, "
                f"{self._model.info.name} takes {context:,}.",
                "Shorten the prompt, start a new chat, or pick a model with a longer context.",
            )
