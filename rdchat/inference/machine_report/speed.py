"""Measures how fast this process decodes and reads, with MLX as its environment sets it up."""

from typing import Any

import mlx.core as mx

from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.benchmark.recording import Recording, record
from rdchat.inference.machine_report.measures import request_of_depth
from rdchat.inference.models.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.work.job import Job

_WARM_UP_TOKENS = 8
_READ = 512  # tokens of the prompt whose reading is measured, roughly


def measure_speed(model: str | None, question: str, tokens: int, job: Job[Any]) -> dict[str, Any]:
    """Decode a reply plainly and one with drafts, and read a long prompt.

    Args:
        model: A name or a folder; None is the default model.
        question: What it is asked.
        tokens: Length limit of a reply.
        job: Ends the work between two tokens.

    Returns:
        Tokens per second of decoding by mode, and of reading; MLX's peak memory while it
        reads, in bytes.
    """
    session = ChatSession(load_model(model))
    options = session.draft_options(DraftSettings()).modes
    able = {option.mode for option in options if option.available}
    modes = [Mode.OFF, *[mode for mode in (Mode.DRAFTER, Mode.LOOKUP) if mode in able][:1]]
    decode_tps: dict[str, float | None] = {}
    for mode in modes:
        for limit in (_WARM_UP_TOKENS, tokens):
            sampling = SamplingParams(temperature=0, max_tokens=limit)
            request = GenerationRequest((ChatMessage(Role.USER, question),), sampling, draft=DraftSettings(mode))
            reply = _recorded(session, request, job)
        decode_tps[mode.value] = reply.statistics.decode_tps
    depth = min(_READ, session.model.info.context_length // 2)
    session.forget()
    mx.clear_cache()
    mx.reset_peak_memory()
    read = _recorded(session, request_of_depth(session, depth, 1), job).statistics
    read_tps = read.prompt_tokens / read.prefill_ms * 1000
    return {"decode_tps": decode_tps, "read_tps": read_tps, "peak_memory_bytes": mx.get_peak_memory()}


def _recorded(session: ChatSession, request: GenerationRequest, job: Job[Any]) -> Recording:
    found = record(session, request, lambda: job.cancelled)
    job.check()
    assert found is not None
    return found
