"""Compares plain decoding with stock mlx-lm on the same network at one depth: speed and peak memory."""

from collections.abc import Callable
from statistics import median
from typing import Any

import mlx.core as mx

from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.benchmark.recording import Recording, record, record_mlx_lm
from rdchat.inference.session import ChatSession

_SENTENCE = "A keeper of a lighthouse counts the ships that pass, and writes their names into a book. "
_TOKENS, _TRIALS = 32, 3


def compare_plain(session: ChatSession, depth: int, out_of_time: Callable[[], bool]) -> dict[str, Any]:
    """Decode a reply to a prompt of about `depth` tokens in turns with mlx-lm.

    Args:
        session: Its caches are emptied.
        depth: Tokens of the prompt, roughly.
        out_of_time: Called between replies and between chunks of the prompt.

    Returns:
        Tokens of the prompt, pairs of replies, medians of tokens per second and of their ratio, and MLX's peak memory
        in bytes; empty if not one pair was finished.
    """
    pairs, peaks = list[dict[str, Recording]](), {"rdchat": 0, "mlx-lm": 0}
    request = _request(session, depth)
    for trial in range(_TRIALS):
        pair: dict[str, Recording] = {}
        for name in ("rdchat", "mlx-lm") if trial % 2 else ("mlx-lm", "rdchat"):
            mx.clear_cache()
            mx.reset_peak_memory()
            made = record if name == "rdchat" else _record_mlx_lm
            if (found := made(session, request, out_of_time)) is None:
                return _figures(pairs, peaks)
            pair[name] = found
            peaks[name] = max(peaks[name], mx.get_peak_memory())
        pairs.append(pair)
    return _figures(pairs, peaks)


def _record_mlx_lm(
    session: ChatSession, request: GenerationRequest, out_of_time: Callable[[], bool]
) -> Recording | None:
    session.forget()  # only one cache is in memory
    return record_mlx_lm(session.model, request, out_of_time)


def _request(session: ChatSession, depth: int) -> GenerationRequest:
    def request(sentences: int) -> GenerationRequest:
        message = ChatMessage(Role.USER, _SENTENCE * sentences)
        return GenerationRequest((message,), sampling, draft=DraftSettings(mode=Mode.OFF))

    sampling = SamplingParams(temperature=0, max_tokens=_TOKENS)
    few, many = (len(session.model.encode_chat(request(n).messages, continue_last=False)) for n in (1, 11))
    return request(max(1, 1 + (depth - few) * 10 // (many - few)))


def _figures(pairs: list[dict[str, Recording]], peaks: dict[str, int]) -> dict[str, Any]:
    speeds = [(pair["rdchat"].statistics.decode_tps, pair["mlx-lm"].statistics.decode_tps) for pair in pairs]
    known = [(mine, other) for mine, other in speeds if mine and other]
    if not known:
        return {}
    return {
        "prompt_tokens": pairs[0]["rdchat"].statistics.prompt_tokens,
        "pairs": len(known),
        "decode_tps": median(mine for mine, _ in known),
        "mlx_lm_decode_tps": median(other for _, other in known),
        "ratio_to_mlx_lm": median(mine / other for mine, other in known),
        "peak_memory_bytes": peaks,
    }
