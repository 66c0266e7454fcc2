"""Plain decoding beside stock mlx-lm on the same network, at one depth: speed and peak memory."""

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
        session: Whose model answers; what its caches hold is lost.
        depth: Tokens of the prompt, roughly.
        out_of_time: Looked at between replies and between chunks of the prompt.

    Returns:
        Tokens of the prompt, pairs of replies, medians of tokens per second and of their ratio, and the most bytes that
        MLX held; no figures where not one pair was finished.
    """
    ours, theirs = list[Recording](), list[Recording]()
    peaks: dict[str, int] = {}
    request = _request(session, depth)
    for trial in range(_TRIALS):
        pair: dict[str, Recording] = {}
        for name in ("rdchat", "mlx-lm") if trial % 2 else ("mlx-lm", "rdchat"):
            mx.clear_cache()
            mx.reset_peak_memory()
            made = record if name == "rdchat" else _record_mlx_lm
            found = made(session, request, out_of_time)
            if found is None:
                return _figures(ours, theirs, peaks)
            pair[name] = found
            peaks[name] = max(peaks.get(name, 0), mx.get_peak_memory())
        ours.append(pair["rdchat"])
        theirs.append(pair["mlx-lm"])
    return _figures(ours, theirs, peaks)


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


def _figures(ours: list[Recording], theirs: list[Recording], peaks: dict[str, int]) -> dict[str, Any]:
    speeds = [
        (mine.statistics.decode_tps, other.statistics.decode_tps) for mine, other in zip(ours, theirs, strict=True)
    ]
    known = [(mine, other) for mine, other in speeds if mine and other]
    return {
        "prompt_tokens": ours[0].statistics.prompt_tokens if ours else None,
        "pairs": len(known),
        "decode_tps": median(mine for mine, _ in known) if known else None,
        "mlx_lm_decode_tps": median(other for _, other in known) if known else None,
        "ratio_to_mlx_lm": median(mine / other for mine, other in known) if known else None,
        "peak_memory_bytes": peaks if known else {},
    }
