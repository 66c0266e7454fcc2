"""Reading the prompt into the cache, chunk by chunk."""

from collections.abc import Callable, Iterator
from time import perf_counter

import mlx.core as mx

from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.target import LoadedModel


def prefill(
    model: LoadedModel, cache: KVCache, prompt: list[int], cancelled: Callable[[], bool], ledger: Ledger
) -> Iterator[int]:
    """Feed the prompt but for its last token, from where the cache ends.

    Args:
        model: The target.
        cache: Holds the first tokens of the prompt, and afterwards all but the last.
        prompt: Token ids.
        cancelled: Looked at before each chunk; True ends the work between two chunks.
        ledger: Takes the host time, a call for each chunk.

    Yields:
        Tokens processed so far, at the start and after each chunk.
    """
    done = len(cache.tokens)
    yield done
    while done < len(prompt) - 1 and not cancelled():
        chunk = prompt[done : min(done + model.prefill_chunk, len(prompt) - 1)]
        began = perf_counter()
        with ledger.stage("prefill"):
            model.network(mx.array(chunk)[None], cache=cache.layers)
            cache.evaluate()
            cache.tokens += chunk
            mx.clear_cache()
        model.pace.note(len(chunk), perf_counter() - began)
        done += len(chunk)
        yield done


def read_prompt(model: LoadedModel, cache: KVCache, prompt: list[int]) -> mx.array:
    """Feed a prompt, from where the cache ends; return (1, vocabulary), lazy: the logits behind its last token."""
    for _ in prefill(model, cache, prompt, lambda: False, Ledger()):
        pass
    logits: mx.array = model.network(mx.array([prompt[-1:]]), cache=cache.layers)
    cache.tokens.append(prompt[-1])
    return logits[:, -1]
