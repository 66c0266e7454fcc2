"""Makes the replies of benchmarks and of evaluations of drafters, timed token by token, with rdchat or stock mlx-lm.

A run is one reply with its setting; a round is a draft with the target call that verifies it.

All runs on the engine thread. Times are in milliseconds from the request on.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from time import perf_counter_ns
from typing import Any

import mlx.core as mx
from mlx_lm.sample_utils import make_sampler

from rdchat.errors import PromptTooLongError
from rdchat.inference.api import (
    BenchPiece,
    BenchRun,
    GenerationRequest,
    Prompt,
    ReplyEnd,
    Stage,
    Statistics,
    TokenEvent,
)
from rdchat.inference.mlx_lm_fixes.unwired import generation_stream, stream_generate
from rdchat.inference.session import ChatSession
from rdchat.inference.verification import LoadedModel

# Tokens of a reply that are decoded again with exact times.
_EXACT_TOKENS = 32
# A run without a setting and without a reply.
BLANK = BenchRun(0, 0, "", 0, (), (), (), Statistics())


def check_lengths(model: LoadedModel, prompts: Sequence[Prompt]) -> None:
    """Check before the first prompt that all prompts can be answered.

    Raises:
        PromptTooLongError: If a prompt leaves no room for a reply.
        ModelError: If the chat template refuses one.
    """
    room = model.info.context_length
    for number, prompt in enumerate(prompts, start=1):
        length = len(model.encode_chat((prompt.message,)))
        if length + 2 > room:
            raise PromptTooLongError(
                f"Prompt {number} is {length:,} tokens long; {model.info.name} takes {room:,} with a reply.",
                "Remove it from the prompts, or choose a model with a longer context.",
            )


def record(
    session: ChatSession, request: GenerationRequest, cancelled: Callable[[], bool], run: BenchRun = BLANK
) -> BenchRun | None:
    """Make a reply, starting with empty KV caches.

    Args:
        session: Its caches are emptied.
        request: The prompt and how to draft.
        cancelled: Called between tokens, and between chunks of the prompt.
        run: The run, without its reply.

    Returns:
        The run with its reply; None if it was cancelled.
    """
    # The generator returns the run, which only its end has.
    pieces = stream(session, request, cancelled, run)
    while True:
        try:
            next(pieces)
        except StopIteration as end:
            recorded: BenchRun | None = end.value
            return recorded


def stream(
    session: ChatSession, request: GenerationRequest, cancelled: Callable[[], bool], run: BenchRun
) -> Generator[BenchPiece, None, BenchRun | None]:
    """Yield the text of a run's reply as it is written; see `record`."""
    session.drop_caches()
    tokens = list[TokenEvent]()
    times_ms = list[float]()
    began = perf_counter_ns()
    with closing(session.generate(request)) as events:
        for event in events:
            if cancelled():
                return None
            if isinstance(event, TokenEvent):
                tokens.append(event)
                times_ms.append((perf_counter_ns() - began) / 1e6)
                if event.round is not None:
                    # All tokens of a round get the time of its first one.
                    emitted = event.round.emitted
                    times_ms[-emitted:] = [times_ms[-emitted]] * emitted
                yield BenchPiece(run.cell, event.text)
            elif isinstance(event, ReplyEnd):
                end = event
    mx.synchronize()  # A call queued beyond the end must not use the next reply's time.
    # A stop string cuts tokens that came already.
    count = len(end.token_ids)
    pieces = [token.text for token in tokens[:count]]
    choice = end.statistics.choice
    chosen = ""
    if choice is not None:
        chosen = f"{choice.mode} W{choice.width} L{choice.length}" if choice.length else choice.mode
    return replace(
        run,
        token_ids=end.token_ids,
        pieces=(*pieces[:-1], pieces[-1] + end.trailing_text) if pieces else (),
        times_ms=tuple(times_ms[:count]),
        statistics=end.statistics,
        mode_reason=end.mode_reason,
        chosen=chosen,
    )


def record_mlx_lm(
    model: LoadedModel, request: GenerationRequest, cancelled: Callable[[], bool], run: BenchRun
) -> BenchRun | None:
    """Make a reply with stock `mlx_lm.stream_generate` on the same network, sampling by its own rule.

    Args:
        model: The target.
        request: The prompt; its draft settings are not used.
        cancelled: Called between tokens and between chunks of the prompt.
        run: The run, without its reply.

    Returns:
        The run with its reply; None if it was cancelled.
    """
    sampling = request.sampling
    prompt = model.encode_chat(request.messages)
    mx.random.seed(request.seed)

    def check_cancelled(_processed: int, _total: int) -> None:
        if cancelled():
            raise _CancelledError

    tokens = list[Any]()
    times_ms = list[float]()
    began = perf_counter_ns()
    responses = stream_generate(
        model.network,
        model.tokenizer,
        prompt,
        max_tokens=min(sampling.max_tokens, model.info.context_length - len(prompt)),
        sampler=make_sampler(temp=sampling.temperature, top_p=sampling.top_p),
        prefill_step_size=model.pace.chunk,
        prompt_progress_callback=check_cancelled,
    )
    try:
        with closing(responses):
            for response in responses:
                check_cancelled(0, 0)
                tokens.append(response)
                times_ms.append((perf_counter_ns() - began) / 1e6)
    except _CancelledError:
        return None
    finally:
        mx.synchronize(generation_stream)
    first = times_ms[0]
    last = times_ms[-1]
    return replace(
        run,
        token_ids=tuple(token.token for token in tokens),
        pieces=tuple(token.text for token in tokens),
        times_ms=tuple(times_ms),
        statistics=Statistics(
            prompt_tokens=len(prompt),
            generated_tokens=len(tokens),
            prefill_ms=first,
            ttft_ms=first,
            decode_ms=last - first,
            target_calls=len(tokens) - 1,
        ),
    )


def measure_rounds(
    session: ChatSession, request: GenerationRequest, run: BenchRun, cancelled: Callable[[], bool]
) -> tuple[float | None, float | None]:
    """Compare a reply's first rounds with their drafts and target calls alone.

    The first tokens are decoded again with exact times, so that every stage waits for its own result. The time of whole
    rounds is that of the reply itself, the times of drafts and target calls are those of the repetition.

    Args:
        session: The session of the reply; its caches are emptied.
        request: The reply's request, in a drafting mode.
        run: The reply's run.
        cancelled: Called between tokens.

    Returns:
        The time of the rounds divided by that of their drafts and target calls alone, and the mean milliseconds of a
        draft; None if the reply had no rounds, or it was cancelled.
    """
    sampling = replace(request.sampling, max_tokens=min(request.sampling.max_tokens, _EXACT_TOKENS))
    exact = replace(request, sampling=sampling, draft=replace(request.draft, profile=True))
    again = record(session, exact, cancelled) if run.statistics.rounds else None
    if again is None or not again.statistics.rounds:
        return None, None
    stages = {entry.name: entry for entry in again.statistics.ledger if entry.parent == Stage.ROUND}
    draft = stages[Stage.DRAFT]
    verify = stages[Stage.VERIFY]
    rounds = min(run.statistics.rounds, draft.calls)
    # The tokens of a round share a moment; the first token is before all rounds.
    moments = list(dict.fromkeys(run.times_ms))
    took_ms = (moments[rounds] - moments[0]) / rounds
    return took_ms / ((draft.total_ms + verify.total_ms) / draft.calls), draft.total_ms / draft.calls


class _CancelledError(Exception):
    """Stops mlx-lm while it reads a prompt."""
