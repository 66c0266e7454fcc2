"""Decodes many sequences at a time with mlx-lm's batch generator, and reads the hidden states of many."""

from collections.abc import Generator, Iterator, Sequence, Set
from contextlib import closing
from functools import partial
from itertools import batched

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx_lm.generate import BatchGenerator
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_sampler

from rdchat.errors import ModelError
from rdchat.inference.decoding.reductions import top_k
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.verification.capability import median_error, on_host, rounding_limit, row_errors
from rdchat.inference.verification.fetch import fetch
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.memory_errors import is_device_error
from rdchat.inference.verification.target import LoadedModel

Halves = npt.NDArray[np.float16]

# Draws among tokens with a mass of 0.95 (Holtzman et al. 2020, arXiv 1904.09751), the default of chats, too.
_nucleus = make_sampler(1.0, 0.95)
# Most likely tokens among which one is drawn: on a CPU, sorting a whole vocabulary takes ten times as long.
_CANDIDATES = 512
# A text loops if this many consecutive runs of this many tokens were all seen before.
_LOOP_RUN = 8
_LOOP_LENGTH = 8
# Tokens of a prompt in one call, which reads up to 8 prompts.
_CALL_TOKENS = 256
# Conversations of one call that reads hidden states.
_STATE_SEQUENCES = 4
# Prompts to try a model with, and how many tokens to write after each; they end in different calls.
_PROMPTS = [[1, 2, 3], [1, 2, 4, 5, 6, 7, 8], [1, 2, 9, 3, 7], [1, 2, 6, 4]]
_LIMITS = [3, 5, 2, 4]
_TRIED_TOKENS = 3


def write_on(
    model: LoadedModel,
    texts: Sequence[list[int]],
    limits: Sequence[int],
    temperatures: Sequence[float],
    ends: Set[int],
) -> Generator[None]:
    """Let the target continue texts together, each until it ends, loops or reaches its limit; yield after each call.

    What is drawn depends on the seed of `mx.random`. Closing the generator frees the memory.

    Args:
        model: The target.
        texts: Token ids, at least one each; new tokens are added to them, the one that ends a text included.
        limits: The most tokens to add to each text; at least 1.
        temperatures: Temperature of each text; 0 takes the most likely token.
        ends: Tokens that end a text.
    """
    starts = [len(text) for text in texts]
    stops = [[token] for token in ends]
    generator = BatchGenerator(
        model.network, stop_tokens=stops, completion_batch_size=len(texts), prefill_step_size=_CALL_TOKENS
    )
    generator.insert(texts, limits, samplers=[partial(_draw, each) for each in temperatures])
    with closing(generator):
        while _step(generator, texts, starts):
            yield


def _draw(temperature: float, logprobs: mx.array) -> mx.array:
    """Draw a token for each row of (n, vocabulary) from the nucleus after the temperature; at 0 take the argmax."""
    if not temperature:
        return mx.argmax(logprobs, axis=-1)
    ids, values = top_k(logprobs.astype(mx.float32), min(_CANDIDATES, logprobs.shape[-1]))
    return mx.take_along_axis(ids, _nucleus(values / temperature)[:, None], axis=-1)[:, 0]


def _step(generator: BatchGenerator, texts: Sequence[list[int]], starts: Sequence[int]) -> bool:
    """Make one call and add its tokens to the texts; return whether there was anything to do."""
    read, written = generator.next()
    for each in written:
        texts[each.uid].append(each.token)
    over = [each.uid for each in written if each.finish_reason or loops(texts[each.uid][starts[each.uid] :])]
    if over:
        generator.remove(over)  # Those that it ended itself are no longer there.
        mx.clear_cache()
    return bool(read or written)


def loops(tokens: Sequence[int]) -> bool:
    """Return whether the last `_LOOP_LENGTH` runs of `_LOOP_RUN` tokens all occurred before."""
    runs = [tuple(tokens[start : start + _LOOP_RUN]) for start in range(len(tokens) - _LOOP_RUN + 1)]
    return bool(runs) and set(runs[:-_LOOP_LENGTH]).issuperset(runs[-_LOOP_LENGTH:])


def check_batched_decoding(model: LoadedModel) -> None:
    """Refuse a model whose logits in a batch differ from those of each sequence alone, tried on a few tokens.

    Feeding sequences at once and token by token shows how much rounding alone explains.

    Raises:
        ModelError: If the model keeps more than keys and values between tokens, or has its own way of reading positions
            or masks; the message says so.
    """
    if any(not hasattr(layer, "keys") for layer in make_prompt_cache(model.network)):
        raise _refusal(model, "it keeps more than keys and values between tokens")
    try:
        error, limit = _compare(model)
    except Exception as failure:  # Models may use caches and masks in any way.
        if is_device_error(failure):
            raise
        raise _refusal(model, " ".join(str(failure).split())[:120]) from failure
    if not error <= limit:  # Also where it is NaN.
        raise _refusal(model, f"its logits in a batch were different (off by {error:.2g} deviations)")


def _refusal(model: LoadedModel, reason: str) -> ModelError:
    return ModelError(
        f"{model.info.name} cannot answer several questions at once, so no drafter can be trained for it: {reason}.",
        "Choose another model.",
    )


def _compare(model: LoadedModel) -> tuple[float, float]:
    """Return how far sequences in a batch are from those fed alone, in standard deviations, and the limit."""
    errors = list[float]()
    noise = list[float]()
    with closing(BatchGenerator(model.network, prefill_step_size=_TRIED_TOKENS)) as generator:
        generator.insert(_PROMPTS, _LIMITS)
        while responses := generator.next_generated():
            for each in responses:
                if each.finish_reason:
                    *tokens, _ = each.all_tokens
                    expected = _alone(model, [tokens])
                    errors += row_errors(on_host(each.logprobs[None]), expected)
                    noise += row_errors(_alone(model, [[token] for token in tokens]), expected)
                    dtype = each.logprobs.dtype
    return median_error(errors), rounding_limit(noise, dtype)


def _alone(model: LoadedModel, calls: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
    """Return the (1, vocabulary) log-probabilities after the last token of a sequence fed in several calls."""
    caches = make_prompt_cache(model.network)
    for tokens in calls:
        logits = model.network(mx.array([tokens]), cache=caches)[:, -1]
    return on_host(logits - mx.logsumexp(logits, axis=-1, keepdims=True))


def hidden_states(
    model: LoadedModel, conversations: Sequence[TrainingConversation], reads: HiddenReads
) -> Iterator[tuple[int, Halves]]:
    """Yield the index of each conversation with its (tokens, width) states; those of similar length share a call."""
    model.hooks.read(reads)
    order = sorted(range(len(conversations)), key=lambda index: len(conversations[index].tokens))
    for group in batched(order, _STATE_SEQUENCES):
        width = len(conversations[group[-1]].tokens)
        rows = [conversations[index].tokens for index in group]
        # Padded on the right: later tokens cannot change a token's state.
        model.network(mx.array([[*row, *[0] * (width - len(row))] for row in rows]))
        assert model.hooks.hidden is not None
        states = fetch(model.hooks.hidden.astype(mx.float16))
        for index, row, state in zip(group, rows, states, strict=True):
            yield index, state[: len(row)]
