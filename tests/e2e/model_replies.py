"""Replies of the real default model, and whether two of them are the same but for a near-tie."""

from typing import Any

import mlx.core as mx
import numpy as np

from rdchat.inference.api import ChatMessage, DraftSettings, GenerationRequest, Mode, ReplyEnd, Role, SamplingParams
from rdchat.inference.decoding.reductions import log_denominator
from rdchat.inference.decoding.sampling import filter_border
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import reply_end

CODE = "Write a Python function that reverses a list. Then write the same function again with a comment in each line."
PROSE = "Explain in three sentences why the sky is blue."
SUMS = "What is 12 * 34? Think step by step and repeat every step."

_ERROR = 1e-3


def request(prompt: str, sampling: dict[str, Any], **draft: Any) -> GenerationRequest:
    params = SamplingParams(max_tokens=20, **sampling)
    settings = DraftSettings(**{"mode": Mode.OFF, **draft})
    return GenerationRequest((ChatMessage(Role.USER, prompt),), params, seed=11, draft=settings)


def reply(session: ChatSession, asked: GenerationRequest) -> ReplyEnd:
    return reply_end(session.generate(asked))


def check_same(
    model: LoadedModel,
    asked: GenerationRequest,
    plain: tuple[int, ...],
    drafted: tuple[int, ...],
) -> None:
    """Assert equal tokens, up to a near-tie that a perturbation of the float32 logits by 1e-3 explains."""
    differing = [i for i, (a, b) in enumerate(zip(plain, drafted, strict=False)) if a != b]
    if not differing and len(plain) == len(drafted):
        return
    first = differing[0]
    params = asked.sampling
    prompt = model.encode_chat(asked.messages)
    logits = logits_after(model, [*prompt, *plain[:first]])
    ordered = mx.sort(logits, axis=-1)[:, ::-1]
    border = filter_border(ordered, log_denominator(logits), params).item()
    pair = np.array(logits)[0, [plain[first], drafted[first]]]
    at_border = np.abs(pair - border).min() < _ERROR
    gap = abs(pair[0] - pair[1])
    told = f"diverged at token {first}: logits {pair}, border {border}"
    assert at_border or (params.greedy and gap < 2 * _ERROR), told


def logits_after(model: LoadedModel, tokens: list[int]) -> mx.array:
    """Return (1, vocabulary) what follows tokens on a fresh KV cache."""
    return model.network(mx.array([tokens]), cache=KVCache(model.network).layers)[:, -1]
