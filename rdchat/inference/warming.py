"""Compiles what a first reply needs before there is one, in slices between which a prompt may come."""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
from collections.abc import Generator
from contextlib import closing

import numpy as np

from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.decoding.autoregressive import AutoregressiveIterator
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.decoding.rounds import RoundIterator
from rdchat.inference.drafters import Drafters
from rdchat.inference.target.target import LoadedModel

_MODES = (Mode.OFF, Mode.LOOKUP, Mode.DRAFTER)  # those of the automatic mode; a draft model is loaded when asked for
_PROMPT_TOKENS, _REPEATED = 24, 3  # what prompt lookup is to find
_TOKENS = 16
_SEEDS = 3  # tried, as a reply may end with its first token


def warm(model: LoadedModel, drafters: Drafters) -> Generator[None]:
    """Write a few sampled and traced tokens in each mode there is.

    Nothing is learnt from it: caches are its own, and the automatic mode is not told.

    Args:
        model: The target.
        drafters: Its drafters, the usual ones loaded.

    Yields:
        After each slice; whoever needs the thread closes the generator.
    """
    for mode in _MODES:
        draft = DraftSettings(mode, trace=True)
        if drafters.try_load(draft) is None:
            yield from _write(model, drafters, draft)


def _write(model: LoadedModel, drafters: Drafters, draft: DraftSettings) -> Generator[None]:
    few = np.random.default_rng(0).integers(0, model.info.vocabulary_size, _PROMPT_TOKENS // _REPEATED).tolist()
    sampling = SamplingParams(max_tokens=_TOKENS)
    for seed in range(_SEEDS):
        request = GenerationRequest((ChatMessage(Role.USER, "-"),), sampling, seed, draft=draft)
        with closing(_reply(model, drafters, few * _REPEATED, request)) as events:
            for _ in events:
                yield
            if draft.mode is Mode.OFF or events.statistics.rounds:
                return


def _reply(model: LoadedModel, drafters: Drafters, prompt: list[int], request: GenerationRequest) -> ReplyIterator:
    job = ReplyJob.fresh(model, prompt, request)
    ready = drafters.prepare(job)
    return AutoregressiveIterator(job) if ready is None else RoundIterator(*ready)
