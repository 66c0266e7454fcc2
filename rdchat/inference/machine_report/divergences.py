"""How often drafted decoding takes another token than plain decoding would, where rows are rounded differently.

Drafts are verified several rows a call, plain decoding feeds one row a call, and their kernels round differently: where
two tokens all but tie, one may win here and the other there. Two replies that ran apart once would differ from then on,
so they are not compared. A reply is decoded with drafts, then plain decoding is led along its tokens, and each place
counts where it would have taken another one. Sampling is the app's, with its default filters.
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
    """Of one precision and temperature.

    Attributes:
        dtype: Precision of the weights.
        temperature: 0 is greedy.
        mode: How the replies were drafted.
        tokens: How many were compared.
        gaps: What separates the two tokens under plain decoding, in nats, for each place where it would have taken
            another one: the difference of their final scores or, where a filter drops the reply's token there, its
            distance from the filter's border.
        rounding: What other calls make of the scores at each of these places, in nats: see `Difference`.
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
        session: Whose model answers; what its caches hold is lost.
        mode: How to draft; a reply that was not drafted so counts no tokens.
        temperature: 0 is greedy.
        tokens: Of a reply, at most.
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
