"""What a small model says without drafts, under samplings of every kind: what drafted replies are held against."""

from weakref import WeakKeyDictionary

from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.requests import GenerationRequest
from rdchat.inference.session import ChatSession
from rdchat.inference.target.hooks import ModelHooks
from rdchat.inference.target.target import LoadedModel

SAMPLINGS: list[dict[str, float]] = [
    {"temperature": 0},
    {"temperature": 0.7},
    {"temperature": 1.3, "top_p": 1},
    {"temperature": 1.3, "top_p": 0.8, "top_k": 5, "min_p": 0.05},
    {"temperature": 0, "repetition_penalty": 1.3},
    {"temperature": 0.7, "repetition_penalty": 1.5, "top_k": 8},
]


# At temperature 1.5, of the first 60 the seeds with which `shared_llama` soonest ends its answer to `ask()`:
# after 1, 2, 4, 6, 11, 12, 15, 18, 19, 23 and 30 tokens.
ENDING_SEEDS = (21, 38, 0, 43, 22, 25, 20, 15, 19, 9, 12)

_said: WeakKeyDictionary[ModelHooks, dict[tuple[GenerationRequest, int | None, int], ReplyEnd]] = WeakKeyDictionary()


def plain(model: LoadedModel, request: GenerationRequest, bits: int | None = None) -> ReplyEnd:
    """Return the reply of a new chat without drafts; `bits` of the KV cache, None for as they come.

    It is decoded once: a model must not be changed between two calls.
    """
    told = _said.setdefault(model.hooks, {})
    key = (request, bits, model.info.context_length)
    if key not in told:
        *_, end = ChatSession(model, bits).generate(request)
        assert isinstance(end, ReplyEnd)
        told[key] = end
    return told[key]
