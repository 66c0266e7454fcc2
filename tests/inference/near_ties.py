"""Compares drafted replies with plain decoding where rounding depends on the number of rows, and counts near-ties."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx

from rdchat.inference.api import Difference, GenerationRequest, Mode, ReplyEnd
from rdchat.inference.benchmark.runner import score_gap
from rdchat.inference.decoding.draft import Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply_iterator import prefill
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.device import fetch
from rdchat.inference.drafting.draft_model import DraftModel, DraftModelDrafter
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.lookup import LookupDrafter
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from tests.inference.auto.automatic_replies import automatic
from tests.inference.fakes import ALPHABET, ask, random_drafter, reply_end
from tests.inference.plain_replies import drafted


@dataclass(frozen=True)
class NearTies:
    """How many tokens of a drafted reply were looked at, and where plain decoding would have chosen others."""

    tokens: int
    found: tuple[Difference, ...]

    def others(self, dtype: str) -> list[Difference]:
        """Return the differences that rounding does not explain."""
        return [difference for difference in self.found if not difference.near_tie(dtype)]

    def __str__(self) -> str:
        gaps = ", ".join(f"{one.gap:.1e} (rounding {one.rounding:.1e})" for one in self.found)
        return f"{len(self.found)} of {self.tokens} tokens, gaps: {gaps or '-'}"


def near_ties(model: LoadedModel, mode: Mode, temperature: float, max_tokens: int = 24, seed: int = 5) -> NearTies:
    """Decode a reply of a small model with random drafters, and compare it with plain decoding token by token."""
    request = ask("abcabcabc", seed=seed, temperature=temperature, top_p=1.0, max_tokens=max_tokens)
    end = _REPLIES[mode](model, request)
    return NearTies(len(end.token_ids) - 1, tuple(divergences(model, request, end.token_ids)))


def divergences(model: LoadedModel, request: GenerationRequest, reply: Sequence[int]) -> Iterator[Difference]:
    """Feed a drafted reply to plain decoding, and yield where it would have chosen another token.

    Once two replies differ, they stay different, so replies are not compared: each position is judged on the drafted
    reply. The first token is left out, since it comes with the prompt in all modes.

    Args:
        model: The target.
        request: The request of both replies; no repetition penalty.
        reply: The drafted reply.
    """
    prompt = model.encode_chat(request.messages)
    chooser = TokenChooser(request.sampling, request.seed, model.info.vocabulary_size)
    cache = KVCache(model.network)
    for _ in prefill(model, cache, [*prompt, 0], lambda: False, Ledger()):  # `prefill` leaves out the last token
        pass
    for index, token in enumerate(reply[:-1], start=1):
        logits = model.network(mx.array([[token]]), cache=cache.layers)[:, -1]
        plain = int(fetch(chooser.choose(logits, [len(prompt) + index]))[0])
        if plain != reply[index]:
            gap, rounding = score_gap(model, request, [*reply[:index], plain], index, reply[index])
            yield Difference(0, index, model.decode([plain]), model.decode([reply[index]]), gap, rounding)


def _in_rounds(model: LoadedModel, request: GenerationRequest, drafter: Drafter) -> ReplyEnd:
    events, cache = drafted(model, request, drafter)
    end = reply_end(events)
    assert cache.tokens == [*model.encode_chat(request.messages), *end.token_ids][: len(cache.tokens)]
    return end


def _by_lookup(model: LoadedModel, request: GenerationRequest) -> ReplyEnd:
    return _in_rounds(model, request, LookupDrafter(model.encode_chat(request.messages), 4))


def _by_beams(model: LoadedModel, request: GenerationRequest) -> ReplyEnd:
    prompt = model.encode_chat(request.messages)
    return _in_rounds(model, request, random_drafter(model).drafter(prompt, request))


def _by_draft_model(model: LoadedModel, request: GenerationRequest) -> ReplyEnd:
    """The model drafts for itself, so that most is accepted."""
    prompt = model.encode_chat(request.messages)
    shape = DraftShape(4, (2, 1, 0, 2))
    return _in_rounds(
        model,
        request,
        DraftModelDrafter(DraftModel(model, model, len(ALPHABET)), prompt, request, shape_of=lambda _: shape),
    )


def _automatically(model: LoadedModel, request: GenerationRequest) -> ReplyEnd:
    events, *_ = automatic(model, request, (Mode.LOOKUP, Mode.DRAFTER, Mode.SPECULATIVE))
    return reply_end(events)


_REPLIES: dict[Mode, Callable[[LoadedModel, GenerationRequest], ReplyEnd]] = {
    Mode.LOOKUP: _by_lookup,
    Mode.DRAFTER: _by_beams,
    Mode.SPECULATIVE: _by_draft_model,
    Mode.AUTO: _automatically,
}
MODES = tuple(_REPLIES)
FAMILIES = ("llama", "gpt_oss", "qwen3_moe", "qwen3_next")  # attention, windows with sinks, experts, recurrent state
DTYPES = ("float16", "bfloat16", "4bit")
# Each family in each precision, and each mode with each of both; family, precision, mode, temperature.
CASES = [
    (family, dtype, MODES[(row + column) % len(MODES)], (0.0, 0.7)[(row + column // 2) % 2])
    for row, family in enumerate(FAMILIES)
    for column, dtype in enumerate(DTYPES)
]
