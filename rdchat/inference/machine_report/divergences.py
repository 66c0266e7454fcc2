"""Counts how often drafted decoding chooses another token than plain decoding, because rows are rounded differently.

Drafts are verified with several rows a call, plain decoding feeds one row a call, and their kernels round differently:
if two tokens nearly tie, each way may choose another one. A reply is decoded with drafts, then plain decoding follows
its tokens, and each place where it would have chosen another one counts. Sampling is the app's, with its default
filters.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rdchat.inference.api.bench_results import Difference
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.benchmark.differences import divergences
from rdchat.inference.benchmark.sweep import EVERYDAY_PROMPTS
from rdchat.inference.session import ChatSession


@dataclass(frozen=True, slots=True)
class Divergences:
    """The count at one precision and temperature.

    Attributes:
        dtype: Precision of the weights.
        temperature: 0 is greedy.
        mode: How the replies were drafted.
        tokens: Tokens compared.
        gaps: For each divergence, the difference of the two tokens' final scores under plain decoding, in nats; if a
            filter drops the reply's token there, its distance from the filter's border.
        rounding: How far other calls move the scores at each of these places, in nats: see `Difference`.
    """

    dtype: str
    temperature: float
    mode: Mode
    tokens: int
    gaps: tuple[float, ...]
    rounding: tuple[float, ...]

    @property
    def per_thousand(self) -> float:
        """Divergences per 1,000 tokens."""
        return 1000 * len(self.gaps) / max(self.tokens, 1)


def count_divergences(session: ChatSession, mode: Mode, temperature: float, tokens: int) -> Iterator[Divergences]:
    """Decode everyday replies with drafts and compare them; yield the count so far after each.

    Args:
        session: Its caches are emptied.
        mode: How to draft; replies drafted in another way do not count.
        temperature: 0 is greedy.
        tokens: The most tokens of a reply.
    """
    model, compared = session.model, 0
    found: list[Difference] = []
    for number, prompt in enumerate(EVERYDAY_PROMPTS):
        message = ChatMessage(Role.USER, prompt.text)
        sampling = SamplingParams(temperature, max_tokens=tokens)
        request = GenerationRequest((message,), sampling, number, draft=DraftSettings(mode))
        session.forget()
        *_, end = session.generate(request)
        assert isinstance(end, ReplyEnd)
        if end.mode is mode:
            found += divergences(model, request, end.token_ids)
            compared += len(end.token_ids) - 1
        gaps, rounding = (tuple(getattr(one, name) or 0.0 for one in found) for name in ("gap", "rounding"))
        yield Divergences(model.info.dtype, temperature, mode, compared, gaps, rounding)
