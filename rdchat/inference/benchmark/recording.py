"""Makes the replies of benchmarks and evaluations, timed token by token, with rdchat or stock mlx-lm."""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from time import perf_counter_ns

import mlx.core as mx
from mlx_lm import stream_generate
from mlx_lm.generate import generation_stream
from mlx_lm.sample_utils import make_sampler

from rdchat.errors import PromptTooLongError
from rdchat.inference.api.benchmark import BenchPiece
from rdchat.inference.api.events import ReplyEnd, TokenEvent
from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.reply_statistics import RoundStatistics, Stage, Statistics, stage_path
from rdchat.inference.api.requests import GenerationRequest
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel

# Tokens of a reply that are decoded again with exact times.
_EXACT_TOKENS = 32


@dataclass(slots=True)
class Recording:
    """A recorded reply.

    Attributes:
        pieces: Text that became final with each token.
        times_ms: Milliseconds from the request to each token; a round has one time.
        rounds: The rounds; empty in plain decoding.
        mode_reason: Why the mode did not run; None if it did.
    """

    token_ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    times_ms: list[float] = field(default_factory=list)
    rounds: list[RoundStatistics] = field(default_factory=list)
    statistics: Statistics = field(default_factory=Statistics)
    mode_reason: str | None = None

    @property
    def chosen(self) -> str:
        """The automatic mode's last choice as a sentence; empty in other modes."""
        choice = self.statistics.choice
        if choice is None:
            return ""
        return f"{choice.mode} W{choice.width} L{choice.length}" if choice.length else choice.mode

    def _take(self, token_id: int, text: str, time_ms: float) -> None:
        self.token_ids.append(token_id)
        self.pieces.append(text)
        self.times_ms.append(time_ms)

    def _end_round(self, ended: RoundStatistics) -> None:
        """Give all tokens of a round the time of its first one."""
        self.rounds.append(ended)
        self.times_ms[-ended.emitted :] = [self.times_ms[-ended.emitted]] * ended.emitted


def check_lengths(model: LoadedModel, prompts: Sequence[Prompt]) -> None:
    """Check before the first prompt that all prompts can be answered.

    Raises:
        PromptTooLongError: If a prompt leaves no room for a reply.
        ModelError: If the chat template refuses one.
    """
    room = model.info.context_length
    for number, prompt in enumerate(prompts, start=1):
        length = len(model.encode_chat((ChatMessage(Role.USER, prompt.text),), continue_last=False))
        if length + 2 > room:
            raise PromptTooLongError(
                f"Prompt {number} is {length:,} tokens long; {model.info.name} takes {room:,} with a reply.",
                "Remove it from the prompts, or choose a model with a longer context.",
            )


def record(session: ChatSession, request: GenerationRequest, cancelled: Callable[[], bool]) -> Recording | None:
    """Make a reply, starting with empty KV caches.

    Args:
        session: Its caches are emptied.
        request: The prompt and how to draft.
        cancelled: Called between tokens, and between chunks of the prompt.

    Returns:
        The reply; None if it was cancelled.
    """
    try:
        next(stream(session, request, cancelled))
    except StopIteration as end:
        recording: Recording | None = end.value
        return recording
    raise AssertionError("it yields nothing without a cell")


def stream(
    session: ChatSession, request: GenerationRequest, cancelled: Callable[[], bool], cell: int | None = None
) -> Generator[BenchPiece, None, Recording | None]:
    """Make a reply, see `record`; yield its text as it is written, if `cell` names the cell that it is for."""
    session.forget()
    recording, began = Recording(), perf_counter_ns()
    with closing(session.generate(request)) as events:
        for event in events:
            if cancelled():
                return None
            if isinstance(event, TokenEvent):
                recording._take(event.token_id, event.text, (perf_counter_ns() - began) / 1e6)
                if event.round is not None:
                    recording._end_round(event.round)
                if cell is not None:
                    yield BenchPiece(cell, event.text)
            elif isinstance(event, ReplyEnd):
                recording.statistics, recording.mode_reason = event.statistics, event.mode_reason
                if recording.pieces:
                    recording.pieces[-1] += event.trailing_text
    mx.synchronize()  # A call queued beyond the end must not use the next reply's time.
    return recording


def record_mlx_lm(model: LoadedModel, request: GenerationRequest, cancelled: Callable[[], bool]) -> Recording | None:
    """Make a reply with stock `mlx_lm.stream_generate` on the same network, sampling by its own rule.

    Args:
        model: The target.
        request: The prompt; its draft settings are not used.
        cancelled: Called between tokens and between chunks of the prompt.

    Returns:
        The reply; None if it was cancelled.
    """
    sampling = request.sampling
    prompt = model.encode_chat(request.messages, continue_last=False)
    mx.random.seed(request.seed)

    def look(_processed: int, _total: int) -> None:
        if cancelled():
            raise _CancelledError

    recording, began = Recording(), perf_counter_ns()
    responses = stream_generate(
        model.network,
        model.tokenizer,
        prompt,
        max_tokens=min(sampling.max_tokens, model.info.context_length - len(prompt)),
        sampler=make_sampler(temp=sampling.temperature, top_p=sampling.top_p),
        prefill_step_size=model.prefill_chunk,
        prompt_progress_callback=look,
    )
    try:
        with closing(responses):
            for response in responses:
                look(0, 0)
                recording._take(response.token, response.text, (perf_counter_ns() - began) / 1e6)
    except _CancelledError:
        return None
    finally:
        mx.synchronize(generation_stream)
    first, last = recording.times_ms[0], recording.times_ms[-1]
    recording.statistics = Statistics(
        prompt_tokens=len(prompt),
        generated_tokens=len(recording.token_ids),
        prefill_ms=first,
        ttft_ms=first,
        decode_ms=last - first,
        target_calls=len(recording.token_ids) - 1,
    )
    return recording


def measure_rounds(
    session: ChatSession, request: GenerationRequest, recording: Recording, cancelled: Callable[[], bool]
) -> tuple[float | None, float | None]:
    """Compare a reply's first rounds with their drafts and target calls alone.

    The first tokens are decoded again with exact times, so that every stage waits for its own result.

    Args:
        session: The session of the reply; its caches are emptied.
        request: The reply's request, in a drafting mode.
        recording: The reply.
        cancelled: Called between tokens.

    Returns:
        The time of the rounds divided by that of their drafts and target calls alone, and the mean milliseconds of a
        draft; None if the reply had no rounds, or it was cancelled.
    """
    sampling = replace(request.sampling, max_tokens=min(request.sampling.max_tokens, _EXACT_TOKENS))
    exact = replace(request, sampling=sampling, draft=replace(request.draft, profile=True))
    again = record(session, exact, cancelled) if recording.rounds else None
    if again is None or not again.rounds:
        return None, None
    stages = {entry.path: entry for entry in again.statistics.ledger}
    draft, verify = stages[stage_path(Stage.ROUND, Stage.DRAFT)], stages[stage_path(Stage.ROUND, Stage.VERIFY)]
    rounds = recording.rounds[: draft.calls]
    took_ms = recording.times_ms[sum(each.emitted for each in rounds)] - recording.times_ms[0]
    alone_ms = (draft.total_ms + verify.total_ms) / draft.calls
    return took_ms / len(rounds) / alone_ms, draft.total_ms / draft.calls


class _CancelledError(Exception):
    """Stops mlx-lm while it reads a prompt."""
