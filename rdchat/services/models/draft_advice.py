"""Says in one line what would make a model faster on this machine, and what that takes. Pure functions, no MLX."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rdchat.hub import HubModel, PublishedKind
from rdchat.inference.api import DraftKind, HeadKind, ModelCard
from rdchat.wording import size_text

# A draft model has at most this share of the target's parameters.
_SMALLER = 0.7
# An offer that is not this many times as fast is left out.
_WORTH = 1.05
# Time of one token of a head's draft, in plain steps; 0.04 to 0.06 was measured.
_HEAD_STEP = 0.06
# Chance that a smaller model of the family chooses the model's own token (docs/benchmarks.md).
_CHAIN_CHANCE = 0.84
_CHAIN_TOKENS = 4
# Tokens per step of the shipped drafter without prompt lookup. It was trained with rdchat.
_TRAINED = 2.0
_TRAINED_BYTES = 10_000_000


class DraftAction(StrEnum):
    """Action of the button below the advice; the value is its label."""

    NONE = ""
    USE = "Use It"
    SEARCH = "Find a Drafter…"
    LAYERS = "Get MTP Layers…"
    TRAIN = "Train a Drafter…"


@dataclass(frozen=True, slots=True)
class DraftAdvice:
    """One line of advice for a model.

    Attributes:
        drafter: The drafter that `USE` takes.
        is_model: Whether that is a smaller model.
    """

    text: str
    action: DraftAction = DraftAction.NONE
    drafter: str = ""
    is_model: bool = False


@dataclass(frozen=True, slots=True)
class _Usual:
    """Typical figures of a kind of drafter, from which its speed on this machine is estimated.

    Attributes:
        tokens: Tokens per step, on chat.
        rows: Rows of the step's call.
        draft: Time of the draft, in plain steps.
        evidence: Where `tokens` comes from.
    """

    tokens: float
    rows: int
    draft: float
    evidence: str


# A chain of 3 drafted tokens has 4 rows, with the root, and takes 3 steps of the head. A drafter of blocks makes all
# its tokens at once, which is taken to need 2 such steps.
#
# MTP: Qwen3.6, the hidden state read after the final norm (llama.cpp 24025). EAGLE-3 and DSpark: MT-Bench at
# temperature 1, Qwen3-8B, chains (deepseek-ai/DeepSpec). Assistant: Gemma 4 31B, chains (llama.cpp 23398).
_MTP = _Usual(2.7, 4, 3 * _HEAD_STEP, "published")
_EAGLE3 = _Usual(2.66, 8, 7 * _HEAD_STEP, "published")
_BLOCK = _Usual(3.72, 8, 2 * _HEAD_STEP, "published")
_ASSISTANT = _Usual(3.0, 4, 3 * _HEAD_STEP, "published")
_RECURRENT = _Usual(_TRAINED, 16, 4 * _HEAD_STEP, "assumed")
_USUAL = {
    HeadKind.MTP: _MTP,
    HeadKind.EAGLE3: _EAGLE3,
    HeadKind.BLOCK: _BLOCK,
    HeadKind.RECURRENT: _RECURRENT,
    HeadKind.ASSISTANT: _ASSISTANT,
    PublishedKind.EAGLE3: _EAGLE3,
    PublishedKind.DFLASH: _BLOCK,
    PublishedKind.DSPARK: _BLOCK,
    PublishedKind.DOMINO: _BLOCK,
    PublishedKind.JETSPEC: _BLOCK,
    PublishedKind.XPRESS: _BLOCK,
    PublishedKind.ASSISTANT: _ASSISTANT,
    PublishedKind.RDCHAT: _RECURRENT,
}


@dataclass(frozen=True, slots=True)
class _Offer:
    """Something that could draft for the model: the advice to use it, and its typical figures."""

    advice: DraftAdvice
    usual: _Usual

    def speedup(self, calls: Mapping[int, float]) -> float | None:
        """Return the expected speed over plain decoding; None where the call's cost is not known."""
        call = calls.get(self.usual.rows)
        return None if call is None else self.usual.tokens / (call + self.usual.draft)


def draft_advice(
    model: ModelCard,
    calls: Mapping[int, float],
    heads: Sequence[ModelCard],
    smaller: Sequence[ModelCard],
    published: Sequence[HubModel] | None = None,
    *,
    used: str | None = None,
) -> DraftAdvice:
    """Return the best advice for a model: the first of these that holds.

    1. It cannot check drafts.
    2. It has a drafter.
    3. The offer that promises most, if one is worth it: its own MTP layers, what is on this machine, what the hub has.
    4. To ask the hub, if that was not done.
    5. To train a drafter, if that is worth it; otherwise that none would help.

    Args:
        model: The model.
        calls: Time of a target call by its rows, in plain steps, as measured on this machine; empty where it is not.
        heads: Drafter heads on this machine that fit it, the surest first.
        smaller: Models on this machine with the same tokens, the smallest first.
        published: What the hub has for it; None where it was not asked.
        used: The drafter or smaller model that the person chose for it; None for its own.
    """
    if model.tried is not None and model.tried.kind is DraftKind.NONE:
        return DraftAdvice(f"It cannot check drafts: {model.tried.reason}.")
    if used is not None or (heads and heads[0].fits_surely):
        return DraftAdvice("It has a drafter. Auto uses it where that is faster.")
    if best := _best([*_own(model), *_here(model, heads, smaller), *_on_hub(model, published or ())], calls):
        return best
    if published is None:
        return DraftAdvice("Hugging Face may have a drafter for it.", DraftAction.SEARCH)
    size = size_text(_TRAINED_BYTES)
    text = f"No drafter was found that would help. Train one here: it takes hours, and {size}."
    training = _best([_Offer(DraftAdvice(text, DraftAction.TRAIN), _RECURRENT)], calls)
    return training or DraftAdvice("A drafter would not make it faster on this machine. Prompt lookup needs none.")


def _best(offers: Sequence[_Offer], calls: Mapping[int, float]) -> DraftAdvice | None:
    """Return the advice that promises most, the first one where nothing is measured; None where none is worth it."""
    worth = [(offer, gain) for offer in offers if (gain := offer.speedup(calls)) is None or gain >= _WORTH]
    if not worth:
        return None
    offer, gain = max(worth, key=lambda each: each[1] or 0.0)
    advice = offer.advice
    if gain is None:
        return advice
    expected = f"Expected: {gain:.1f} times as fast, from {offer.usual.evidence} figures."
    return replace(advice, text=f"{advice.text} {expected}")


def draft_models(model: ModelCard, models: Iterable[ModelCard]) -> list[ModelCard]:
    """Return smaller models that know the same tokens, the smallest first."""
    sizes = model.sizes
    if sizes is None or not model.tokens:
        return []
    candidates = [
        (other.sizes.parameters, other)
        for other in models
        if other.tokens == model.tokens
        and other.can_be_loaded
        and other.sizes is not None
        and other.sizes.parameters < _SMALLER * sizes.parameters
    ]
    return [other for _, other in sorted(candidates, key=lambda each: each[0])]


def _own(model: ModelCard) -> Iterator[_Offer]:
    """Yield the offer of the MTP layers that the model's authors published, where this copy lacks them."""
    if model.states_mtp:
        text = "Its authors published a drafter with it, the MTP layers. This copy lacks them."
        yield _Offer(DraftAdvice(text, DraftAction.LAYERS), _MTP)


def _here(model: ModelCard, heads: Sequence[ModelCard], smaller: Sequence[ModelCard]) -> Iterator[_Offer]:
    """Yield the offers of drafter heads and smaller models on this machine."""
    for head in heads:
        if head.kind is not None:
            size = size_text(head.weights_bytes)
            text = f"{head.name}, on this machine, may be made for it. It takes {size} of memory."
            yield _Offer(DraftAdvice(text, DraftAction.USE, head.model), _USUAL[head.kind])
    for other in smaller:
        if other.sizes is not None and model.sizes is not None:
            text = f"{other.name} has the same tokens and can draft. It takes {size_text(other.disk_bytes)} of memory."
            share = other.sizes.stored_bytes / model.sizes.stored_bytes
            yield _Offer(DraftAdvice(text, DraftAction.USE, other.model, is_model=True), _smaller(share))


def _on_hub(model: ModelCard, published: Sequence[HubModel]) -> Iterator[_Offer]:
    """Yield the offers of what the hub has for the model."""
    for each in published:
        if each.problem or each.download_bytes is None or each.kind is None:
            continue
        if each.is_smaller_model and not each.same_tokenizer:
            continue
        stored = model.sizes.stored_bytes if model.sizes is not None else 0
        usual = _USUAL.get(each.kind)
        kind = f"{each.kind.value} drafter"
        if usual is None:
            usual = _smaller(each.download_bytes / stored if stored else 1.0)
            kind = "a smaller model with the same tokens"
        text = f"{each.repository} ({kind}) is {size_text(each.download_bytes)} to download and in memory."
        yield _Offer(DraftAdvice(text, DraftAction.SEARCH), usual)


def _smaller(share: float) -> _Usual:
    """Return what a smaller model brings, by the share of the model's bytes that it has.

    It drafts a chain, of which each token is right with `_CHAIN_CHANCE` if all before it are: for four tokens that is
    1 + 0.84 + 0.84² + 0.84³ + 0.84⁴ = 3.6 tokens per step. One token of its draft takes `share` of a plain step.
    """
    tokens = sum(_CHAIN_CHANCE**step for step in range(_CHAIN_TOKENS + 1))
    return _Usual(tokens, _CHAIN_TOKENS + 1, _CHAIN_TOKENS * share, "assumed")
