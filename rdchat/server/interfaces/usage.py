"""The counters of replies, as each interface names them."""

from collections.abc import Sequence
from typing import Any

from rdchat.server.interfaces.reply_request import Choice


def drafting(choices: Sequence[Choice]) -> dict[str, Any]:
    """Return what drafting did for a request, our own addition to its usage.

    `drafted` and `accepted` count tokens, `target_calls` the decode calls of the model, and `cached_tokens` the prompt
    tokens that were in a KV cache already. `tokens_per_second` leaves out the first token; it is null below two tokens.
    `reply_seeds` are the seeds of the replies: `rdchat ask --seed` with one of them gives the same reply.
    """
    each = [choice.last.statistics for choice in choices]
    later, spent_ms = sum(max(one.generated_tokens - 1, 0) for one in each), sum(one.decode_ms for one in each)
    return {
        "drafted": sum(one.drafted for one in each),
        "accepted": sum(one.accepted for one in each),
        "target_calls": sum(one.target_calls for one in each),
        "tokens_per_second": round(later / spent_ms * 1000, 2) if later and spent_ms else None,
        "cached_tokens": sum(one.cached_prompt_tokens for one in each),
        "reply_seeds": [choice.seed for choice in choices],
    }


def openai_usage(choices: Sequence[Choice], replies_to_each: int) -> dict[str, Any]:
    """Return OpenAI's counters: each prompt counts once, whatever the number of its replies."""
    first = [choice.last.statistics for choice in choices if choice.index % replies_to_each == 0]
    prompt = sum(one.prompt_tokens for one in first)
    completion = _completion(choices)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": sum(one.cached_prompt_tokens for one in first)},
        "rdchat": drafting(choices),
    }


def anthropic_usage(choice: Choice) -> dict[str, Any]:
    """Return Anthropic's counters: `input_tokens` leaves cached ones out."""
    one = choice.last.statistics
    counted = anthropic_input(one.prompt_tokens, one.cached_prompt_tokens)
    return counted | {"output_tokens": _completion([choice]), "rdchat": drafting([choice])}


def anthropic_input(tokens: int, cached: int) -> dict[str, Any]:
    """Return the counters of a prompt."""
    return {
        "input_tokens": tokens - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
    }


def _completion(choices: Sequence[Choice]) -> int:
    return sum(len(choice.last.token_ids) for choice in choices)
