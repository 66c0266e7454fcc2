"""Makes one reply of a benchmark, timed token by token: ours, or stock mlx-lm's on the same network."""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter_ns

import mlx.core as mx
import mlx.nn as nn
from mlx_lm import stream_generate
from mlx_lm.generate import generation_stream
from mlx_lm.sample_utils import make_sampler

from rdchat.errors import PromptTooLongError
from rdchat.inference.api.events import ReplyEnd, TokenEvent
from rdchat.inference.api.prompt_files import Prompt
from rdchat.inference.api.protocol import TokenIterator
from rdchat.inference.api.reply_statistics import RoundStatistics, Statistics
from rdchat.inference.api.requests import ChatMessage, GenerationRequest, Role
from rdchat.inference.benchmark.draft_verify_split import SplitRounds
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.session import ChatSession
from rdchat.inference.target.target import LoadedModel

_HALVED_ROUNDS = 12  # rounds of a reply that are made again in halves


@dataclass(frozen=True, slots=True)
class RoundCost:
    """The cost of a reply's first rounds, each of them made once more in halves."""

    overhead: float  # their time over that of their drafts and target calls alone
    draft_ms: float  # median time of a draft alone


@dataclass(slots=True)
class Recording:
    """A recorded reply."""

    token_ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)  # text that became final with each token
    times_ms: list[float] = field(default_factory=list)  # of each token, from the request; a round has one time
    rounds: list[RoundStatistics] = field(default_factory=list)  # none in plain decoding
    statistics: Statistics = field(default_factory=Statistics)
    mode_reason: str | None = None  # why the mode did not run; None if it did

    @property
    def chosen(self) -> str:
        """The automatic mode's last choice in words; empty in other modes."""
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
    """Check that all prompts can be answered, before the first one is.

    Raises:
        PromptTooLongError: If a prompt leaves no room for a reply.
        ModelError: If the chat template refuses one.
    """
    room = model.info.context_length
    for number, prompt in enumerate(prompts, start=1):
        length = len(model.encode_chat((ChatMessage(Role.USER, prompt.text),), continue_last=False))
        if length + 2 > room:
            raise PromptTooLongError(
                f"Prompt {number} is {length:,} tokens long; with a reply, {model.info.name} takes {room:,}.",
                "Take it out of the prompts, or pick a model with a longer context.",
            )


def record(session: ChatSession, request: GenerationRequest, cancelled: Callable[[], bool]) -> Recording | None:
    """Make a reply, beginning with empty KV caches.

    Args:
        session: Its caches are emptied.
        request: The prompt and how to draft.
        cancelled: Called between tokens, and between chunks of the prompt.

    Returns:
        The reply; None if it was cancelled.
    """
    session.forget()
    began = perf_counter_ns()
    return record_events(session.generate(request), began, cancelled)


def record_events(reply: TokenIterator, began: int, cancelled: Callable[[], bool]) -> Recording | None:
    """Make a reply that began at `began`, a time of `perf_counter_ns`; see `record`."""
    found = Recording()
    with closing(reply) as events:
        for event in events:
            if cancelled():
                return None
            if isinstance(event, TokenEvent):
                found._take(event.token_id, event.text, (perf_counter_ns() - began) / 1e6)
                if event.round is not None:
                    found._end_round(event.round)
            elif isinstance(event, ReplyEnd):
                found.statistics, found.mode_reason = event.statistics, event.mode_reason
                if found.pieces:
                    found.pieces[-1] += event.trailing_text
    mx.synchronize()  # a call queued beyond the end must not take the next reply's time
    return found


def record_mlx_lm(
    model: LoadedModel,
    request: GenerationRequest,
    cancelled: Callable[[], bool],
    draft_network: nn.Module | None = None,
) -> Recording | None:
    """Make a reply with stock `mlx_lm.stream_generate` on the same network, sampling by its own rule.

    Args:
        model: The target.
        request: The prompt; of its draft settings only `draft_tokens` is used, and only with a draft model.
        cancelled: Called between tokens and, without a draft model, between chunks of the prompt.
        draft_network: A draft model for mlx-lm.

    Returns:
        The reply, counted from the last token of its first call; None if it was cancelled.
    """
    sampling = request.sampling
    prompt = model.encode_chat(request.messages, continue_last=False)
    mx.random.seed(request.seed)

    def look(_processed: int, _total: int) -> None:
        if cancelled():
            raise _CancelledError

    found, drafted = Recording(), list[bool]()
    began = perf_counter_ns()
    responses = stream_generate(
        model.network,
        model.tokenizer,
        prompt,
        max_tokens=min(sampling.max_tokens, model.info.context_length - len(prompt)),
        sampler=make_sampler(temp=sampling.temperature, top_p=sampling.top_p),
        prefill_step_size=model.prefill_chunk,
        prompt_progress_callback=look,
        draft_model=draft_network,
        num_draft_tokens=request.draft.draft_tokens,
    )
    try:
        with closing(responses):
            for response in responses:
                look(0, 0)
                found._take(response.token, response.text, (perf_counter_ns() - began) / 1e6)
                drafted.append(response.from_draft)
    except _CancelledError:
        return None
    finally:
        mx.synchronize(generation_stream)
    first, last = found.times_ms[0], found.times_ms[-1]
    later = drafted[drafted.index(False) + 1 :] if False in drafted else []  # tokens of all calls but the first
    found.statistics = Statistics(
        prompt_tokens=len(prompt),
        generated_tokens=1 + len(later),
        prefill_ms=first,
        ttft_ms=first,
        decode_ms=last - first,
        target_calls=later.count(False) + (later[-1:] == [True]),
    )
    return found


def measure_rounds(
    session: ChatSession, request: GenerationRequest, recording: Recording, cancelled: Callable[[], bool]
) -> RoundCost | None:
    """Return the cost of a reply's first rounds compared with their drafts and target calls alone.

    Args:
        session: Made the reply; its caches are emptied.
        request: The reply's request, in a drafting mode.
        recording: The reply.
        cancelled: Called between rounds.

    Returns:
        The cost; None if the reply had no rounds, or it was cancelled.
    """
    session.forget()
    model = session.model
    prompt = model.encode_chat(request.messages, continue_last=False)
    ready = session.drafters.prepare(ReplyJob.fresh(model, prompt, request))
    if ready is None or not recording.rounds:
        return None
    job, drafter = ready
    halves = SplitRounds(model, drafter, prompt, job.rows_for)
    last_index = min(request.sampling.max_tokens, model.info.context_length - len(prompt)) - 1
    done, halves_ms = 1, list[tuple[float, float]]()
    for each in recording.rounds[:_HALVED_ROUNDS]:
        if cancelled():
            return None
        halves_ms.append(halves.run(recording.token_ids[done - 1], last_index - done))
        done += each.emitted
        if not halves.follow(recording.token_ids[done - each.emitted : done]):
            break  # the reply ended inside the round
    session.forget()
    took_ms = recording.times_ms[done - 1] - recording.times_ms[0]
    return RoundCost(took_ms / sum(map(sum, halves_ms)), median(draft_ms for draft_ms, _ in halves_ms))


class _CancelledError(Exception):
    """Ends mlx-lm's reading of a prompt."""
